"""Work against a count by hand; seconds add up, overlap, and grow with what there is to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.compiler import Options
from planner.cost.counting import step_work
from planner.cost.seconds import Corrections, Pricing, epoch_seconds
from planner.cost.stages import beyond_memory
from planner.degrees import Degrees
from planner.layout import Layout
from planner.physical import Column, Plan
from planner.rates import Rates
from planner.shares import Crew
from planner.statistics import Profile, Statistics
from planner.steps.collect import CollectStep, GatherStep
from planner.steps.edge_step import EdgeStep
from planner.steps.edge_sum import EdgeSumStep
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.scaled_propagate import EdgeDotStep, ScaledPropagateStep
from planner.steps.step import Step
from planner.work import GROUPS, UNITS, Work
from tests.planner.engines import BLOCKS, LOCAL, ON_BLOCKS, ON_EDGES, SAMPLES, able
from tests.planner.specs import IN_PLACE, STATISTICS, attention, gcn, planned

LAYOUT = Layout(Crew(2, 2), 2, cores=2)
LARGE = Statistics(vertices=1_000_000, edges=10_000_000, width=8)


def gcn_plan(**options: int) -> Plan:
    """Two layers 8-16-3, transformed first: with no rule that moves or hoists."""
    return planned(gcn(**options), gcn(training=False, **options), Options(disabled=IN_PLACE)).plan


def work_of(kind: type, plan: Plan, number: int, engine: str = "local", layout: Layout = LAYOUT) -> Work:
    steps = [step for step in plan.train if isinstance(step, kind)]
    return step_work(steps[number], plan, STATISTICS, SAMPLES[engine], layout)


def test_a_sum_over_edges_is_counted():
    """600 edges with self-loops (500 + 100); 100 vertices; a column of 16 numbers."""
    found = work_of(PropagateStep, gcn_plan(), 0)
    assert found == Work(steps=1, edges=600, summed_numbers=600 * 16)


def test_a_column_larger_than_a_cache_is_read_from_memory():
    plan = gcn_plan()
    step = next(step for step in plan.train if isinstance(step, PropagateStep))
    found = step_work(step, plan, LARGE, LOCAL, LAYOUT)
    assert found.summed_numbers == 11_000_000 * 16
    assert found.far_numbers / (11_000_000 * 16) == pytest.approx(1 - (24 << 20) / (1_000_000 * 16 * 4))


@pytest.mark.parametrize("engine", SAMPLES)
def test_no_work_is_free_and_wider_sums_take_longer(engine):
    """In caches and beyond them."""
    rates = SAMPLES[engine].rates
    assert all(getattr(rates, unit) > 0 for unit in UNITS)
    step = next(step for step in gcn_plan().train if isinstance(step, PropagateStep))
    for statistics in (Statistics(5_000, 1_000_000, 8), Statistics(1_000_000, 10_000_000, 8)):
        seconds = []
        for width in (16, 64, 256, 1024):
            wider = replace(step, output=replace(step.output, shape=(width,)))
            work = step_work(wider, gcn_plan(), statistics, SAMPLES[engine], LAYOUT)
            seconds.append(sum(getattr(work, unit) * getattr(rates, unit) for unit in UNITS))
        fixed = sum(getattr(work, unit) * getattr(rates, unit) for unit in GROUPS["fixed"])
        assert seconds == sorted(seconds)
        assert seconds[-1] - fixed > 2 * (seconds[0] - fixed)


def test_forward_of_a_stage_is_counted():
    """linear 8 -> 16 and a scaling by a number a row, on 100 vertices; it makes a column of 16."""
    found = work_of(PipeStep, gcn_plan(), 0)
    assert found == Work(
        pipes=1, calls=2, piped_bytes=100 * 16 * 4, multiply_adds=100 * 8 * 16, product_numbers=100 * 24, numbers=1600
    )


def test_forward_draws_random_numbers_and_backward_computes_two_products():
    """The stage between the sums: scale, bias, relu, dropout at 16; linear 16 -> 3, scale at 3."""
    plan = gcn_plan()
    forward, backward = work_of(PipeStep, plan, 1), work_of(PipeStep, plan, 3)
    assert (forward.draws, forward.numbers, forward.multiply_adds) == (1600, 100 * (4 * 16 + 3), 100 * 48)
    assert (backward.draws, backward.numbers) == (0, 100 * (4 * 16 + 3))
    assert backward.multiply_adds == 2 * 100 * 48  # of its input and of its weight
    assert backward.parameter_numbers == 16 + 48
    assert backward.piped_bytes == 4 * 100 * (3 + 16)


def test_the_first_layers_backward_wants_no_gradient_of_the_features():
    assert work_of(PipeStep, gcn_plan(), -1).multiply_adds == 100 * 8 * 16


def test_each_partition_of_blocks_hands_in_gradients():
    many = replace(LAYOUT, partitions=8)
    assert work_of(PipeStep, gcn_plan(), 3, "blocks", many).parameter_numbers == 8 * 64
    assert work_of(PipeStep, gcn_plan(), 3, "blocks", many).pipes == 4  # two at a time


def test_gradients_of_parameters_are_piped_as_float64_where_workers_are_other_processes():
    plan = gcn_plan()
    for engine, size in (("local", 0), ("blocks", 8), ("rows", 8)):
        found = epoch_seconds(plan, STATISTICS, Pricing(SAMPLES[engine], LAYOUT))
        rows, numbers = (sum(getattr(work, of) for work in found.works) for of in ("piped_bytes", "parameter_numbers"))
        assert numbers
        assert found.moved("piped") == rows + size * numbers
        assert sum(step.piped_bytes for step in found.steps) == found.moved("piped")


@pytest.mark.parametrize("rule", [True, False])
def test_what_workers_cannot_keep_is_spilled_or_computed_again(rule):
    """The stage between the sums keeps 16 numbers a row, which go to a file; without keep_or_recompute they are made again."""
    off = (*IN_PLACE, *(() if rule else ("keep_or_recompute",)))
    plan = planned(gcn(), gcn(training=False), Options(disabled=off, pricing=ON_BLOCKS)).plan
    room, none = (work_of(PipeStep, plan, 3, "blocks", replace(LAYOUT, saved=saved)) for saved in (1 << 30, 0))
    assert room.spilled_bytes == 0
    again = Work(multiply_adds=100 * 48, product_numbers=100 * 19, numbers=100 * (4 * 16 + 3), draws=1600)
    assert none == room + (Work(spilled_bytes=100 * 4 * 16) if rule else again)


def test_attention_counts_edges():
    options = Options(pricing=ON_EDGES)
    plan = planned(attention(), options=options).plan
    total = sum((step_work(step, plan, STATISTICS, LOCAL, LAYOUT) for step in plan.train), Work())
    assert total.edge_values > 0
    assert total.scaled_numbers >= 2 * 500 * 3  # forward and backward, over 500 edges of 3 numbers


def test_what_is_read_out_of_order_counts_more():
    """Over 500 edges: a number of each, two runs of 4 numbers scaled, two products of runs of 4; by two calls each."""
    scalar, rows = Column("s", (1,)), Column("y", (8,))
    dot = EdgeDotStep(Column("d", (2,), edges="graph"), "graph", "features", "features")

    def work(step: Step) -> Work:
        return step_work(step, gcn_plan(), STATISTICS, LOCAL, LAYOUT)

    for_vertices = {end: work(EdgeSumStep(scalar, "graph", "e", end)) for end in ("destination", "source")}
    assert for_vertices["destination"] == Work(steps=1, calls=2, edges=500, edge_values=500)
    assert for_vertices["source"] == Work(steps=1, calls=2, edges=500, edge_values=4 * 500)
    for reverse, reads in ((False, 1), (True, 4)):
        found = work(ScaledPropagateStep(rows, "graph", "x", "e", 2, reverse))
        assert found == Work(steps=1, calls=2, edges=500, scaled_numbers=500 * 8, edge_values=reads * 500 * 2)
    assert work(dot) == Work(steps=1, calls=2, edges=500, scaled_numbers=2 * 500 * 8)


def test_workers_that_nobody_counts_keep_as_much_as_cores():
    elsewhere = replace(LAYOUT, crew=replace(LAYOUT.crew, workers=0))
    assert elsewhere.workers == LAYOUT.cores
    found = work_of(PipeStep, gcn_plan(), 3, "blocks", elsewhere)
    assert found == work_of(
        PipeStep, gcn_plan(), 3, "blocks", replace(LAYOUT, crew=replace(LAYOUT.crew, workers=LAYOUT.cores))
    )


PRUNING = Options(pricing=able("edge_columns"), disabled=("reuse_evaluation", *IN_PLACE))
FEW = replace(STATISTICS, training=2)


@pytest.mark.parametrize("engine", SAMPLES)
def test_pruned_steps_on_edges_cost_what_ends_within_their_level(engine):
    plan = planned(attention(dropout=True), options=PRUNING, statistics=FEW).plan
    on_edges = [step for step in plan.train if isinstance(step, EdgeStep)]
    assert {step.within for step in on_edges} == {0}
    for step in on_edges:
        part, whole = (step_work(one, plan, FEW, SAMPLES[engine], LAYOUT) for one in (step, replace(step, within=None)))
        share = FEW.edge_count(step.edges, step.within) / FEW.edge_count(step.edges)
        for unit in ("edges", "edge_values", "scaled_numbers", "draws"):
            assert getattr(part, unit) == pytest.approx(share * getattr(whole, unit))


@pytest.mark.parametrize("engine", SAMPLES)
def test_pruned_neighbourhoods_cost_the_rows_that_they_bring(engine):
    """Of two training vertices and their in-neighbours: 11 of 100 vertices, in one chunk or in one of each partition."""
    options = replace(PRUNING, disabled=(*PRUNING.disabled, "push_down_edges"))
    plan = planned(attention(), options=options, statistics=FEW).plan
    steps = [step for step in plan.train if isinstance(step, CollectStep | GatherStep) and step.within == 0]
    assert {type(step) for step in steps} == {CollectStep, GatherStep}
    for step in steps:
        part, whole = (step_work(one, plan, FEW, SAMPLES[engine], LAYOUT) for one in (step, replace(step, within=None)))
        assert part.collected_numbers == pytest.approx(0.11 * whole.collected_numbers)


@pytest.mark.parametrize("engine", SAMPLES)
def test_steps_add_up_to_the_epoch(engine):
    pricing = Pricing(SAMPLES[engine], LAYOUT)
    slower = epoch_seconds(gcn_plan(), STATISTICS, replace(pricing, corrections=Corrections(fixed=2.0)))
    found = epoch_seconds(gcn_plan(), STATISTICS, pricing)
    assert 2 * found.own == slower.own == pytest.approx(2 * SAMPLES[engine].rates.passes)
    assert slower.own + sum(step.seconds for step in slower.steps) == pytest.approx(slower.seconds)
    assert found.own + sum(step.seconds for step in found.steps) == pytest.approx(found.seconds)
    assert sum(found.groups.values()) == pytest.approx(found.seconds)


@pytest.mark.parametrize("engine", SAMPLES)
def test_more_edges_wider_layers_and_more_of_them_take_longer(engine):
    pricing = Pricing(SAMPLES[engine], LAYOUT)
    base = epoch_seconds(gcn_plan(), LARGE, pricing).seconds
    assert epoch_seconds(gcn_plan(), replace(LARGE, edges=20_000_000), pricing).seconds > base
    assert epoch_seconds(gcn_plan(hidden=32), LARGE, pricing).seconds > base
    assert epoch_seconds(gcn_plan(layers=3), LARGE, pricing).seconds > base


def test_tasks_and_workers_overlap():
    """Of 4 cores, the slower side sets the pace; of 1, all takes its turn."""
    rates = Rates(edges=1e-6, numbers=1e-6)
    plan = gcn_plan()
    found = {
        cores: epoch_seconds(plan, STATISTICS, Pricing(BLOCKS, replace(LAYOUT, cores=cores), rates)) for cores in (1, 4)
    }
    total = sum((step.work for step in found[1].steps), Work())
    graph, neural = total.edges * 1e-6, total.numbers * 1e-6
    assert found[1].seconds == pytest.approx(graph + neural)
    assert found[4].seconds == pytest.approx(max(graph, neural) / 2)


def test_corrections_scale_their_groups():
    pricing = Pricing(LOCAL, LAYOUT, LOCAL.rates)
    plain = epoch_seconds(gcn_plan(), LARGE, pricing)
    doubled = epoch_seconds(gcn_plan(), LARGE, replace(pricing, corrections=Corrections(graph=2.0)))
    assert doubled.seconds == pytest.approx(plain.seconds + plain.groups["graph"])
    assert doubled.groups == plain.groups  # what is compared with measurements is not corrected yet


def test_every_unit_has_a_group_and_a_rate():
    assert [unit for units in GROUPS.values() for unit in units] == list(UNITS)
    assert [*Rates.__dataclass_fields__] == list(UNITS)


def test_what_is_pruned_takes_no_memory_between_the_passes():
    """Ten of a million vertices are trained on: a worker of a megabyte keeps all that backward reads."""
    few, layout = replace(LARGE, training=10), replace(LAYOUT, saved=1 << 20)
    specs, off = (gcn(), gcn(training=False)), (*IN_PLACE, "reuse_evaluation")
    for disabled, all_fits in (((), True), (("prune_vertices",), False)):
        options = Options(disabled=(*off, *disabled))
        plan = planned(*specs, options, statistics=few).plan
        assert (beyond_memory(plan, few, BLOCKS, layout) == 0) == all_fits


def test_of_features_held_sparse_what_is_not_zero_counts():
    """Three times as much as in a dense product, and one in ten: 100 rows of 8 features, to 16."""
    known = replace(STATISTICS, profile=Profile(Degrees.even(100, 500), Degrees.even(100, 500), density=0.1))
    options = Options(disabled=IN_PLACE, pricing=able("sparse_rows"))
    plan = planned(gcn(), gcn(training=False), options, statistics=known).plan
    step = next(step for step in plan.train if isinstance(step, PipeStep))
    found = step_work(step, plan, known, LOCAL, LAYOUT)
    assert found.multiply_adds == pytest.approx(0.3 * 100 * 8 * 16)
