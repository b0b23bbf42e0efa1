"""Where hoist_invariant fires, and where it must not."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from planner.explain.rules import rule_facts
from planner.statistics import Statistics
from planner.steps.propagate import PropagateStep
from tests.planner.specs import FEATURES, STATISTICS, SpecWriter, gcn, hops, planned

LARGE = Statistics(vertices=20_000, edges=200_000, width=9050)


def test_hoist_invariant_sums_the_features_once_also_behind_a_wider_map():
    plan = planned(gcn()).plan
    assert [column.shape for column in plan.hoisted] == [(8,)]
    assert sum(isinstance(step, PropagateStep) for step in plan.prepare) == 1
    assert sum(isinstance(step, PropagateStep) for step in plan.train) == 2  # the last layer's, there and back
    assert plan.lasting == {"hoisted_1", "gcn_scale@self_loops", "label", "split"}


@pytest.mark.parametrize("outputs", [3, 20])
def test_hoist_invariant_leaves_nothing_of_the_graph_in_an_epoch_of_sgc(outputs):
    plan = planned(hops(3, outputs=outputs), outputs=outputs).plan
    assert len(plan.prepare) == 3
    assert len(plan.hoisted) == 1
    assert [step.mode for step in plan.train] == ["turn"]
    assert [step.mode for step in plan.evaluate] == ["evaluate"]


def test_hoist_invariant_keeps_each_of_several_hops_that_are_read():
    w = SpecWriter()
    once = w.aggregate(w.scatter(FEATURES, "source", 8), 8)
    twice = w.aggregate(w.scatter(once, "source", 8), 8)
    joined = w.vertex("cat.default", (once, twice), -1, width=16)
    plan = planned(w.spec(w.linear(w.vertex("relu.default", joined, width=16), "lin", 16, 3))).plan
    assert [column.width for column in plan.hoisted] == [16]
    apart = w.vertex("add.Tensor", w.linear(once, "a", 8, 20), w.linear(twice, "b", 8, 20), width=20)
    plan = planned(w.spec(apart), outputs=20).plan
    assert [column.width for column in plan.hoisted] == [8, 8]
    assert sum(isinstance(step, PropagateStep) for step in plan.prepare) == 2
    assert not any(isinstance(step, PropagateStep) for step in plan.train)


def test_hoist_invariant_has_one_column_for_a_sum_of_two_layers():
    w = SpecWriter()
    sums = []
    for layer in ("one", "two"):
        w.layer = layer
        sums.append(w.linear(w.aggregate(w.scatter(FEATURES, "source", 8), 8), layer, 8, 20))
    plan = planned(w.spec(w.vertex("add.Tensor", *sums, width=20)), outputs=20).plan
    assert len(plan.hoisted) == len(plan.prepare) == 1


def test_hoist_invariant_must_not_fire_behind_random_numbers():
    def noisy(training):
        w = SpecWriter()
        x = w.vertex("dropout.default", FEATURES, 0.5, True, width=8) if training else FEATURES
        return w.spec(w.linear(w.aggregate(w.scatter(x, "source", 8), 8), "lin", 8, 20))

    plan = planned(noisy(True), noisy(False), outputs=20).plan
    assert plan.hoisted == ()
    assert plan.prepare == ()


def test_hoist_invariant_does_not_widen_a_sum_that_epochs_would_not_repay():
    """CoauthorCS has 6,805 features. To sum these once takes longer than to sum 64 numbers in both passes of 50 epochs."""
    wide = Statistics(vertices=18_333, edges=163_788, width=6805)
    plan = planned(hops(1, width=6805, outputs=64), outputs=64, statistics=wide).plan
    assert plan.hoisted == ()
    assert [step.output.width for step in plan.train if isinstance(step, PropagateStep)] == [64, 64]
    few = replace(wide, vertices=1000, edges=2000)  # whose rows stay in the processors' caches
    plan = planned(hops(1, width=6805, outputs=64), outputs=64, statistics=few).plan
    assert [column.width for column in plan.hoisted] == [6805]


def test_hoist_invariant_says_what_the_first_sums_depend_on():
    def reasons(x, evaluation=None, statistics=STATISTICS):
        found = planned(x, evaluation or x, statistics=statistics)
        (fact,) = [fact for fact in rule_facts(found) if fact["name"] == "hoist_invariant"]
        assert fact["enabled"]
        assert not fact["fired"]
        return fact["declined"]

    def two_layers(training):
        w = SpecWriter()
        w.layer = "convs.0"
        x = w.vertex("dropout.default", FEATURES, 0.5, True, width=8) if training else FEATURES
        h = w.vertex("relu.default", w.aggregate(w.scatter(x, "source", 8), 8), width=8)
        w.layer = "convs.1"
        return w.spec(w.linear(w.aggregate(w.scatter(h, "source", 8), 8), "lin", 8, 3))

    assert reasons(two_layers(True), two_layers(False)) == [
        "layer convs.0: what it sums over edges comes after a dropout, which draws anew in every epoch"
    ]
    w = SpecWriter()
    w.layer = "convs.0"
    mapped = w.vertex("relu.default", w.linear(FEATURES, "lin", 8, 3), width=3)
    assert reasons(w.spec(w.aggregate(w.scatter(mapped, "source", 3), 3))) == [
        "layer convs.0: what it sums over edges depends on lin, which every epoch changes"
    ]
    w = SpecWriter(width=9050)
    w.layer = "convs.0"
    mapped = w.linear(FEATURES, "lin", 9050, 3)
    (reason,) = reasons(w.spec(w.aggregate(w.scatter(mapped, "source", 3), 3)), statistics=LARGE)
    assert re.fullmatch(
        "layer convs.0: before its linear map, what it sums over edges is the same in every epoch, but 9,050 numbers wide in "
        r"place of 3: to sum it once is estimated to take as long as \d+ epochs of the narrower sums; it is held if 50 epochs "
        "repay it",
        reason,
    )
    w = SpecWriter()
    assert reasons(w.spec(w.linear(FEATURES, "lin", 8, 3))) == ["no sum over edges is the same in every epoch"]
