"""Every model on Spark rows with real workers: loss, gradients and weights after two steps equal plain autograd's.

A fixed spread: each model once, and between them every kind of plan and 1 to 5 partitions. Then with few training vertices,
so that layers are computed on some vertices alone: models of each kind, and random ones.
"""

from __future__ import annotations

from contextlib import closing
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from lotan.engines.base import Engine, Pass, run
from lotan.engines.choice import ENGINES
from lotan.engines.local.engine import LocalEngine
from lotan.engines.rows.engine import RowsEngine, RowsSettings
from lotan.hosts.session import Session
from planner import Options, Planned, compile_plan
from planner.cost.seconds import Pricing
from planner.loss import LossSpec
from planner.steps.collect import CollectStep
from planner.steps.pipe import PipeStep
from tests.exactness import steps
from tests.exactness.cases import CASES, OUT, Sample, Trained, models, named, sample, trained_on
from tests.exactness.dropping import DROPPING, dropping
from tests.exactness.steps import OPTIONS, assert_equal, assert_equals_truth, plan_of, tensors
from tests.exactness.test_pruning import KEPT, evaluated, of_all_splits
from tests.exactness.test_random_models import TOLERANCE, by_autograd, drawn_model, graph_of, specs_of
from tests.night import at_night

pytestmark = pytest.mark.spark

ROWS = {name: replace(options, pricing=Pricing(ENGINES["rows"])) for name, options in OPTIONS.items()}

SPREAD = [
    ("GCN", "auto", 3),
    ("GCN", "no drop_unit_weight", 2),
    ("GCN, three layers, jumping", "no hoist_invariant", 1),
    ("GraphSAGE", "no drop_dead_gradients", 4),
    ("GraphSAGE, max", "auto", 2),
    ("GraphSAGE, sum, projected", "naive backward", 3),
    ("GIN", "no push_down", 5),
    ("GAT", "auto", 3),
    ("GAT", "general, naive backward", 2),
    ("MLP", "no fuse_apply", 2),
    ("residual", "general", 1),
    ("branches", "no lift_message", 2),
    ("shared layer", "auto", 5),
    ("twins", "general", 2),
    ("own layer", "general", 3),
    ("hops", "no commute_linear", 2),
]
SPREAD_BY_DAY = [
    ("GCN", "auto", 3),
    ("GraphSAGE, max", "auto", 2),
]
"""Sums, extremes, attention and collected neighbours."""


def rows(spark, workers: Session, partitions: int, chunk_rows: int = 4) -> closing[RowsEngine]:
    settings = RowsSettings(partitions=partitions, chunk_rows=chunk_rows)
    return closing(RowsEngine(spark, workers.link, workers.endpoint, settings))


def train(engine: Engine, planned: Planned, model: torch.nn.Module, drawn: Sample) -> Trained:
    """Two steps: of each, Spark plans the joins anew, which takes seconds."""
    return steps.train(engine, planned, model, drawn, steps=2)


def test_the_spread_covers_all_models_plans_and_partition_counts():
    assert {name for name, _, _ in SPREAD} == set(CASES)
    assert {options for _, options, _ in SPREAD} == set(OPTIONS)
    assert {partitions for _, _, partitions in SPREAD} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(("name", "options", "partitions"), at_night(SPREAD, unless=SPREAD_BY_DAY))
def test_equals_autograd(name, options, partitions, spark, workers):
    drawn = sample(seed=partitions, vertices=20, edges=50, weighted=CASES[name].weights, directed=partitions % 2 == 0)
    ours, truth = models(name, seed=partitions)
    with rows(spark, workers, partitions) as engine:
        found = train(engine, plan_of(name, drawn, ROWS[options]), ours, drawn)
    assert_equals_truth(found, name, truth, drawn)


# --- few training vertices ------------------------------------------------------------------------------------------

PRUNING = {
    "auto": replace(ROWS["auto"], disabled=KEPT),
    "collecting": replace(ROWS["auto"], disabled=("push_down", *KEPT)),
    "naive backward": replace(ROWS["auto"], rgb=False, disabled=("push_down", *KEPT)),
    "every gradient": replace(ROWS["auto"], disabled=("drop_dead_gradients", "hoist_invariant", *KEPT)),
}
"""A training pass that evaluates needs all vertices."""

EMPTY = 7  # partitions, some of them without a vertex of the first level
PRUNED = [
    ("GCN", "auto", EMPTY),
    ("GCN, three layers, jumping", "auto", 2),
    ("GraphSAGE", "collecting", 2),
    ("GraphSAGE, max", "auto", EMPTY),
    ("GIN", "every gradient", 1),
    ("GAT", "auto", 3),
    ("GAT", "naive backward", 2),
    ("residual", "auto", 3),
    ("own layer", "auto", EMPTY),
    ("hops", "auto", 2),
]


def few(name: str, partitions: int, training: list[int]) -> Sample:
    """24 vertices with less than an edge each: several levels are pruned. Ids are strings where there are two partitions."""
    drawn = trained_on(sample(partitions, 24, 20, weighted=CASES[name].weights), training)
    return replace(drawn, graph=named(drawn.graph)) if partitions == 2 else drawn


def pruned(name: str, drawn: Sample, options: str = "auto") -> Planned:
    planned = plan_of(name, drawn, PRUNING[options])
    assert any(step.within is not None for step in planned.plan.train)
    return planned


def test_the_pruned_spread_covers_all_plans():
    assert {options for _, options, _ in PRUNED} == set(PRUNING)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "options", "partitions"), PRUNED)
def test_few_training_vertices_whose_dependencies_alone_are_computed(name, options, partitions, spark, workers):
    drawn = few(name, partitions, [0, 9])
    ours, truth = models(name, seed=partitions)
    with rows(spark, workers, partitions) as engine:
        found = train(engine, pruned(name, drawn, options), ours, drawn)
        tables = engine._loaded.tables
        assert partitions < EMPTY or len(tables.occupied(0)) < len(tables.occupied())
    assert_equals_truth(found, name, truth, drawn)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "partitions"), [("GCN", 2), ("GAT", 3)])
def test_training_vertices_that_depend_on_no_others(name, partitions, spark, workers):
    """Isolated, or with edges that lead away from them: every level has the same vertices."""
    drawn = few(name, partitions, [22, 23])
    assert not np.isin(drawn.edge_index[1], [22, 23]).any()
    ours, truth = models(name, seed=4)
    with rows(spark, workers, partitions) as engine:
        found = train(engine, pruned(name, drawn), ours, drawn)
    assert_equals_truth(found, name, truth, drawn)


@pytest.mark.nightly
def test_a_pruned_plan_has_the_same_bits_every_time(spark, workers):
    name, results = "branches", []
    drawn = few(name, 3, [0, 9])
    for _ in range(2):
        with rows(spark, workers, 3) as engine:
            results.append(tensors(train(engine, pruned(name, drawn), models(name, seed=3)[0], drawn)))
    assert all(torch.equal(value, results[1][key]) for key, value in results[0].items())


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["GCN", "GAT"])
def test_dropout_draws_the_numbers_that_it_draws_on_all_vertices(name, spark, workers):
    drawn = few(name, 3, [0, 7])
    loss = LossSpec("classification", OUT, 2.0)
    model, results = DROPPING[name](), []
    whole = Options(pricing=Pricing(ENGINES["local"]), disabled=("prune_vertices",))
    for options in (ROWS["auto"], whole):
        planned = compile_plan(*dropping(name), loss, drawn.graph.statistics, options)
        assert any(step.within is not None for step in planned.plan.train) == (options is not whole)
        engine = closing(LocalEngine()) if options is whole else rows(spark, workers, 3)
        with engine as opened:
            results.append(train(opened, planned, deepcopy(model), drawn))
    assert_equal(*results)
    assert len(set(results[0].losses)) == 2


EVALUATED = [("GCN, three layers, jumping", True), ("GAT", False)]


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "reused"), EVALUATED)
def test_training_and_evaluation_on_what_the_vertices_of_all_splits_depend_on(name, reused, spark, workers):
    """Where few more are evaluated than trained; also where one pass does for both."""
    drawn = of_all_splits(sample(8, vertices=24, edges=20, weighted=CASES[name].weights), [0, 9], more=5)
    options = replace(ROWS["auto"], disabled=() if reused else KEPT)
    (ours, truth), planned = models(name, 8), plan_of(name, drawn, options)
    plan, parameters = planned.plan, {key: value.detach().clone() for key, value in ours.state_dict().items()}
    assert plan.targets == "split"
    assert all(any(step.within is not None for step in one) for one in (plan.train, plan.evaluate))
    with rows(spark, workers, 3) as engine:
        assert_equals_truth(train(engine, planned, ours, drawn), name, truth, drawn)
        counted = run(engine, plan, plan.evaluate, Pass(0, parameters)).evaluation
    whole = Options(pricing=Pricing(ENGINES["local"]), disabled=("prune_vertices",))
    np.testing.assert_allclose(counted, evaluated(name, whole, drawn, 8), rtol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["GCN", "own layer"])
def test_passes_on_all_vertices_between_pruned_ones(name, spark, workers):
    """Workers hold columns and edges by chunk: evaluation wants whole chunks of those that training cuts."""
    drawn = few(name, 2, [0, 9])
    ours, (planned, whole) = models(name, 2)[0], (pruned(name, drawn), plan_of(name, drawn, ROWS["auto"]))
    a_pass = Pass(0, {key: value.detach() for key, value in ours.state_dict().items()})
    plan = planned.plan
    with closing(LocalEngine()) as oracle:
        oracle.load(drawn.graph, whole.plan)
        expected = run(oracle, whole.plan, whole.plan.evaluate, a_pass).evaluation
        logits = oracle.read(run(oracle, whole.plan, whole.plan.predict, a_pass, keep=("output",)).columns["output"])
    with rows(spark, workers, 2) as engine:
        engine.load(drawn.graph, plan)
        gradients = []
        for _ in range(2):
            gradients.append(run(engine, plan, plan.train, a_pass).gradients)
            np.testing.assert_allclose(run(engine, plan, plan.evaluate, a_pass).evaluation, expected, rtol=1e-5)
        kept = run(engine, plan, plan.predict, a_pass, keep=("output",)).columns["output"]
        found = {row["id"]: row["values"] for row in engine.read(kept).collect()}
        engine.release(kept)
    assert all(torch.equal(gradient, gradients[1][key]) for key, gradient in gradients[0].items())
    values = np.array([found[identifier] for identifier in drawn.graph.arrays().ids.tolist()])
    np.testing.assert_allclose(values, np.stack(logits["values"]), rtol=1e-5, atol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize(("seed", "partitions"), at_night([(13, EMPTY), (75, 2)], unless=[(13, EMPTY)]))
def test_random_models_with_few_training_vertices(seed, partitions, spark, workers):
    """Sums and collected neighbourhoods, up to five levels of them."""
    drawn, model = graph_of(seed), drawn_model(seed, False, False)
    loss = LossSpec("classification", OUT, float((drawn.split == 0).sum()))
    planned = compile_plan(*specs_of(seed, False), loss, drawn.graph.statistics, PRUNING["auto"])
    levels = {step.within for step in planned.plan.train if isinstance(step, PipeStep | CollectStep)}
    assert {0, 1} <= levels
    with rows(spark, workers, partitions) as engine:
        found = steps.train(engine, planned, model, drawn)
    # Of training alone: evaluation is not pruned here.
    truth, rounded = (replace(by_autograd(seed, drawn, stirred), evaluated={}) for stirred in (False, True))
    assert_equal(found, truth, TOLERANCE, rounded=[rounded])
