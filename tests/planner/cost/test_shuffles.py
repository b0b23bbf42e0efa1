"""Shuffles against a count by hand; against what Spark writes: tests/engines/blocks/test_shuffles.py."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from planner.compiler import Options
from planner.cost.seconds import Pricing, epoch_seconds
from planner.cost.shuffles import shuffled_bytes
from planner.degrees import Degrees
from planner.layout import Layout
from planner.physical import Column, Plan
from planner.shares import Crew
from planner.statistics import Profile, Statistics
from planner.steps.collect import CollectStep, GatherStep
from planner.steps.edge_expression import EdgeExpressionStep
from planner.steps.edge_sum import EdgeSumStep
from planner.steps.extreme import ExtremeGradientStep, ExtremeStep
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.scaled_propagate import EdgeDotStep, ScaledPropagateStep
from planner.steps.step import Step
from tests.planner.engines import BLOCKS, ON_EDGES
from tests.planner.specs import IN_PLACE, attention, gcn, planned

if TYPE_CHECKING:
    from collections.abc import Sequence

EDGES = Options(pricing=ON_EDGES)
LAYOUT = Layout(Crew(2, 2), 2, cores=2, shuffled=True)
ALIKE = Statistics(100, 500, 8, profile=Profile(Degrees((0, 0, 0, 100), (0, 0, 0, 500)), Degrees.even(100, 500), 1.0))
OTHERS = 1 - 0.5**5
"""Rows of a vertex of five edges that cross, of two partitions: one, unless all five end where they begin."""


def sent(steps: Sequence[Step], plan: Plan, statistics: Statistics = ALIKE, layout: Layout = LAYOUT) -> list[float]:
    return list(shuffled_bytes(steps, plan, statistics, layout))


def test_inside_one_jvm_sums_move_nothing():
    plan = planned(gcn()).plan
    alone, spread = (epoch_seconds(plan, ALIKE, Pricing(BLOCKS, replace(LAYOUT, shuffled=s))) for s in (False, True))
    assert alone.moved("shuffled") == 0 < spread.moved("shuffled")
    assert spread.moved("shuffled") == sum(sent(plan.train, plan))
    assert spread.seconds > alone.seconds


def test_a_sum_moves_a_row_for_each_source_in_another_partition():
    """16 numbers of 4 bytes, both ways; pipes of plain rows move nothing between partitions."""
    plan = planned(gcn(), gcn(training=False), Options(disabled=IN_PLACE)).plan
    for step, found in zip(plan.train, sent(plan.train, plan), strict=True):
        width = step.output.width if isinstance(step, PropagateStep) else 0
        assert found == pytest.approx(100 * OTHERS * width * 4)


def test_a_sum_in_turn_writes_a_column_and_reads_its_own_rows_and_those_of_others():
    plan = planned(gcn(), gcn(training=False), Options(disabled=IN_PLACE)).plan
    alone = replace(LAYOUT, shuffled=False)
    costs = [epoch_seconds(plan, ALIKE, Pricing(BLOCKS, replace(alone, in_turn=turn))) for turn in (False, True)]
    assert not any(work.filed_bytes for work in costs[0].works)
    for step, work in zip(plan.train, costs[1].works, strict=True):
        width = step.output.width if isinstance(step, PropagateStep) else 0
        assert work.filed_bytes == pytest.approx((1 + 1 + OTHERS) * 100 * width * 4)
    assert costs[1].seconds > costs[0].seconds


def test_one_partition_sends_nothing():
    plan = planned(gcn()).plan
    assert sum(sent(plan.train, plan, layout=replace(LAYOUT, partitions=1))) == 0


def test_a_column_that_several_steps_read_at_sources_comes_there_once():
    plan = planned(attention(), options=EDGES).plan
    reading = [step for step in plan.train if isinstance(step, ScaledPropagateStep) and not step.reverse]
    dots = [step for step in plan.train if isinstance(step, EdgeDotStep)]
    (first,), (dot,) = reading, dots
    assert dot.source == first.input
    both, alone = sent([first, dot], plan), sent([dot], plan)
    assert both == [*alone, 0.0]
    elsewhere = replace(dot, within=1)  # its edges end up to another level
    assert sent([first, elsewhere], plan) == pytest.approx([alone[0], alone[0]])


def test_sums_for_sources_move_and_those_for_destinations_do_not():
    plan = planned(attention(), options=EDGES).plan
    sums = [step for step in plan.train if isinstance(step, EdgeSumStep)]
    found = {step.end: cost for step, cost in zip(sums, sent(sums, plan), strict=True)}
    assert found["destination"] == 0
    assert found["source"] == pytest.approx(100 * OTHERS * 4 * sums[0].output.width)


@pytest.mark.parametrize("shuffled", [False, True])
def test_each_pipe_brings_what_is_collected_and_all_that_comes_back_is_sent(shuffled):
    """Also where all partitions lie in one JVM."""
    plan = planned(attention(), options=Options(disabled=("prune_vertices",))).plan
    layout = replace(LAYOUT, shuffled=shuffled)
    (collect,) = (step for step in plan.train if isinstance(step, CollectStep))
    width = sum(plan.columns[name].width for name in collect.columns)
    kinds = set()
    for step, cost in zip(plan.train, sent(plan.train, plan, layout=layout), strict=True):
        kinds.add(type(step))
        if isinstance(step, PipeStep):
            assert cost == pytest.approx(100 * OTHERS * 4 * width * bool(step.collections))
        elif isinstance(step, GatherStep):
            assert cost == pytest.approx(100 * (OTHERS + 1) * 4 * step.output.width)
        else:
            assert cost == 0
    assert kinds == {PipeStep, CollectStep, GatherStep}


def test_a_pipe_is_priced_without_the_step_that_collects_for_it():
    """As where a plan is compared with one that has some steps less."""
    plan = planned(attention(), options=Options(disabled=("prune_vertices",))).plan
    pipes = [step for step in plan.train if isinstance(step, PipeStep) and step.collections]
    assert sum(sent(pipes, plan)) > 0


def test_a_greatest_row_moves_rows_there_and_shares_back():
    x, out = Column("features", (8,), static=True), Column("made", (8,))
    plan = planned(gcn()).plan
    assert plan.columns["features"].width == x.width
    steps = [
        ExtremeStep(out, "graph", "features", "max"),
        ExtremeGradientStep(out, "graph", "features", "max", "made", "gradient"),
    ]
    assert sent(steps, plan) == pytest.approx([100 * 32 * OTHERS, 100 * 32 * (OTHERS + 1)])
    assert sent(steps[1:], plan) == pytest.approx([100 * 32 * (2 * OTHERS + 1)])


def test_an_expression_has_its_sources_brought():
    plan, scores = planned(gcn()).plan, Column("score", (8,), edges="graph")
    both = EdgeExpressionStep(scores, "graph", ("add", ("source", "features"), ("destination", "features")))
    one = EdgeExpressionStep(scores, "graph", ("neg", ("destination", "features")))
    assert sent([both, one], plan) == pytest.approx([100 * 32 * OTHERS, 0])


def test_pruned_sums_shuffle_the_rows_that_they_read():
    """Of two training vertices and their in-neighbours: 11 of 100 vertices."""
    few = Statistics(vertices=100, edges=500, width=8, training=2)
    plan = planned(gcn(), options=Options(disabled=(*IN_PLACE, "reuse_evaluation")), statistics=few).plan
    step = next(step for step in plan.train if isinstance(step, PropagateStep) and step.within == 0)
    (part,), (whole,) = (sent([one], plan, few) for one in (step, replace(step, within=None)))
    assert part == pytest.approx(0.11 * whole)
