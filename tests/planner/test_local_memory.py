"""Estimates of the local engine's memory against a walk over the steps, and against sums by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from lotan.engines.base import last_uses
from planner.compiler import Options, compile_plan
from planner.cost.seconds import Pricing
from planner.degrees import Degrees
from planner.estimate import row_bytes
from planner.footprint import footprint, held
from planner.layout import Layout
from planner.local_memory import edges_in_files, local_bytes, local_columns, reads_edges_in_parts
from planner.physical import Plan
from planner.statistics import Profile, Statistics
from planner.steps.edge_dropout import EdgeDropoutStep
from planner.steps.edge_sum import EdgeSumStep
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from tests.exactness.cases import EVERY, sample
from tests.exactness.steps import plan_of
from tests.planner.engines import LOCAL
from tests.planner.test_footprint import CREW, LARGE


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
