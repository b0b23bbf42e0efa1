"""Learned rows in full batch on blocks: the steps of torch's own embeddings, and the same bits whatever goes wrong."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from pyspark.sql import SparkSession
from torch import Tensor

import lotan
from lotan.engines.blocks import learned
from lotan.graph import frames
from lotan.hosts.jar import JAR
from tests.training.test_learned_rows import (
    CLASSES,
    WIDTH,
    Around,
    ByNumbers,
    Drawn,
    Embedded,
    assert_alike,
    drawn,
    in_torch,
)
from tests.training.test_learned_rows_by_type import Learned, assert_trains_as_pyg, data_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar"),
]

ON_BLOCKS = {"engine": "blocks", "workers": 2, "partitions": 3, "progress": False}


def on_blocks(model: torch.nn.Module, graph: lotan.Graph, **options: Any) -> lotan.Trainer:
    return lotan.Trainer(model, graph, **{**ON_BLOCKS, "epochs": 3, "eval_every": 0, **options})


def in_spark(spark: SparkSession, found: Drawn) -> lotan.Graph:
    """The same graph as tables of Spark."""
    return lotan.Graph(*(spark.createDataFrame(table) for table in found.tables))


def refuse_collection(*tables: Any) -> None:
    raise AssertionError("the tables of the graph were collected")


def assert_equals_torch(model: Any, found: Drawn, trainer: lotan.Trainer, steps: Any) -> Any:
    assert trainer.plan is not None  # it also draws the rows
    other = deepcopy(model)
    run = trainer.fit()
    assert run.report["engine"] == "blocks"
    expected = in_torch(other, found, steps(other.parameters()), 3)
    assert [entry["loss"] for entry in run.history] == pytest.approx(expected, rel=1e-5)
    assert_alike(model, other)
    return run


@pytest.mark.nightly  # by day: test_learned_rows_in_spark.py
def test_rows_in_spark_train_as_in_torch(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts as ids, levels, more pieces than one in a partition; the saved model predicts there, also for fewer vertices."""
    found = drawn(2, share=0.06)
    graph = in_spark(spark, found)
    monkeypatch.setattr(frames, "collect", refuse_collection)
    monkeypatch.setattr(learned, "PIECE_BYTES", 4 * 5 * WIDTH)
    torch.manual_seed(0)
    model = Embedded()
    trainer = on_blocks(model, graph, optimizer=lotan.Adam(lr=0.01), disable=("reuse_evaluation",))
    assert any(step.within is not None for step in trainer.job.plan.train)
    assert "learned" in trainer.explain()
    run = assert_equals_torch(model, found, trainer, lambda parameters: torch.optim.Adam(parameters, 0.01))
    run.save(tmp_path / "model")
    predicted = lotan.load(tmp_path / "model").predict(graph, engine="blocks", partitions=2, workers=1)
    rows = predicted.toPandas().set_index("id").sort_index()
    predicted.unpersist()
    graph_of = lotan.nn.EdgeIndex(found.index, num_vertices=len(rows))
    with torch.no_grad():
        assert rows["prediction"].tolist() == model(found.x, graph_of).argmax(1).tolist()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("norms and two readers", {}),
        pytest.param("attention", {}, marks=pytest.mark.nightly),
        pytest.param("own messages", {"plan": "general"}, marks=pytest.mark.nightly),
        pytest.param("no edges", {}, marks=pytest.mark.nightly),
    ],
)
def test_other_encoders_equal_torch(spark: SparkSession, name: str, options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    found, model = drawn(10), Around(name)
    trainer = on_blocks(model, found.graph, optimizer=lotan.SGD(lr=0.3), **options)
    assert_equals_torch(model, found, trainer, lambda parameters: torch.optim.SGD(parameters, 0.3))


@pytest.mark.nightly
def test_an_embedding_of_torch_equals_local(spark: SparkSession) -> None:
    found, runs = drawn(4), []
    for engine in ("blocks", "local"):
        torch.manual_seed(0)
        options = {"engine": engine} | ({} if engine == "blocks" else {"workers": None, "partitions": None})
        runs.append(on_blocks(ByNumbers(), found.graph, optimizer=lotan.Adagrad(lr=0.1), eval_every=1, **options).fit())
    run, local = runs
    assert run.metrics["test"] == pytest.approx(local.metrics["test"], rel=1e-5)
    for name, weights in run.model.weights.items():
        torch.testing.assert_close(weights, local.model.weights[name], rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.nightly
def test_rows_of_types_train_as_in_pyg(spark: SparkSession) -> None:
    data = data_of()
    assert_trains_as_pyg(Learned(), lotan.HeteroGraph.from_pyg(data), data, **ON_BLOCKS)


def of_seed(seed: int) -> Embedded:
    torch.manual_seed(seed)
    return Embedded()


@pytest.mark.nightly
def test_a_resumed_run_and_members_of_a_grid_are_the_same_as_alone(spark: SparkSession, tmp_path: Path) -> None:
    graph, given = in_spark(spark, drawn(8)), {"optimizer": lotan.Adam(lr=0.02), "eval_every": 1}
    whole = [on_blocks(of_seed(seed), graph, seed=seed, **given).fit().model.weights for seed in range(2)]
    on_blocks(of_seed(0), graph, **given | {"epochs": 2}, checkpoint_dir=tmp_path).fit()
    resumed = on_blocks(of_seed(0), graph, **given, checkpoint_dir=tmp_path, resume=True).fit().model.weights
    for name, one in whole[0].items():
        assert torch.equal(resumed[name], one), name
    members = [lotan.Member(of_seed(seed), given["optimizer"], seed=seed, epochs=3) for seed in range(2)]
    with lotan.ModelBatch(graph, members, **ON_BLOCKS) as batch:
        batch.train()
        runs = batch.runs()
    for seed, run in runs.items():
        for name, one in whole[seed].items():
            torch.testing.assert_close(run.model.weights[name], one, rtol=1e-5, atol=1e-6, msg=name)


class Wide(torch.nn.Module):
    """Rows beside features, read at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.conv = lotan.nn.LearnedFeatures(WIDTH), lotan.nn.GCNConv(WIDTH + 2, WIDTH)
        self.last = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, graph: lotan.nn.EdgeIndex) -> Tensor:
        rows = self.rows(graph)
        return self.last(self.conv(torch.cat([x, rows], dim=1), graph).relu() + rows)


@pytest.mark.nightly
def test_rows_beside_features_are_analyzed(spark: SparkSession) -> None:
    """Rows and features travel apart, and the measured explanation runs the passes of the plan."""
    found = drawn(5, features=True)
    torch.manual_seed(0)
    model = Wide()
    trainer = on_blocks(model, found.graph, optimizer=lotan.SGD(lr=0.3))
    assert "LearnedRowsGradient" in trainer.explain(analyze=1)
    assert_equals_torch(model, found, trainer, lambda parameters: torch.optim.SGD(parameters, 0.3))
