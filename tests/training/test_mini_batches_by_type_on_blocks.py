"""Mini-batches of graphs with several types of vertices on blocks: the steps of one process, whatever goes wrong."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pyspark.sql import SparkSession

import lotan
from lotan.batches import on_spark
from lotan.graph import frames
from lotan.hosts.jar import JAR
from tests.tracing.hetero_models import COUNTS, made, messy_data, with_attributes
from tests.training.test_checkpoints_within_epochs import dying_after
from tests.training.test_learned_rows_by_type import data_of, embedded, tables
from tests.training.test_learned_rows_on_blocks import refuse_collection
from tests.training.test_mini_batches import figures
from tests.training.test_mini_batches_on_blocks import FaultyTask, victims

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar"),
]

ON_BLOCKS = {"engine": "blocks", "workers": 2, "partitions": 3}


def fit(model: torch.nn.Module, graph: lotan.Graph, fanouts: Any = (2, 2), **options: Any) -> lotan.Run:
    regime = lotan.MiniBatch(5, fanouts, seed=3)
    settings = {"optimizer": lotan.SGD(lr=0.05), "epochs": 2, "eval_every": 2, "progress": False, "regime": regime}
    return lotan.Trainer(model, graph, **{**settings, **options}).fit()


def assert_equal(run: lotan.Run, local: lotan.Run) -> None:
    assert (run.report["engine"], local.report["engine"]) == ("blocks", "local")
    assert [one["loss"] for one in run.history] == pytest.approx([one["loss"] for one in local.history], rel=1e-5)
    for size in ("batches", "vertices", "edges"):  # the same samples
        assert run.report["mini_batches"][size] == local.report["mini_batches"][size]
    for name, weights in run.model.weights.items():
        torch.testing.assert_close(weights, local.model.weights[name], rtol=1e-5, atol=1e-6, msg=name)
    np.testing.assert_allclose(probabilities(run), probabilities(local), rtol=1e-5, atol=1e-6)
    assert run.metrics["train"]["loss"] == pytest.approx(local.metrics["train"]["loss"], rel=1e-5)


def probabilities(run: lotan.Run) -> np.ndarray:
    found = run.predict()
    if not isinstance(found, pd.DataFrame):
        rows = found.toPandas()
        found.unpersist()
        found = rows
    assert len(found) == COUNTS["paper"]
    return np.stack(found.sort_values("id")["probability"])


def in_spark(spark: SparkSession) -> lotan.HeteroGraph:
    """Tables with texts and integers as ids, in any order."""
    return lotan.HeteroGraph(
        *({key: spark.createDataFrame(one) for key, one in part.items()} for part in tables(data_of(), 1))
    )


@pytest.mark.nightly  # by day on local
def test_learned_rows_of_types_equal_those_in_one_process(spark: SparkSession) -> None:
    """Rows of three types beside features; sums, maxima and attention."""
    graph = lotan.HeteroGraph.from_pyg(data_of())
    run = fit(embedded(), graph, epochs=1, **ON_BLOCKS)
    assert_equal(run, fit(embedded(), graph, epochs=1, engine="local"))


@pytest.mark.nightly
def test_a_graph_in_spark_stays_there(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = in_spark(spark)
    with monkeypatch.context() as patched:
        patched.setattr(frames, "collect", refuse_collection)
        run = fit(embedded(), graph, **ON_BLOCKS)
    assert_equal(run, fit(embedded(), graph, engine="local"))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "fanouts"),
    [
        ("RGCN", (2, 1)),
        ("HGT", ("all", 2)),
        ("HeteroConv", ("all", "all")),
        ("to_hetero", (2, 2)),
        ("attributes", (2, 2)),
    ],
)
def test_models_of_pyg_equal_local(spark: SparkSession, name: str, fanouts: Any) -> None:
    graph = lotan.HeteroGraph.from_pyg(with_attributes() if name == "attributes" else messy_data())
    run = fit(made(name), graph, fanouts, **ON_BLOCKS)
    assert_equal(run, fit(made(name), graph, fanouts, engine="local"))


@pytest.mark.nightly
@pytest.mark.chaos
def test_a_killed_worker_and_a_resumed_epoch_change_no_bit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = lotan.HeteroGraph.from_pyg(data_of())
    options = {"checkpoint_batches": 1, "eval_every": 1, **ON_BLOCKS}
    straight = fit(embedded(), graph, **options, checkpoint_dir=tmp_path / "straight")
    steps = straight.report["mini_batches"]["batches"] // 2
    assert steps > 2
    with monkeypatch.context() as patched:
        given = {"marks": str(tmp_path), "kind": "worker", "batch": steps + 1, **victims()}
        patched.setattr(on_spark, "SendTask", partial(FaultyTask, **given))
        disturbed = fit(embedded(), graph, **options, checkpoint_dir=tmp_path / "disturbed")
    assert (tmp_path / "worker").exists()
    with dying_after(monkeypatch, steps + 1):  # in the second epoch, after its first batch
        fit(embedded(), graph, **options, checkpoint_dir=tmp_path / "resumed")
    resumed = fit(embedded(), graph, **options, checkpoint_dir=tmp_path / "resumed", resume=True)
    for run in (disturbed, resumed):
        assert figures(run) == figures(straight)
        for name, weights in run.model.weights.items():
            assert torch.equal(weights, straight.model.weights[name]), name
