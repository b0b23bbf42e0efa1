"""What engine "auto" means: local where it fits, blocks in Spark where they can, else rows, and the reason in words."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

import lotan
from lotan.engines import choice
from lotan.engines.blocks import obstacles
from lotan.errors import ConfigurationError
from lotan.hosts import jar
from lotan.planning import cost_cache
from lotan.planning.prepare import plan_for
from lotan.tracing.trace import trace_modes
from planner.explain.formats import explain
from planner.loss import LossSpec
from planner.rates import Rates
from planner.statistics import Statistics


class Session:
    """Of a Spark session, what the choice looks at: `version` is that of its jar."""

    def __init__(self, version: object) -> None:
        self._jvm = self.lotan = self.Facade = self.sparkSession = self.sparkContext = self
        self.master = "local[2]"
        self.version = version


WITH_JAR, OTHER_JAR = Session(lambda: lotan.__version__), Session(lambda: "0.0.1")
WITHOUT_JAR = Session("what is no class cannot be called")


@pytest.fixture(autouse=True)
def built(tmp_path, monkeypatch):
    """A jar that is there, and no active session."""
    monkeypatch.setattr(jar, "JAR", tmp_path / "lotan.hosts.jar")
    jar.JAR.touch()
    monkeypatch.setattr(obstacles, "active_session", lambda: None)


@dataclass
class Graph:
    """Of a graph, what the choice looks at."""

    session: Session | None  # in which it lives; None: in memory
    statistics: Statistics = field(default_factory=lambda: Statistics(vertices=4, edges=2, width=3))

    @property
    def origin(self) -> str:
        return "memory" if self.session is None else "spark"

    on_connect = False

    def estimate(self) -> Statistics:
        return self.statistics

    def tables(self) -> tuple[Session | None, Session | None]:
        return self.session, self.session


SMALL = Statistics(vertices=4, edges=2, width=3)


class Learned(torch.nn.Module):
    """A GCN over learned rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.encoder = lotan.nn.LearnedFeatures(3), lotan.nn.GCN(3, 4, 2, 2)

    def forward(self, x: torch.Tensor, graph: lotan.nn.EdgeIndex) -> torch.Tensor:
        return self.encoder(self.rows(graph), graph)


def chosen(
    session: Session | None = None, statistics: Statistics = SMALL, learned: bool = False, **options: Any
) -> choice.EngineChoice:
    """The engine for a GCN with these settings; explain has the reason."""
    model = Learned() if learned else lotan.nn.GCN(3, 4, 2, 2)
    train, evaluate = trace_modes(model, 3)
    loss, config = LossSpec("classification", 2, 1.0), lotan.TrainerConfig(**options)
    engine, planned, _ = plan_for(train, evaluate, loss, Graph(session, statistics), config)
    said = " ".join(explain(planned).split())  # whose lines are short
    assert engine.reason in said
    assert json.loads(explain(planned, "json"))["free_bytes"] == engine.free_bytes
    assert ("choose_physical fired 1x: blocks, for speed" in said) == engine.for_speed
    return engine


def test_a_graph_in_memory_is_trained_there_if_it_fits(monkeypatch):
    assert chosen().name == "local"
    monkeypatch.setattr(choice, "free_memory", lambda: 100)
    engine = chosen()
    assert engine.name == "blocks"
    assert engine.reason.startswith("training does not fit in memory: about ")


def test_free_memory_is_in_the_data_and_not_in_words_that_would_change_from_second_to_second(monkeypatch):
    reasons = set()
    for free in (50 << 30, 60 << 30):
        monkeypatch.setattr(choice, "free_memory", lambda free=free: free)
        engine = chosen()
        reasons.add(engine.reason)
        assert engine.free_bytes == free
    assert len(reasons) == 1


def test_blocks_where_the_session_has_the_jar():
    engine = chosen(WITH_JAR)
    assert engine.name == "blocks"
    assert re.fullmatch(r"the graph is in Spark; [\d.]+ m?s estimated for an epoch with its evaluation", engine.reason)


def test_learned_rows_are_trained_on_blocks_or_else_on_local(monkeypatch):
    assert chosen(learned=True).name == "local"
    assert chosen(WITH_JAR, learned=True).name == "blocks"
    without = chosen(WITHOUT_JAR, learned=True)
    assert without.name == "local"
    assert re.match(r"the graph is in Spark; not blocks, because .*; not rows, which have no learned", without.reason)
    monkeypatch.setattr(choice, "free_memory", lambda: 100)
    assert chosen(learned=True).name == "blocks"


def rates(**seconds: float) -> cost_cache.Known:
    """A machine on which every engine takes the same for all but what is named: an edge, by engine."""
    return cost_cache.Known(
        {name: Rates(passes=1e-3, edges=seconds.get(name, 0.0)) for name in ("local", "blocks", "rows")}
    )


def test_the_engine_of_least_seconds_among_those_that_can(monkeypatch):
    """Two edges, or four with self-loops: local would take four seconds more, for each of two sums and their backward."""
    monkeypatch.setattr(cost_cache, "load", lambda: rates(local=1.0))
    engine = chosen(epochs=100)
    assert engine.name == "blocks"
    assert re.fullmatch(r"on local, [\d.]+ s estimated for an epoch with its evaluation, on blocks 1 ms", engine.reason)
    assert chosen(epochs=1).name == "local"  # Spark would take longer to start
    assert chosen(epochs=100, rgb=False).name == "local"  # which blocks cannot
    monkeypatch.setattr(cost_cache, "load", lambda: rates(blocks=1.0))
    assert chosen(epochs=100).name == "local"


BATCHES = {"regime": lotan.MiniBatch(2, (2, 2))}


@pytest.mark.parametrize("options", [BATCHES, {"task": "link"}], ids=["mini-batches", "links"])
def test_mini_batches_and_links_of_a_graph_that_does_not_fit_run_on_blocks(options, monkeypatch):
    config, in_spark = lotan.TrainerConfig(**options), Graph(WITH_JAR)
    assert choice.settled_for(config, in_spark).engine == "local"
    monkeypatch.setattr(choice, "free_memory", lambda: 100)
    found = choice.settled_for(config, in_spark)
    assert found.engine == "blocks"
    reason = choice.choose_engine(found, in_spark, {}, {}).reason
    assert reason == "the graph does not fit into this process, where local would read it"
    kept = [(config, Graph(None)), (config, Graph(WITHOUT_JAR)), (replace(config, engine="local"), in_spark)]
    assert [choice.settled_for(*one).engine for one in kept] == ["local"] * 3


def test_batches_that_are_read_from_a_disk_stay_on_local(monkeypatch):
    monkeypatch.setattr(choice, "free_memory", lambda: 100)
    regime = lotan.MiniBatch(2, (), order="comet(partitions=16, buffer=4, groups=8)")
    config = lotan.TrainerConfig(regime=regime, task=lotan.LinkPrediction())
    assert choice.settled_for(config, Graph(WITH_JAR)).engine == "local"


@pytest.mark.parametrize(("session", "words"), [(WITHOUT_JAR, "has no lotan jar"), (OTHER_JAR, "version 0.0.1")])
def test_rows_where_it_has_not_and_the_line_that_adds_it(session, words):
    engine = chosen(session)
    assert engine.name == "rows"
    assert engine.reason.startswith("the graph is in Spark; not blocks, because ")
    assert words in engine.reason
    assert f".config('spark.jars', '{jar.JAR}')" in engine.reason


def test_rows_where_the_jar_is_not_built(monkeypatch):
    jar.JAR.unlink()
    monkeypatch.setattr(choice, "free_memory", lambda: 100)
    engine = chosen()
    assert engine.name == "rows"
    assert "make jar" in engine.reason


@pytest.mark.parametrize(
    ("options", "words"), [({"rgb": False}, "--no-rgb"), ({"propagate": "messages"}, "--propagate")]
)
def test_rows_for_what_blocks_cannot_do(options, words):
    engine = chosen(WITH_JAR, **options)
    assert engine.name == "rows"
    assert words in engine.reason


WIDE = Statistics(vertices=1_000_000, edges=1_000_000, width=1000)  # features of which the model reads three


def test_a_memory_limit_moves_the_choice_to_what_fits_and_refuses_what_nothing_does():
    assert chosen(memory_limit="4g", workers=1).name == "local"
    engine = chosen(statistics=WIDE, memory_limit="6g", workers=1, partitions=16)
    assert engine.name == "blocks"
    assert engine.reason.startswith("the memory limit is 6.0 GiB, and local needs about ")
    with pytest.raises(ConfigurationError, match=r"memory_limit is 1024m, .*local .*, rows .*, blocks .*: give \d+m"):
        chosen(statistics=WIDE, memory_limit="1g")


def test_blocks_too_large_for_an_array_are_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr("lotan.engines.blocks.sizes.LARGEST", 20)
    words = (
        r"partitions is 2: the column '\w+' would be 24 B in each, and a block holds at most 20 B; give at least 3 part"
    )
    with pytest.raises(ConfigurationError, match=words):
        chosen(WITH_JAR, partitions=2)
    assert chosen(WITH_JAR).name == "blocks"  # with as many as are needed


def test_rows_that_nobody_asked_for_are_said_before_a_run():
    (line,) = choice.slow_choice(chosen(WITHOUT_JAR), lotan.TrainerConfig())
    assert "has no lotan jar" in line
    for options in ({"engine": "rows"}, {"rgb": False}, {"propagate": "messages"}):
        assert choice.slow_choice(chosen(WITHOUT_JAR, **options), lotan.TrainerConfig(**options)) == ()
    assert choice.slow_choice(chosen(WITH_JAR), lotan.TrainerConfig()) == ()
