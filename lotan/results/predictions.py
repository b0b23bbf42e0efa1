"""Predictions from a model's output rows, on pandas and on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lotan.files import expanded, write_atomically
from lotan.graph.places import is_uri
from lotan.graph.table_kinds import is_pandas
from planner.loss import Task

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

Rows = npt.NDArray[np.float32]

PREDICTION = {"classification": "bigint", "multilabel": "array<int>", "regression": "array<float>"}
"""The type of the column `prediction` in Spark, by task."""


def predictions(
    frame: pd.DataFrame | DataFrame,
    task: Task,
    id_type: str,
    classes: tuple[str, ...] = (),
    cuts: Sequence[float] | None = None,
) -> pd.DataFrame | DataFrame:
    """Return the predictions for a model's output.

    Args:
        frame: A DataFrame of `id` and `values`; `values` is the output row as an array of float.
        task: The task that the model was trained for.
        id_type: Spark's name for the type of the graph's ids, which may be narrower than the engine's.
        classes: The texts that stand for classes 0, 1, ...; empty if labels were numbers.
        cuts: The outputs above which labels count as predicted, as in `LossSpec.cuts`.
    """
    if is_pandas(frame):
        return from_logits(frame["id"], np.stack(frame["values"]), task, classes, cuts)
    schema = f"id {id_type}, prediction {'string' if classes else PREDICTION[task]}"
    schema += "" if task == "regression" else ", probability array<float>"
    ids = frame["id"].cast(id_type).alias("id")
    return frame.select(ids, "values").mapInPandas(_by_batch(task, classes, cuts), schema)


def hold(frame: pd.DataFrame | DataFrame, spark: SparkSession | None) -> pd.DataFrame | DataFrame:
    """Compute the rows so that they outlive the engine.

    With Spark, they stay in Spark's storage until they are unpersisted. Without Spark, they become a pandas DataFrame.
    """
    if is_pandas(frame):
        return frame if spark is None else spark.createDataFrame(frame)
    if spark is None:
        return frame.toPandas().sort_values("id", ignore_index=True)
    frame = frame.persist()
    frame.count()
    return frame


def write(frame: pd.DataFrame | DataFrame, path: str | Path) -> None:
    """Write the rows as Parquet: one complete file from pandas, or a directory of files from Spark."""
    path = path if is_uri(path) else expanded(path)
    if is_pandas(frame):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(Path(path), lambda stream: frame.to_parquet(stream, index=False))
    else:
        frame.write.mode("overwrite").parquet(str(path))


def _by_batch(
    task: Task, classes: tuple[str, ...], cuts: Sequence[float] | None
) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """Return the function that Spark's Python processes run on batches of rows."""

    def run(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            if len(batch):
                yield from_logits(batch["id"], np.stack(batch["values"]), task, classes, cuts)

    return run


def from_logits(
    ids: object, logits: Rows, task: Task, classes: tuple[str, ...] = (), cuts: Sequence[float] | None = None
) -> pd.DataFrame:
    """Return the predictions for a block of vertices.

    Args:
        ids: The ids, `[rows]`, which are copied unchanged.
        logits: The model's output, `[rows, outputs]`. One output of a classification is the logit of class 1.
        task: The task that the model was trained for.
        classes: The texts that stand for classes 0, 1, ...; empty if labels were numbers.
        cuts: The outputs above which labels count as predicted, as in `LossSpec.cuts`.
    """
    above = logits > np.asarray(0.0 if cuts is None else cuts, dtype=np.float32)
    single = task == "classification" and logits.shape[1] == 1
    if single:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=1)  # the same model with two outputs
    match task:
        case "classification":
            found = above[:, 0].astype(np.int64) if single else logits.argmax(1)
            named = [classes[number] if number < len(classes) else None for number in found] if classes else found
            columns = {"prediction": named, "probability": list(_softmax(logits))}
        case "multilabel":
            columns = {"prediction": list(above.astype(np.int32)), "probability": list(_sigmoid(logits))}
        case "regression":
            columns = {"prediction": list(logits)}
    import pandas as pd  # here, for training needs none

    return pd.DataFrame({"id": ids, **columns})


def from_scores(frame: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """Return rows of `id` and `values` as rows of `id`, `prediction` and `score`: the class of the greatest score.

    Args:
        frame: The scores of all classes, for a block of vertices.
        names: The texts that stand for classes 0, 1, ...; empty if labels were numbers.
    """
    import pandas as pd  # here, for training needs none

    scores = np.stack(frame["values"])
    found = scores.argmax(1)
    return pd.DataFrame(
        {
            "id": frame["id"],
            "prediction": [names[number] for number in found] if names else found,
            "score": list(scores),
        }
    )


def _softmax(logits: Rows) -> Rows:
    shares = np.exp((logits - logits.max(1, keepdims=True)).astype(np.float64))
    result: Rows = (shares / shares.sum(1, keepdims=True)).astype(np.float32)
    return result


def _sigmoid(logits: Rows) -> Rows:
    # exp of numbers that are not positive cannot overflow
    small = np.exp(-np.abs(logits.astype(np.float64)))
    return np.where(logits >= 0, 1 / (1 + small), small / (1 + small)).astype(np.float32)
