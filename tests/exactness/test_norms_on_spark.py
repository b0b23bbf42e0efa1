"""Layers that normalise over all vertices, on Spark: as on local, and with the same bits in each run."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch

import lotan
from lotan.engines.base import Outcome, Pass, run
from lotan.engines.blocks.engine import BlocksEngine
from lotan.engines.blocks.settings import BlocksSettings
from lotan.engines.choice import ENGINES
from lotan.engines.local.engine import LocalEngine
from lotan.engines.rows.engine import RowsEngine, RowsSettings
from lotan.hosts.jar import JAR
from lotan.planning.job import Job
from lotan.training.learner import weights_of
from planner import Options, Planned, compile_plan
from planner.cost.seconds import Pricing
from tests.engines.blocks.faults import FailingTasks, Place
from tests.exactness.norms import FUNCTIONS, NORMS, Sample, model_of, sample, truth
from tests.exactness.test_norms import (
    EPOCHS,
    NormalisedFeatures,
    assert_equals_truth,
    assert_same_bits,
    state_of,
    trained,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar"),
]


def planned_for(engine: str, job: Job) -> Planned:
    """A plan of the job's model for an engine."""
    options = Options(pricing=Pricing(ENGINES[engine]))
    return compile_plan(job.train, job.evaluate, job.loss, job.statistics, options)


def assert_close(one: Outcome, other: Outcome) -> None:
    """Gradients, the sums for running statistics among them, and statistics."""
    assert one.gradients.keys() == other.gradients.keys()
    for name, gradient in one.gradients.items():
        scale = float(other.gradients[name].abs().max()) + 0.1  # biases before a norm have none
        assert torch.allclose(gradient, other.gradients[name].to(gradient), atol=2e-5 * scale, rtol=2e-5), name
    for found, expected in ((one.statistics, other.statistics), (one.evaluation, other.evaluation)):
        assert (found is None) == (expected is None)
        if found is not None:
            assert found.ravel().tolist() == pytest.approx(expected.ravel().tolist(), rel=1e-5)


USUAL = ("BatchNorm1d",)
"""Statistics that are kept, by day."""
OTHERS = [pytest.param(name, marks=pytest.mark.nightly) for name in (*NORMS, *FUNCTIONS) if name not in USUAL]


def assert_equals_local(name, kind, engine):
    """The same as `assert_pass_equals_local`, for a layer that normalises."""
    drawn: Sample = sample(seed=len(name), share=0.6 if len(name) % 2 else 0.05)
    assert_pass_equals_local(model_of(name), drawn.graph, kind, engine)


def assert_pass_equals_local(model, graph, kind, engine):
    """Compare a training pass that also evaluates with that of the local engine, and with itself run again."""
    job = lotan.Trainer(model, graph, engine="local").job
    a_pass = Pass(1, weights_of(model), seed=0)
    with closing(engine), closing(LocalEngine(chunk_rows=8)) as local:
        plan = planned_for("local", job).plan
        local.load(job.graph, plan)
        expected = run(local, plan, plan.training(True), a_pass)
        plan = planned_for(kind, job).plan
        engine.load(job.graph, plan)
        outcomes = [run(engine, plan, plan.training(True), a_pass) for _ in range(2)]
    assert_close(outcomes[0], expected)
    assert_same_bits(dict(outcomes[0].gradients), dict(outcomes[1].gradients))


@pytest.mark.parametrize("name", [*USUAL, *OTHERS])
def test_equals_local(spark, workers, name):
    settings = BlocksSettings(partitions=1 + len(name) % 4, chunk_rows=8, shuffled=bool(len(name) % 2))
    assert_equals_local(name, "blocks", BlocksEngine(spark, workers.link, workers.endpoint, settings))


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["BatchNorm1d", "PairNorm", "products", "sum", "variance"])
def test_rows_equal_local(spark, workers, name):
    settings = RowsSettings(partitions=1 + len(name) % 3, chunk_rows=8)
    assert_equals_local(name, "rows", RowsEngine(spark, workers.link, workers.endpoint, settings))


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ["blocks", "rows"])
def test_trains_as_plain_torch(spark, engine):
    drawn, model = sample(seed=3, share=0.2), model_of("BatchNorm1d, mean of all steps")
    ours, found = trained(model, drawn, engine=engine, partitions=3)
    assert_equals_truth(ours, found, truth(model, drawn, EPOCHS))


@pytest.mark.nightly
def test_statistics_that_are_computed_once(spark):
    drawn, model = sample(seed=4), NormalisedFeatures()
    ours, found = trained(model, drawn, engine="blocks", partitions=2)
    assert_equals_truth(ours, found, truth(model, drawn, EPOCHS))
    again, _ = trained(model, drawn, engine="blocks", partitions=2)
    assert_same_bits(state_of(ours), state_of(again))


@pytest.mark.chaos
def test_tasks_that_fail_change_no_bit(spark, workers, monkeypatch, tmp_path):
    """A task of the stage that normalises fails in forward and in backward, after it has put out the gradient of the total."""
    drawn, model = sample(seed=6), model_of("BatchNorm1d")
    job = lotan.Trainer(model, drawn.graph, engine="local").job
    plan, a_pass = planned_for("blocks", job).plan, Pass(1, weights_of(model_of("BatchNorm1d")), seed=0)

    def gradients(**settings):
        given = BlocksSettings(partitions=3, chunk_rows=8, **settings)
        with closing(BlocksEngine(spark, workers.link, workers.endpoint, given)) as engine:
            engine.load(job.graph, plan)
            return dict(run(engine, plan, plan.train, a_pass).gradients)

    expected = gradients()
    failing = FailingTasks(spark, (Place("train.1", "forward"), Place("train.1", "backward")), tmp_path)
    monkeypatch.setattr("lotan.engines.blocks.engine.facade", lambda _: failing)
    assert_same_bits(gradients(attempts=3), expected)
    assert failing.happened
