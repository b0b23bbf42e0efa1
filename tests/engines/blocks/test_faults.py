"""What goes wrong while blocks are trained, and what two engines do to each other, changes no bit of the weights."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch
from pyspark.sql import SparkSession

import lotan
from lotan.engines.base import Pass, run
from lotan.engines.blocks.engine import BlocksEngine
from lotan.engines.blocks.settings import BlocksSettings
from lotan.engines.choice import ENGINES
from lotan.errors import ConfigurationError
from lotan.hosts.jar import JAR
from lotan.hosts.session import Session, SessionSettings
from lotan.training.learner import weights_of
from planner import Options, compile_plan
from planner.cost.seconds import Pricing
from planner.steps.pipe import PipeStep
from tests.engines.blocks.faults import FailingTasks, Place, at_commit, kill
from tests.engines.test_rows_engine import Job, dropout_gcn, two_epochs, wait_for
from tests.tracing.hetero_models import made, messy_data
from tests.tracing.test_pyg_layers import messy_graph
from tests.tracing.test_reversed_edges import Attention
from tests.training.test_learned_rows import Embedded, drawn

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar"),
]

FORWARD, TURN, BACKWARD = Place("train.0", "forward"), Place("train.1", "turn"), Place("train.0", "backward")


def gcn() -> Job:
    return Job(dropout_gcn(0.5), Options())


def on_blocks(spark: SparkSession, session: Session, job: Job, **settings: object) -> BlocksEngine:
    assert session.link is not None
    engine = BlocksEngine(
        spark, session.link, session.endpoint, BlocksSettings(**({"partitions": 3, "chunk_rows": 4} | settings))
    )
    engine.load(job.graph, job.planned.plan)
    return engine


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, workers: Session) -> list[bytes]:
    """Weights after two epochs."""
    with closing(on_blocks(spark, workers, gcn())) as engine:
        return two_epochs(gcn(), engine)


@pytest.mark.nightly
def test_an_engine_that_is_closed_leaves_another_one_alone(
    spark: SparkSession, workers: Session, undisturbed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a pass of the other, which is not tried again."""
    job = gcn()
    with (
        closing(on_blocks(spark, workers, job, attempts=1)) as engine,
        closing(on_blocks(spark, workers, job)) as other,
    ):
        assert two_epochs(job, other) == undisturbed
        closed = at_commit(monkeypatch, FORWARD, other.close)
        assert two_epochs(job, engine) == undisturbed
    assert closed.is_set()


@pytest.mark.chaos
def test_tasks_that_fail_change_no_bit(
    spark: SparkSession,
    workers: Session,
    undisturbed: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """On `local[2]`, where Spark tries nothing again: each fault costs one attempt of the first pass, and there are three."""
    failing = FailingTasks(spark, (FORWARD, BACKWARD), tmp_path)
    monkeypatch.setattr("lotan.engines.blocks.engine.facade", lambda _: failing)
    with closing(on_blocks(spark, workers, gcn(), attempts=3)) as engine:
        assert two_epochs(gcn(), engine) == undisturbed
    assert failing.happened


@pytest.mark.chaos
def test_killed_workers_and_a_killed_router_change_no_bit(
    spark: SparkSession, undisturbed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker in forward, the Router in the turn, and all workers in backward of the next epoch."""
    with Session(SessionSettings(workers=2)) as session:
        living = lambda: sorted(session.worker_processes.values())  # noqa: E731
        one, all_of_them = living()[:1], []
        (router,) = [child.process for child in session._children if not child.is_worker]

        def kill_all() -> None:
            all_of_them.extend(living())
            kill(all_of_them)

        first = at_commit(monkeypatch, FORWARD, lambda: kill(one))
        second = at_commit(monkeypatch, TURN, router.kill)
        third = at_commit(monkeypatch, BACKWARD, kill_all, number=3)  # the first pass prepares
        with closing(on_blocks(spark, session, gcn())) as engine:
            assert two_epochs(gcn(), engine) == undisturbed
        assert all(happened.is_set() for happened in (first, second, third))
        wait_for(lambda: len(living()) == 2)
        assert not {*one, *all_of_them} & set(living())


def test_blocks_that_no_array_would_hold(
    spark: SparkSession, workers: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before anything starts where the partitions were asked for; else there are more of them."""
    monkeypatch.setattr("lotan.engines.blocks.sizes.LARGEST", 400)
    job = gcn()
    with pytest.raises(ConfigurationError, match=r"partitions is 3: .* in each, and a block holds at most 400 B"):
        on_blocks(spark, workers, job)
    with closing(on_blocks(spark, workers, job, partitions=None)) as engine:
        assert engine._graph.blocks.blocks().getNumPartitions() > 3


def of_relations() -> lotan.Trainer:
    """A model of several types of vertices and of edges."""
    return lotan.Trainer(made("HeteroConv"), lotan.HeteroGraph.from_pyg(messy_data()), engine="local")


def of_turned_edges() -> lotan.Trainer:
    """A model that compares and maps what it reads along edges turned round."""
    torch.manual_seed(0)
    return lotan.Trainer(Attention(), messy_graph(), engine="local")


def of_learned_rows() -> lotan.Trainer:
    """A model whose rows come from this process in every pass, and whose gradient goes back to it."""
    torch.manual_seed(0)
    return lotan.Trainer(Embedded(), drawn(1).graph, engine="local")


@pytest.mark.chaos
@pytest.mark.nightly
@pytest.mark.parametrize("make", [of_relations, of_turned_edges, of_learned_rows])
def test_workers_killed_on_other_edge_sets_change_no_bit(
    make: Callable[[], lotan.Trainer], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker in forward, and all of them in backward."""
    trainer = make()
    model, job = trainer.model, trainer.job
    options = Options(pricing=Pricing(ENGINES["blocks"]))
    plan = compile_plan(job.train, job.evaluate, job.loss, job.statistics, options).plan
    forward, backward = (
        next(Place(step.stage, step.mode) for step in plan.train if isinstance(step, PipeStep) and step.mode == mode)
        for mode in ("forward", "backward")
    )
    settings = BlocksSettings(partitions=3, chunk_rows=8)
    with Session(SessionSettings(workers=2)) as session:
        assert session.link is not None

        def gradients(number: int) -> dict[str, bytes]:
            assert session.link is not None
            with closing(BlocksEngine(spark, session.link, session.endpoint, settings)) as engine:
                engine.load(job.graph, plan)
                found = run(engine, plan, plan.train, Pass(number, weights_of(model), seed=0)).gradients
            return {name: value.numpy().tobytes() for name, value in found.items()}

        expected = gradients(1)
        first = at_commit(monkeypatch, forward, lambda: kill(sorted(session.worker_processes.values())[:1]))
        second = at_commit(monkeypatch, backward, lambda: kill(sorted(session.worker_processes.values())))
        assert gradients(1) == expected
        assert first.is_set()
        assert second.is_set()
