"""The Trainer on the rows engine, with workers: the same numbers as on the local one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lotan
from lotan.results.report import write_report
from lotan.results.run import Run
from lotan.results.trained_model import load
from tests.training.test_accuracy import normalized, train

pytestmark = [pytest.mark.spark, pytest.mark.slow]

VERTICES = 40


def _tables(ids: str = "int") -> tuple[pd.DataFrame, pd.DataFrame]:
    generator = np.random.default_rng(0)
    names = np.arange(VERTICES, dtype=np.int32) if ids == "int" else np.array([f"v{i}" for i in range(VERTICES)])
    vertices = pd.DataFrame(
        {
            "id": names,
            "features": list(generator.normal(size=(VERTICES, 6)).astype(np.float32)),
            "label": generator.integers(0, 3, size=VERTICES),
            "split": generator.choice(["train", "val", "test"], size=VERTICES),
        }
    )
    ends = generator.integers(0, VERTICES, size=(2, 150))
    return vertices, pd.DataFrame({"src": names[ends[0]], "dst": names[ends[1]]})


def _in_spark(spark: SparkSession, ids: str = "int") -> lotan.Graph:
    vertices, edges = _tables(ids)
    typed = "id int" if ids == "int" else "id string"
    return lotan.Graph(
        spark.createDataFrame(vertices, f"{typed}, features array<float>, label bigint, split string"),
        spark.createDataFrame(edges, f"{typed.replace('id', 'src')}, {typed.replace('id', 'dst')}"),
    )


def _model() -> torch.nn.Module:
    torch.manual_seed(0)
    return lotan.nn.GCN(in_channels=6, hidden_channels=8, num_layers=2, out_channels=3, dropout=0.5)


def _fit(graph: lotan.Graph, model: torch.nn.Module | None = None, **options: Any) -> Run:
    settings = {"engine": "rows", "optimizer": lotan.Adam(lr=0.01), "epochs": 2, "partitions": 3, "workers": 1}
    settings |= {"chunk_rows": 8, "progress": False, **options}
    return lotan.Trainer(model or _model(), graph, **settings).fit()


@pytest.fixture(scope="module")
def trained(spark: SparkSession) -> Run:
    """A run with two workers."""
    return _fit(_in_spark(spark))


@pytest.mark.nightly
def test_rows_equal_local(trained: Run, tmp_path: Path) -> None:
    run, local = trained, _fit(lotan.Graph(*_tables()), engine="local")
    assert run.report["engine"] == "rows"
    assert [entry["loss"] for entry in run.history] == pytest.approx([e["loss"] for e in local.history], rel=1e-5)
    assert run.metrics["test"] == pytest.approx(local.metrics["test"], rel=1e-5)
    for name, weights in run.model.weights.items():
        torch.testing.assert_close(weights, local.model.weights[name], rtol=1e-5, atol=1e-5, msg=name)
    write_report(tmp_path / "report.json", run.report)
    report = json.loads((tmp_path / "report.json").read_text())
    assert all(report["bytes"][key] > 0 for key in ("messenger_sent", "messenger_received", "shuffle_written"))
    assert min(report["transport"]["shared"], report["transport"]["inline"]) > 0
    assert all(report["peak_memory_bytes"][key] > 0 for key in ("driver", "jvm", "workers"))


@pytest.mark.nightly
def test_twice_the_same_bits(spark: SparkSession, trained: Run) -> None:
    """Whatever the number of workers."""
    first, second = trained.model.weights, _fit(_in_spark(spark), workers=2).model.weights
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.nightly  # by day on blocks
def test_predictions_are_a_spark_frame_with_the_ids_as_given(spark: SparkSession, tmp_path: Path) -> None:
    ids = "string"  # integers: see test_other_tasks_equal_local
    graph = _in_spark(spark, ids)
    run = _fit(graph, epochs=1)
    predicted = run.predict()
    try:
        assert isinstance(predicted, DataFrame)
        assert predicted.schema["id"].dataType.simpleString() == ids
        rows = predicted.toPandas().sort_values("id", ignore_index=True)
    finally:
        predicted.unpersist()
    on_local = lotan.Graph(*_tables(ids))
    expected = run.model.predict(on_local, engine="local").sort_values("id", ignore_index=True)
    assert rows["id"].tolist() == expected["id"].tolist()
    assert rows["prediction"].tolist() == expected["prediction"].tolist()
    np.testing.assert_allclose(np.stack(rows["probability"]), np.stack(expected["probability"]), rtol=1e-4, atol=1e-6)
    run.save(tmp_path / "model")
    load(tmp_path / "model").write_predictions(graph, tmp_path / "out.parquet", engine="rows", partitions=2, workers=1)
    assert sorted(pd.read_parquet(tmp_path / "out.parquet")["id"]) == expected["id"].tolist()


@pytest.mark.nightly
def test_files_are_opened_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    lotan.Graph(*_tables()).save(tmp_path / "graph")
    run = _fit(lotan.Graph.read(tmp_path / "graph"), engine="rows", epochs=1)
    predicted = run.predict()  # a pandas frame, as the graph is no Spark one
    assert predicted["id"].tolist() == list(range(VERTICES))


@pytest.mark.nightly
def test_a_failure_stops_all_that_was_started(spark: SparkSession) -> None:
    """The fixture that counts what is left behind is the assertion."""
    with pytest.raises(lotan.EngineError, match="the loss is"):
        _fit(_in_spark(spark), optimizer=lotan.SGD(lr=1e38), epochs=5)


OTHER_TASKS = {
    "labels": {"task": "multilabel"},
    "targets": {"task": "regression"},
    "weighted classes": {"class_weights": (1.0, 2.0, 0.5)},
}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", OTHER_TASKS)
def test_other_tasks_equal_local(spark: SparkSession, kind: str) -> None:
    """Arrays of labels, targets and weights of classes go through Spark; a vertex of no label is left out."""
    vertices, edges = _tables()
    generator = np.random.default_rng(1)
    if kind == "labels":
        vertices["label"] = list(generator.integers(0, 2, (VERTICES, 3)).astype(np.float32))
    if kind == "targets":
        vertices["label"] = list(generator.normal(size=(VERTICES, 3)).astype(np.float32))
    typed = "bigint" if kind == "weighted classes" else "array<float>"
    frame = spark.createDataFrame(vertices, f"id int, features array<float>, label {typed}, split string")
    without = frame.withColumn("label", F.when(F.col("id") != 3, F.col("label")))
    vertices["label"] = vertices["label"].where(vertices["id"] != 3, None)
    vertices.loc[vertices["id"] == 3, "split"] = None
    without = without.withColumn("split", F.when(F.col("id") != 3, F.col("split")))
    graph = lotan.Graph(without, spark.createDataFrame(edges, "src int, dst int"))
    options = {"epochs": 1, **OTHER_TASKS[kind]}
    run, local = _fit(graph, **options), _fit(lotan.Graph(vertices, edges), engine="local", **options)
    assert [entry["loss"] for entry in run.history] == pytest.approx([e["loss"] for e in local.history], rel=1e-5)
    assert run.metrics["test"] == pytest.approx(local.metrics["test"], rel=1e-4)
    predicted = run.predict()
    try:
        assert predicted.schema["id"].dataType.simpleString() == "int"
        rows = predicted.toPandas().sort_values("id", ignore_index=True)
    finally:
        predicted.unpersist()
    expected = local.predict()
    for ours, theirs in zip(rows["prediction"], expected["prediction"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.data
@pytest.mark.nightly
def test_cora(spark: SparkSession, data: Callable[[str], Path]) -> None:
    """The published graph, model and settings, epoch by epoch; all 200 epochs are measured by benchmarks/accuracy.py."""
    graph = normalized(lotan.Graph.read(data("cora.npz")))
    run = train(graph, 0, engine="rows", epochs=6, workers=2, partitions=2)
    local = train(graph, 0, engine="local", epochs=6)
    assert [entry["loss"] for entry in run.history] == pytest.approx([e["loss"] for e in local.history], rel=1e-5)
    assert run.metrics["test"] == pytest.approx(local.metrics["test"], rel=1e-5)
