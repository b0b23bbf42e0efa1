"""Few training vertices: what is computed on the vertices that they depend on alone equals plain autograd's on all."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lotan.engines.base import Pass, run
from lotan.engines.choice import ENGINES
from lotan.engines.local.engine import LocalEngine
from lotan.graph.graph import Graph
from planner import Options, compile_plan
from planner.cost.seconds import Pricing
from planner.loss import LossSpec
from tests.exactness.cases import EVERY, OUT, Sample, models, named, sample, trained_on
from tests.exactness.dropping import DROPPING, dropping
from tests.exactness.steps import OPTIONS, assert_equal, assert_equals_truth, plan_of, spread, tensors, train

pytestmark = pytest.mark.thorough

KEPT = ("reuse_evaluation",)  # off: a training pass that evaluates needs all vertices
LOCAL = Pricing(ENGINES["local"])
PRUNED = {
    "auto": Options(pricing=LOCAL, disabled=KEPT),
    "collecting": Options(disabled=KEPT),
    "naive backward": Options(rgb=False, disabled=("push_down", *KEPT)),
    "every gradient": Options(pricing=LOCAL, disabled=("drop_dead_gradients", "hoist_invariant", *KEPT)),
    "every operator by itself": Options(pricing=LOCAL, disabled=("fuse_apply", "commute_linear", *KEPT)),
}


def sparse(seed: int, weighted: bool, rows: list[int]) -> Sample:
    """24 vertices, less than an edge each: several levels hold few enough of them."""
    return trained_on(sample(seed, vertices=24, edges=20, weighted=weighted), rows)


def check(name: str, options: str, drawn: Sample, seed: int) -> None:
    ours, truth = models(name, seed)
    planned = plan_of(name, drawn, PRUNED[options])
    assert any(step.within is not None for step in planned.plan.train)
    with closing(LocalEngine(chunk_rows=5)) as engine:
        assert_equals_truth(train(engine, planned, ours, drawn), name, truth, drawn)


OTHERS = [options for options in PRUNED if options != "auto"]


@pytest.mark.parametrize(("name", "options"), [*spread(EVERY, ["auto"], each=1), *spread(EVERY, OTHERS, each=1)])
def test_equals_autograd(name, options):
    drawn = sparse(3, EVERY[name].weights, [0, 9])  # a hub, and one of others
    check(name, options, drawn, seed=3)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(EVERY)),
    seed=st.integers(0, 10_000),
    rows=st.sets(st.integers(0, 23), min_size=1, max_size=3),
    options=st.sampled_from(sorted(PRUNED)),
)
def test_equals_autograd_wherever_training_vertices_are(name, seed, rows, options):
    check(name, options, sparse(seed, EVERY[name].weights, sorted(rows)), seed)


@pytest.mark.parametrize("name", ["GCN, three layers, jumping", "GAT", "GraphSAGE, max", "own layer"])
def test_training_vertices_that_depend_on_no_others(name):
    """Isolated, or with edges that lead away from them: every level has the same vertices."""
    drawn = sparse(4, EVERY[name].weights, [22, 23])
    assert not np.isin(drawn.graph.arrays().dst, [22, 23]).any()
    check(name, "auto", drawn, seed=4)


def test_strings_as_ids():
    drawn = sparse(5, True, [3])
    check("GCN", "auto", replace(drawn, graph=named(drawn.graph)), seed=5)


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_draws_the_numbers_that_it_draws_on_all_vertices(name):
    drawn, results = sparse(6, False, [0, 7]), []
    loss = LossSpec("classification", OUT, 2.0)
    for disabled in ((), ("prune_vertices",), ()):
        options = Options(disabled=disabled, pricing=LOCAL)
        planned = compile_plan(*dropping(name), loss, drawn.graph.statistics, options)
        torch.manual_seed(0)
        with closing(LocalEngine(chunk_rows=5)) as engine:
            results.append(train(engine, planned, DROPPING[name](), drawn))
    assert_equal(results[0], results[1])
    assert len(set(results[0].losses)) == 3
    again = tensors(results[2])
    assert all(torch.equal(one, again[key]) for key, one in tensors(results[0]).items())


def of_all_splits(drawn: Sample, rows: list[int], more: int) -> Sample:
    """The same graph with one more vertex in a split, and no others than those in training."""
    split = np.full_like(drawn.split, -1)
    split[rows], split[more] = 0, 1
    given = drawn.graph.arrays()
    graph = Graph.from_arrays(given.features, given.src, given.dst, given.label, split, given.weight)
    return replace(drawn, graph=graph, split=split)


def evaluated(name: str, options: Options, drawn: Sample, seed: int) -> np.ndarray:
    """What an evaluation of the first weights counts."""
    plan = plan_of(name, drawn, options).plan
    parameters = {key: value.detach() for key, value in models(name, seed)[0].state_dict().items()}
    with closing(LocalEngine(chunk_rows=5)) as engine:
        engine.load(drawn.graph, plan)
        return run(engine, plan, plan.evaluate, Pass(0, parameters)).evaluation


@pytest.mark.parametrize("reused", [False, True])
@pytest.mark.parametrize("name", EVERY)
def test_training_and_evaluation_on_what_the_vertices_of_all_splits_depend_on(name, reused):
    """Where few more are evaluated than trained; also where one pass does for both."""
    drawn = of_all_splits(sample(8, vertices=24, edges=20, weighted=EVERY[name].weights), [0, 9], more=5)
    options = Options(pricing=LOCAL, disabled=() if reused else KEPT)
    (ours, truth), planned = models(name, 8), plan_of(name, drawn, options)
    assert planned.plan.targets == "split"
    assert all(any(step.within is not None for step in steps) for steps in (planned.plan.train, planned.plan.evaluate))
    with closing(LocalEngine(chunk_rows=5)) as engine:
        assert_equals_truth(train(engine, planned, ours, drawn), name, truth, drawn)
    whole = evaluated(name, Options(pricing=LOCAL, disabled=("prune_vertices",)), drawn, 8)
    np.testing.assert_allclose(evaluated(name, options, drawn, 8), whole, rtol=1e-5)


def test_predictions_have_the_graphs_own_order():
    """A pruned plan's layout has vertices by level; who reads a column sees none of it."""
    drawn, found = sparse(7, True, [11]), []
    for options in (PRUNED["auto"], OPTIONS["auto"]):
        plan = plan_of("GCN", drawn, options).plan
        parameters = {name: value.detach() for name, value in models("GCN", 7)[0].state_dict().items()}
        with closing(LocalEngine()) as engine:
            engine.load(drawn.graph, plan)
            columns = run(engine, plan, plan.predict, Pass(0, parameters), keep=("output",)).columns
            found.append(engine.read(columns["output"]))
    pruned, whole = found
    assert list(pruned["id"]) == list(whole["id"])
    np.testing.assert_allclose(np.stack(pruned["values"]), np.stack(whole["values"]), rtol=1e-5, atol=1e-6)
