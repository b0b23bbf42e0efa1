"""A persisted graph: laid out once for several trainings, each to the same bits as by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pyspark.sql import SparkSession

import lotan
from lotan.engines.base import Engine
from lotan.errors import ConfigurationError, EngineError
from lotan.jar import JAR
from planner.physical import Plan
from tests.test_trainer_rows import _in_spark

needs_jar = pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")


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
def test_what_reads_something_else_lays_it_out_anew_and_other_settings_start_anew(
    spark: SparkSession, calls: list[str]
) -> None:
    graph = _in_spark(spark)
    with lotan.persisted(graph):
        for kind, options, more in (
            ("GCN", {}, ["lay_out", "prepare"]),
            ("GCN", {"disable": ("hoist_invariant",)}, []),
            ("GraphSAGE", {}, ["lay_out", "prepare"]),
            ("GraphSAGE", {"chunk_rows": 7}, ["close", "lay_out", "prepare"]),
            ("GraphSAGE", {"engine": "local"}, []),
        ):
            calls.clear()
            handed = fit(graph, kind=kind, **options)
            assert calls == more, (kind, options)
            assert handed.history[-1]["loss"] > 0


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


@pytest.mark.spark
@pytest.mark.slow
@needs_jar
def test_a_graph_in_memory_and_one_in_files_keep_their_session(spark: SparkSession, tmp_path: Path, calls) -> None:
    from tests.test_memory_limit import graph_in_files

    for graph in (lotan.datasets.generate(60, 200, width=8, classes=3), graph_in_files(tmp_path)):
        calls.clear()
        with lotan.persisted(graph):
            first, second = fit(graph), fit(graph)
        assert calls == ["lay_out", "prepare", "close"]
        assert_same_bits(first, second)


def test_only_graphs_are_persisted():
    with pytest.raises(ConfigurationError, match="graph"), lotan.persisted("digits"):
        pass


def test_on_the_local_engine_nothing_changes():
    graph = lotan.datasets.generate(60, 200, width=8, classes=3)
    alone = fit(graph, engine="local", workers=None, partitions=None)
    with lotan.persisted(graph):
        assert_same_bits(alone, fit(graph, engine="local", workers=None, partitions=None))
