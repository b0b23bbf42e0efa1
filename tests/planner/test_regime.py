"""What the planner knows of batches: the hops of a model, the sizes of a batch, and the plan of one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lotan.batches.examples import batches_of_epoch, examples_of
from lotan.batches.sampler import Sampler
from lotan.datasets import generate
from lotan.engines.choice import ENGINES
from lotan.stages.randomness import Randomness
from planner import Options, compile_plan
from planner.cost.seconds import Pricing
from planner.loss import LossSpec
from planner.regime import Sampling, hops, hops_of_plan, statistics_of_batch
from tests.exactness.cases import EVERY, OUT, sample, specs

HOPS = {
    "MLP": 0,
    "branches": 1,
    "GCN, three layers, jumping": 3,
    "residual": 3,
    "own layer": 1,
    "twins": 1,
    "shared layer": 3,
    "hops": 3,
}


@pytest.mark.parametrize("name", EVERY)
def test_hops_of_a_model(name: str) -> None:
    one = {"GAT, four heads, averaged", "arithmetic on edges", "arithmetic of features"}
    expected = 4 if name == "hops" else HOPS.get(name, 1 if name in one else 2)
    assert hops(specs(name)[0]) == expected


def batch_plan(name: str, fanouts: tuple, **options):
    graph = sample(seed=3).graph
    known = replace(graph.statistics)
    sampling = Sampling(4, fanouts, 6)
    given = Options(sampling=sampling, pricing=Pricing(ENGINES["local"]), **options)
    return compile_plan(*specs(name), LossSpec("classification", OUT, 4.0), statistics_of_batch(known, sampling), given)


def test_the_plan_of_a_batch_trains_within_levels_and_does_not_evaluate() -> None:
    planned = batch_plan("GCN", (3, 3))
    assert not planned.plan.evaluate
    assert not planned.plan.predict
    assert planned.firings["reuse_evaluation"] == planned.firings["hoist_invariant"] == 0
    assert {step.within for step in planned.plan.train} <= {None, 0, 1}
    assert hops_of_plan(planned.plan) == 2
    assert planned.plan.targets == "train"


def test_sums_of_all_in_edges_are_computed_once_and_spare_a_hop() -> None:
    planned = batch_plan("GCN", ("all", "all"))
    assert planned.firings["hoist_invariant"] == 1
    assert hops_of_plan(planned.plan) == 1


def test_the_plan_on_the_whole_graph_evaluates_and_does_not_train() -> None:
    graph = sample(seed=3).graph
    given = Options(sampling=Sampling(4, (3, 3), 6), pricing=Pricing(ENGINES["local"]))
    plan = compile_plan(*specs("GCN"), LossSpec("classification", OUT, 4.0), graph.statistics, given).plan
    assert not plan.train
    assert not plan.reuses_evaluation
    assert plan.evaluate
    assert plan.predict


@pytest.mark.parametrize("fanouts", [(5, 5), (10, 10, 10), ("all", 3)])
def test_sizes_of_batches_are_foreseen(fanouts: tuple) -> None:
    graph = generate(vertices=4000, edges=40_000, width=8, classes=4)
    arrays = graph.arrays()
    sampling = Sampling(64, fanouts, len(examples_of(arrays)))
    expected = statistics_of_batch(graph.statistics, sampling)
    targets = batches_of_epoch(examples_of(arrays), arrays.keys, 64, Randomness(0, 1))
    sampler = Sampler(arrays)
    drawn = [sampler.sample(each, fanouts, Randomness(0, 1, batch=b)) for b, each in enumerate(targets[:-1][:10])]
    for level, (rows, _) in enumerate(expected.sampled):
        assert rows == pytest.approx(np.mean([one.counts[level] for one in drawn]), rel=0.35)
    assert expected.edges == pytest.approx(np.mean([len(one.edges) for one in drawn]), rel=0.35)
