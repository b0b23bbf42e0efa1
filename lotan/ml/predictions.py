"""The predictions of all vertices, as a Spark DataFrame that Spark frees when nothing refers to it any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lotan.graph.graph import Graph
from lotan.results.predictions import from_logits
from lotan.results.trained_model import TrainedModel
from lotan.settings.config import TrainerConfig
from planner.loss import Task


def predicted(model: TrainedModel, graph: Graph, config: TrainerConfig, spark: SparkSession) -> DataFrame:
    """Run a model on all vertices of a graph.

    Returns:
        A DataFrame with `__id` (of the graph's type), `__raw`, the model's output (array of double), `__probability`
        (array of double, empty for regression) and `__prediction` (double).
    """
    task = model.loss.task

    def held(frame: Any, id_type: str) -> DataFrame:
        if isinstance(frame, pd.DataFrame):
            return spark.createDataFrame(_arrow(_scored(frame, task)))
        schema = f"__id {id_type}, __raw array<double>, __probability array<double>, __prediction double"
        ids = frame["id"].cast(id_type).alias("id")
        scored: DataFrame = frame.select(ids, "values").mapInPandas(_by_batch(task), schema)
        return scored.localCheckpoint()  # computes it now; Spark drops it when no plan refers to it

    return model.with_outputs(graph, config, held)


def _scored(frame: pd.DataFrame, task: Task) -> pd.DataFrame:
    raw = np.stack(frame["values"])
    rows = from_logits(frame["id"], raw, task)
    if task == "classification" and raw.shape[1] == 1:
        raw = np.concatenate([-raw, raw], axis=1)  # as Spark's classifiers have it for two classes
    one = raw[:, 0] if task == "regression" else rows["prediction"].to_numpy()
    probability = rows.get("probability", pd.Series([np.zeros(0)] * len(rows)))
    return pd.DataFrame(
        {
            "__id": rows["id"],
            "__raw": list(raw.astype(np.float64)),
            "__probability": [row.astype(np.float64) for row in probability],
            "__prediction": one.astype(np.float64),
        }
    )


def _arrow(rows: pd.DataFrame) -> pa.Table:
    doubles = pa.list_(pa.float64())
    ids = pa.array(rows["__id"])
    kinds = {"__id": ids.type, "__raw": doubles, "__probability": doubles, "__prediction": pa.float64()}
    return pa.Table.from_pandas(rows, pa.schema(kinds.items()), preserve_index=False)


def _by_batch(task: Task) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """Return the function that Spark's Python processes run."""

    def run(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            if len(batch):
                yield _scored(batch, task)

    return run
