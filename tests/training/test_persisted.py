"""A persisted graph: laid out once for several trainings, each to the same bits as by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pyspark import SparkContext
from pyspark.sql import SparkSession

import lotan
from lotan.engines.base import Engine
from lotan.errors import ConfigurationError, EngineError
from lotan.training import persisted_graph
from lotan.training.loaded_engine import lies_as
from planner.physical import Plan
from tests.conftest import needs_jar
from tests.training.test_trainer_rows import _in_spark


def fit(graph: lotan.Graph, layers: int = 2, hidden: int = 4, kind: str = "GCN", **options):
    torch.manual_seed(0)
    model = getattr(lotan.nn, kind)(graph.statistics.width, hidden, layers, graph.labels.outputs, dropout=0.5)
    settings = {"engine": "blocks", "epochs": 2, "workers": 1, "partitions": 2, "progress": False}
    return lotan.Trainer(model, graph, **{**settings, **options}).fit()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What engines on Spark are asked to do for a graph, in order."""
    from lotan.engines.blocks.engine import BlocksEngine
    from lotan.engines.rows.engine import RowsEngine

    found: list[str] = []

    def noted(kind: type[Engine], name: str) -> None:
        plain = getattr(kind, name)

        def call(self: Engine, *given: object) -> object:
            plan = next((one for one in given if isinstance(one, Plan)), None)
            if name != "prepare" or (plan is not None and plan.prepare):
                found.append(name)
            return plain(self, *given)

        monkeypatch.setattr(kind, name, call)

    for kind in (BlocksEngine, RowsEngine):
        for name in ("lay_out", "prepare", "close"):
            noted(kind, name)
    return found


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize("engine", [pytest.param("blocks", marks=needs_jar), "rows"])
def test_what_is_laid_out_and_computed_once_is_handed_on(spark: SparkSession, calls: list[str], engine: str) -> None:
    graph = _in_spark(spark)
    alone = [fit(graph, engine=engine), fit(graph, layers=3, hidden=8, engine=engine)]
    assert calls == ["lay_out", "prepare", "close"] * 2
    calls.clear()
    with lotan.persisted(graph) as same:
        assert same is graph
        handed = [fit(graph, engine=engine), fit(graph, layers=3, hidden=8, engine=engine)]
        assert calls == ["lay_out", "prepare"]
    assert calls == ["lay_out", "prepare", "close"]
    for one, other in zip(alone, handed, strict=True):
        assert [entry["loss"] for entry in one.history] == [entry["loss"] for entry in other.history]
        assert_same_bits(one, other)
    sent = [run.report["bytes"]["messenger_sent"] for run in (*alone, *handed)]
    assert sent[2] == pytest.approx(sent[0], rel=0.1)
    assert 0 < sent[3] < 1.1 * sent[1]


def assert_same_bits(one, other) -> None:
    for name, value in one.model.weights.items():
        assert torch.equal(value, other.model.weights[name]), name


@pytest.mark.spark
@pytest.mark.slow
@needs_jar
@pytest.mark.nightly
def test_what_reads_something_else_lays_it_out_anew_and_other_settings_start_anew(
    spark: SparkSession, calls: list[str]
) -> None:
    graph = _in_spark(spark)
    with lotan.persisted(graph):
        for kind, options, more in (
            ("GCN", {"disable": ("hoist_invariant",)}, ["lay_out"]),
            ("GCN", {}, ["prepare"]),
            ("GCN", {"disable": ("hoist_invariant",)}, []),
            ("GraphSAGE", {}, ["lay_out", "prepare"]),
            ("GraphSAGE", {"chunk_rows": 7}, ["close", "lay_out", "prepare"]),
            ("GraphSAGE", {"engine": "local"}, []),
        ):
            calls.clear()
            handed = fit(graph, kind=kind, **options)
            assert calls == more, (kind, options)
            assert handed.history[-1]["loss"] > 0


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.slow
@needs_jar
def test_after_a_failure_the_next_training_starts_anew(spark: SparkSession, calls: list[str]) -> None:
    graph = _in_spark(spark)
    with lotan.persisted(graph), lotan.persisted(graph):
        with pytest.raises(EngineError, match="diverged"):
            fit(graph, optimizer=lotan.SGD(lr=1e30), epochs=9)
        assert calls[-1] == "close"
        assert_same_bits(fit(graph), fit(graph))


def fit_twice(folder: str) -> None:
    """Say, as JSON, which Spark applications the two fits of a graph ran in: here nobody else has a session."""
    lotan.datasets.generate(60, 200, width=8, classes=3).save(folder)
    graph = lotan.Graph.read(folder)
    with lotan.persisted(graph):
        fits, names = [], []
        for _ in range(2):
            fits.append(fit(graph, master="local[2]"))
            session = SparkSession.getActiveSession()
            names.append(None if session is None else session.sparkContext.applicationId)
    assert_same_bits(*fits)
    found = {"applications": names, "open": SparkContext._active_spark_context is not None}
    graph = lotan.datasets.generate(60, 200, width=8, classes=3)
    with lotan.persisted(graph):
        fits = []
        for _ in range(2):
            fits.append(fit(graph, master="local[2]"))
            SparkSession.getActiveSession().stop()
    assert_same_bits(*fits)
    print(json.dumps(found))


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.slow
@needs_jar
def test_a_session_of_ours_lasts_as_long_as_the_block_and_may_be_stopped_there(tmp_path: Path) -> None:
    words = f"from tests.training.test_persisted import fit_twice; fit_twice({str(tmp_path / 'graph')!r})"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, timeout=300, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    first, second = found["applications"]
    assert first is not None
    assert first == second
    assert not found["open"]


def plan_of(kind: str = "GCN", **options: object) -> Plan:
    graph = lotan.datasets.generate(60, 200, width=8, classes=3)
    model = getattr(lotan.nn, kind)(8, 4, 2, 3, dropout=0.5)
    return lotan.Trainer(model, graph, engine="blocks", **options).job.plan


def test_what_lies_for_another_plan_is_told_by_what_is_read() -> None:
    gcn, sage = plan_of(), plan_of("GraphSAGE")
    assert lies_as(gcn, gcn)
    assert lies_as(gcn, plan_of(disable=("hoist_invariant",)))
    assert not lies_as(sage, gcn), "no edges with self-loops there"
    assert not lies_as(gcn, sage), "no degrees there"
    for change in ({"levels": None}, {"targets": "split"}, {"source_gradients": "per_edge"}):
        assert not lies_as(gcn, replace(gcn, **change)), change
    forward = replace(gcn, train=(), train_and_evaluate=())
    assert lies_as(gcn, forward)
    assert not lies_as(forward, gcn), "no sums in reverse there"


def test_what_draws_on_edges_wants_their_keys() -> None:
    def attention(dropout: float, plan: str) -> Plan:
        graph = lotan.datasets.generate(60, 200, width=8, classes=3)
        return lotan.Trainer(lotan.nn.GAT(8, 4, 2, 3, dropout=dropout), graph, engine="blocks", plan=plan).job.plan

    for plan in ("auto", "general"):
        assert lies_as(attention(0.5, plan), attention(0.0, plan))
        assert not lies_as(attention(0.0, plan), attention(0.5, plan))


def test_edges_turned_round_are_loaded_for_those_who_compare_values_on_them() -> None:
    def maxima(plan: str, edges: str) -> Plan:
        class Greatest(lotan.nn.MessagePassing):
            def forward(self, x: torch.Tensor, graph: object) -> torch.Tensor:
                return self.propagate(graph, x, edges=edges)

            def message(self, x_j: torch.Tensor) -> torch.Tensor:
                return x_j

        graph = lotan.datasets.generate(60, 200, width=8, classes=8)
        return lotan.Trainer(Greatest("max"), graph, engine="blocks", plan=plan).job.plan

    for plan in ("auto", "general"):
        assert not lies_as(maxima(plan, "graph"), maxima(plan, "reversed"))


def test_only_graphs_are_persisted():
    with pytest.raises(ConfigurationError, match="graph"), lotan.persisted("digits"):
        pass


def test_on_the_local_engine_nothing_changes():
    graph = lotan.datasets.generate(60, 200, width=8, classes=3)
    alone = fit(graph, engine="local", workers=None, partitions=None)
    with lotan.persisted(graph):
        assert_same_bits(alone, fit(graph, engine="local", workers=None, partitions=None))
        assert persisted_graph._held[graph]._engine is None
