"""Estimated memory against sums by hand and by brute force; shares of a limit add up to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from lotan.engines.base import last_uses
from lotan.stages.program import StageProgram
from planner.compiler import Options, compile_plan
from planner.cost import Pricing
from planner.degrees import Degrees
from planner.estimate import column_bytes, row_bytes
from planner.footprint import (
    alive_bytes,
    edges_in_files,
    footprint,
    held,
    in_hand,
    local_bytes,
    local_columns,
    reads_edges_in_parts,
    saved_row_bytes,
)
from planner.layout import Layout
from planner.physical import Plan
from planner.shares import LEAST_HEAP, MIB, Crew, divide, fixed_bytes, least_limit
from planner.statistics import Profile, Statistics
from planner.steps.edge_dropout import EdgeDropoutStep
from planner.steps.edge_sum import EdgeSumStep
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.step import Step
from planner.topology import topology
from tests.exactness.cases import EVERY, sample
from tests.exactness.steps import plan_of
from tests.planner.engines import BLOCKS, LOCAL, SAMPLES
from tests.stages.test_flat import MODELS, stages_of

LARGE = Statistics(vertices=1_000_000, edges=10_000_000, width=128)
CREW = Crew(workers=2, tasks=2)


def plans() -> dict[str, Plan]:
    """Of every model of the exactness tests, as the blocks engine runs it."""
    options = Options(pricing=Pricing(BLOCKS))
    return {name: plan_of(name, sample(3, weighted=EVERY[name].weights), options).plan for name in EVERY}


def brute_force(plan: Plan, statistics: Statistics) -> int:
    """Walks over the steps as the local engine does, and counts by size what there is after each: sums are made when read."""
    static = {column.name: statistics.vertices * row_bytes(column) for column in (*plan.static_columns, *plan.hoisted)}
    lent: Counter[int] = Counter()
    for steps in plan.passes:
        made = {c.name: c for step in steps for c in step.columns_made}
        rows = {name: statistics.rows_within(column.within) for name, column in made.items() if column.edges is None}
        size = {name: count * row_bytes(made[name]) for name, count in rows.items()}
        sums = {step.output.name: step.input for step in steps if isinstance(step, PropagateStep)}
        kept = [column.name for column in plan.hoisted] if steps is plan.prepare else []
        alive: set[str] = set()
        for step, gone in zip(steps, last_uses(steps, kept), strict=True):
            alive |= {column.name for column in step.columns_made}
            lent |= Counter(
                size[name] for name in {sums.get(name, name) for name in alive} - static.keys() if name in size
            )
            alive -= set(gone)
    return sum(size * count for size, count in lent.items()) + sum(static.values())


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GIN"])
@pytest.mark.parametrize("training", [None, 1_000])
def test_columns_on_local_are_what_a_walk_over_the_steps_finds(name: str, training: int | None) -> None:
    graph = replace(LARGE, training=training)
    plan = compile_plan(*plan_of(name, sample(3), Options()).given, graph).plan
    pruned = any(column.within is not None for step in plan.train for column in step.columns_made)
    assert pruned == (training is not None)
    assert local_columns(plan, graph) == brute_force(plan, graph)
    assert held(plan, graph) <= local_columns(plan, graph)


def test_sparse_features_are_held_for_each_level_up_to_which_stages_read_them() -> None:
    even = Degrees.even(LARGE.vertices, LARGE.edges)
    graph = replace(LARGE, training=1_000, profile=Profile(even, even, density=0.01))
    given = plan_of("GraphSAGE", sample(3), Options()).given
    sparse, dense = (
        compile_plan(*given, graph, Options(pricing=Pricing(LOCAL), disabled=disabled)).plan
        for disabled in ((), ("hold_sparse",))
    )
    read = {s.within for t in sparse.passes for s in t if isinstance(s, PipeStep) and "features" in s.inputs}
    assert len(read) > 1
    more = local_bytes(sparse, graph, Layout(CREW, 2)) - local_bytes(dense, graph, Layout(CREW, 2))
    assert more == pytest.approx(16 * 0.01 * graph.width * sum(map(graph.rows_within, read)), abs=8)


@pytest.mark.parametrize("name", MODELS)
def test_what_a_stage_keeps_is_what_its_kernels_keep(name: str) -> None:
    for stage in stages_of(name):
        if stage.name.startswith("train"):
            body = StageProgram(stage)._body
            kept = sum(4 * body.widths[slot] for slot in body.kept.values())
            assert kept == saved_row_bytes(stage)


def test_more_partitions_and_fewer_tasks_have_less_in_hand() -> None:
    plan = plans()["GCN"]
    few, many = (in_hand(plan, LARGE, Layout(CREW, partitions)) for partitions in (2, 16))
    assert many < few
    assert in_hand(plan, LARGE, Layout(Crew(1, 1), 16)) <= many
    assert many > topology(plan, LARGE, 16) + LARGE.vertices * 4  # a propagate reads a whole column


@pytest.mark.parametrize("engine", ["local", "blocks", "rows"])
def test_estimates_grow_with_the_graph(engine: str) -> None:
    for name, plan in plans().items():
        layout = Layout(Crew(2, 2, spark_python=engine == "rows"), 16)
        small, large = (footprint(SAMPLES[engine], plan, of, layout) for of in (Statistics(100, 300, 4), LARGE))
        assert small.least <= large.least, name
        assert small.peak <= large.peak, name
    layout = Layout(CREW, 2)
    local = footprint(SAMPLES["local"], plans()["GCN"], LARGE, layout)
    # a limit is to hold for every model
    assert local.in_memory > local.peak > local_bytes(plans()["GCN"], LARGE, layout)


def test_files_hold_on_local_what_grows_with_the_layers() -> None:
    layout = Layout(CREW, 2)
    each = (plans()[name] for name in ("GCN", "GCN, three layers, jumping"))
    shallow, deep = (footprint(SAMPLES["local"], plan, LARGE, layout) for plan in each)
    assert deep.least - shallow.least < (deep.in_memory - shallow.in_memory) / 10
    assert deep.on_disk > shallow.on_disk > 0
    assert deep.spills(deep.in_memory - 1)
    assert not deep.spills(deep.in_memory)
    assert not deep.spills(None)


def test_the_least_limit_of_blocks_is_that_of_their_least_heap() -> None:
    """Columns that have no room in the heap go to the disk; what tasks have in hand does not."""
    layout = Layout(CREW, partitions=200)
    found = footprint(BLOCKS, plans()["GCN"], LARGE, layout)
    assert found.least == least_limit(found.least_heap, CREW, layout.saved)
    assert found.least_heap > in_hand(plans()["GCN"], LARGE, layout)


def test_what_is_small_is_estimated_as_little_more_than_the_processes() -> None:
    """Neither shared memory nor heaps are counted in full where nothing is there to fill them."""
    plan, small = plans()["GCN"], Statistics(100, 300, 4)
    for engine in ("blocks", "rows"):
        crew = Crew(2, 2, spark_python=engine == "rows")
        beside = footprint(SAMPLES[engine], plan, small, Layout(crew, 2)).peak - fixed_bytes(crew)
        assert 0 < beside < LEAST_HEAP


def test_workers_that_may_keep_nothing_keep_nothing_between_forward_and_backward() -> None:
    plan = plans()["GIN"]
    none, some, any_ = (
        footprint(SAMPLES["blocks"], plan, LARGE, Layout(CREW, 16, saved)).peak for saved in (0, MIB, None)
    )
    assert some - none == CREW.workers * MIB
    assert any_ > some


@pytest.mark.parametrize("saved", [None, 0, 100 * MIB])
@pytest.mark.parametrize("crew", [Crew(1, 1), Crew(2, 2), Crew(4, 2), Crew(2, 4, spark_python=True), Crew(0, 2)])
def test_shares_add_up_to_the_limit(crew: Crew, saved: int | None) -> None:
    for limit in (6 << 30, 50 << 30):
        shares = divide(limit, crew, saved)
        each = shares.saved + shares.kept
        total = fixed_bytes(crew) + shares.heap + crew.workers * each + crew.tasks * shares.shared
        assert total <= limit
        if crew.workers and saved is None:
            assert total > limit - 8 * MIB


@pytest.mark.parametrize("heap", [0, LEAST_HEAP, 3000 * MIB])
def test_the_least_limit_is_the_least(heap: int) -> None:
    least = least_limit(heap, CREW)
    assert divide(least, CREW).heap >= max(heap, LEAST_HEAP)
    assert divide(least - 2 * MIB, CREW).heap < heap or heap <= LEAST_HEAP


def there(plan: Plan, steps: Sequence[Step], place: int) -> set[str]:
    """The columns that are there while a step runs: a sum over edges is what it is of until somebody reads it."""
    held = {column.name for column in plan.hoisted} if steps is plan.prepare else set()
    made = (step for step in steps if isinstance(step, PropagateStep))
    sums = {step.output.name: step.input for step in made if step.output.name not in held}
    found = set()
    for born, step in enumerate(steps[: place + 1]):
        for name in set(step.makes) - sums.keys():
            readers = {
                at: isinstance(later, PipeStep | PropagateStep)
                for at, later in enumerate(steps)
                if name in {sums.get(read, read) for read in later.reads}
            }
            if born == place or name in held or (readers and (max(readers) >= place or not readers[max(readers)])):
                found.add(name)
    return found


@pytest.mark.parametrize("name", sorted(EVERY))
@pytest.mark.parametrize("graph", [LARGE, replace(LARGE, training=1_000)])
def test_what_is_there_while_a_step_runs(name: str, graph: Statistics) -> None:
    options = Options(pricing=Pricing(BLOCKS))
    plan = compile_plan(*plan_of(name, sample(3, weighted=EVERY[name].weights), options).given, graph, options).plan
    for steps in plan.passes:
        made = (column for step in steps for column in step.columns_made)
        columns = {c.name: c for c in (*plan.static_columns, *plan.hoisted, *made)}
        static = {c.name for c in plan.static_columns} if steps is plan.prepare else plan.lasting
        expected = [
            sum(column_bytes(columns[n], graph) for n in (there(plan, steps, place) & columns.keys()) | static)
            for place in range(len(steps))
        ]
        assert alive_bytes(plan, steps, graph) == expected


def evaluating(name: str) -> Plan:
    """Return a plan that evaluates a model and does not train it."""
    plan = plan_of(name, sample(3, weighted=EVERY[name].weights), Options(pricing=Pricing(LOCAL))).plan
    return replace(plan, train=(), train_and_evaluate=())


def test_edges_in_files_are_read_a_part_at_a_time_unless_a_step_needs_all() -> None:
    """Of a GCN with fixed features, the first sum is computed once, before the evaluations."""
    weighted = evaluating("GCN")
    assert EVERY["GCN"].weights
    assert reads_edges_in_parts(weighted)
    first = [step for step in weighted.prepare if isinstance(step, PropagateStep)]
    of_relation = tuple(replace(step, edges="graph:0") for step in first)
    assert of_relation
    assert not reads_edges_in_parts(replace(weighted, prepare=of_relation))
    attention = evaluating("GAT")
    assert reads_edges_in_parts(attention)
    dropped = EdgeDropoutStep(attention.evaluate[0].columns_made[0], "graph", "x", 0.5, 0)
    assert not reads_edges_in_parts(replace(attention, evaluate=(dropped,)))
    of_sources = EdgeSumStep(attention.evaluate[0].columns_made[0], "graph", "x", "source")
    assert not reads_edges_in_parts(replace(attention, evaluate=(of_sources,)))
    of_edges = replace(attention.stages[0], edge_sets=("graph",))
    assert reads_edges_in_parts(replace(attention, stages=(of_edges,)))
    few = replace(of_edges, outputs=tuple(replace(output, few=True) for output in of_edges.outputs))
    for stage in (few, replace(of_edges, edge_sets=("graph:0",))):
        assert not reads_edges_in_parts(replace(attention, stages=(stage,)))


@pytest.mark.parametrize("name", ["GCN", "GAT"])
def test_an_evaluation_of_edges_in_files_needs_no_more_memory_for_more_edges(name: str) -> None:
    plan = evaluating(name)
    few, many = (replace(LARGE, in_files=True, edges=edges, profile=None) for edges in (20_000_000, 40_000_000))

    def least(plan: Plan, statistics: Statistics) -> int:
        return footprint(LOCAL, plan, statistics, Layout(CREW, 2)).least

    assert edges_in_files(plan, few)
    assert least(plan, few) == pytest.approx(least(plan, many), abs=100)
    assert not edges_in_files(plan, replace(few, in_files=False))
    planned = plan_of(name, sample(3, weighted=EVERY[name].weights), Options(pricing=Pricing(LOCAL))).plan
    assert not edges_in_files(planned, few)
    assert least(planned, few) < least(planned, many)  # a pass that trains holds both directions' matrices
