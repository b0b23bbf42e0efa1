"""Losses, unknown labels and ranks on blocks and rows: the same as on the local engine."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pyspark.sql import SparkSession
from torch import Tensor

import lotan
from lotan.errors import GraphError
from lotan.hosts.jar import JAR
from tests.night import at_night
from tests.training.test_trainer_rows import VERTICES, _fit, _tables

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ENGINES = ["rows", *["blocks"] * JAR.is_file()]


def _partly_known() -> list[list[float | None] | None]:
    generator = np.random.default_rng(3)
    found: list[list[float | None] | None] = []
    for row in generator.integers(0, 2, size=(VERTICES, 3)).tolist():
        entries = [
            None if generator.random() < 0.2 else float("nan") if generator.random() < 0.1 else float(one)
            for one in row
        ]
        unknown = [one is None or np.isnan(one) for one in entries]
        found.append([1.0, *entries[1:]] if all(unknown) else entries)
    return found


def _label(kind: str) -> tuple[Any, str]:
    classes = _tables()[0]["label"]
    match kind:
        case "labels":
            return _partly_known(), "array<double>"
        case "two classes":
            return (classes > 0).astype(int), "bigint"
        case "targets":
            return classes.astype(float), "double"
    return classes, "bigint"


def _skewed(output: Tensor, label: Tensor) -> Tensor:
    error = output - label
    return torch.where(error > 0, error.square(), 3 * error.abs()).sum(1)


CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "labels": (3, {"loss": "bce_with_logits(pos_weight=2.0)", "metrics": ["f1", "roc_auc"]}),
    "two classes": (1, {"monitor": "roc_auc", "class_weights": "balanced"}),
    "targets": (1, {"loss": _skewed, "lr_scheduler": "ReduceLROnPlateau(patience=0)", "clip_grad_norm": 0.1}),
    "classes": (3, {"loss": "cross_entropy(label_smoothing=0.1)", "class_weights": {2: 3.0}, "metrics": ["roc_auc"]}),
}


BY_DAY = [("labels", "blocks")]


@pytest.mark.parametrize(("kind", "engine"), at_night(product(CASES, ENGINES), unless=BY_DAY))
def test_the_same_as_on_local(spark: SparkSession, engine: str, kind: str) -> None:
    vertices, edges = _tables()
    label, sql = _label(kind)
    vertices["label"] = list(label)
    vertices["vertex_weight"] = np.arange(VERTICES) % 5 * (0.5 if kind != "classes" else 0) + 0.5
    outputs, settings = CASES[kind]
    rows = vertices.assign(features=[row.tolist() for row in vertices["features"]]).astype(object).values.tolist()
    on_spark = lotan.Graph(
        spark.createDataFrame(rows, f"id int, features array<float>, label {sql}, split string, vertex_weight double"),
        spark.createDataFrame(edges, "src int, dst int"),
    )
    local = lotan.Graph(vertices, edges)
    assert on_spark.labels == local.labels

    def fit(graph: lotan.Graph, engine: str) -> Any:
        torch.manual_seed(0)
        model = lotan.nn.GCN(in_channels=6, hidden_channels=8, num_layers=2, out_channels=outputs)
        return _fit(graph, model, engine=engine, epochs=2, **settings)

    expected, found = fit(local, "local"), fit(on_spark, engine)
    if kind == "labels":  # sent to Spark, unknown entries are unknown too
        sent = fit(local, engine)
        assert [entry["loss"] for entry in sent.history] == pytest.approx(
            [entry["loss"] for entry in expected.history], rel=1e-5
        )
    assert found.report["engine"] == engine
    assert found.model.loss == expected.model.loss
    assert [entry["loss"] for entry in found.history] == pytest.approx(
        [entry["loss"] for entry in expected.history], rel=1e-5
    )
    for split, figures in expected.metrics.items():
        assert found.metrics[split] == pytest.approx(figures, rel=1e-4)
    predicted = found.predict()
    try:
        mine = predicted.toPandas().sort_values("id", ignore_index=True)
    finally:
        predicted.unpersist()
    theirs = expected.predict().sort_values("id", ignore_index=True)
    np.testing.assert_allclose(np.stack(mine["prediction"]), np.stack(theirs["prediction"]), rtol=1e-4, atol=1e-5)
    if "probability" in theirs:
        np.testing.assert_allclose(np.stack(mine["probability"]), np.stack(theirs["probability"]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("bad", [pytest.param(2.0, marks=pytest.mark.nightly), float("inf")])
def test_other_numbers_beside_unknown_entries_are_refused(spark: SparkSession, bad: float) -> None:
    vertices, edges = _tables()
    rows = [(int(one), [0.0] * 6, [None, 1.0], "train") for one in vertices["id"]]
    rows[4] = (4, [0.0] * 6, [None, bad], "train")
    frames = (
        spark.createDataFrame(rows, "id int, features array<float>, label array<float>, split string"),
        spark.createDataFrame(edges, "src int, dst int"),
    )
    pandas = pd.DataFrame(rows, columns=["id", "features", "label", "split"])
    for graph in (lotan.Graph(*frames), lotan.Graph(pandas, edges)):
        with pytest.raises(GraphError, match=r"1 rows that hold .*id 4"):
            _fit(graph, lotan.nn.GCN(6, 8, 2, 2), engine="local", task="multilabel")
