"""Memory of blocks against sums by hand: what steps make of their edges, once for each level that they are within."""

from __future__ import annotations

import pytest

from planner.physical import Column, Plan, Stage
from planner.spec import Call, EdgeSet, Ref, ValueType
from planner.statistics import Statistics
from planner.steps.edge_dropout import EdgeDropoutStep
from planner.steps.edge_sum import EdgeSumStep
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.step import Step
from planner.topology import EDGE_BYTES, TURNED_EDGE_BYTES, VERTEX_BYTES, made_on_use, topology

VERTICES, EDGES = 1000, 3000
STATISTICS = Statistics(VERTICES, EDGES, 8, training=100)
# Within a level: a vertex is not with the chance 0.9, nor is any of its three edges.
ROWS = {None: 1000, 0: 100, 1: 344}
OF_GRAPH = {None: 3000, 0: 300, 1: 1032}
OF_LOOPS = {None: 4000, 0: 400, 1: 1376}
STARTS = 4 * VERTICES  # one block has no halo


def plan(*steps: Step, stages: tuple[Stage, ...] = ()) -> Plan:
    return Plan(stages, steps, (), (), (), ())


def propagate(within: int | None, reverse: bool = True, edges: EdgeSet = "graph") -> PropagateStep:
    return PropagateStep("x", Column("y", (4,)), edges, reverse=reverse, within=within)


def edge_sum(within: int | None, edges: EdgeSet = "graph", name: str = "y") -> EdgeSumStep:
    return EdgeSumStep(Column(name, (4,), within=within), edges, "e", within=within)


def test_a_plan_that_reads_no_edges_but_in_sums_needs_what_blocks_have() -> None:
    steps = propagate(None), propagate(None, reverse=False), propagate(1, reverse=False)
    assert made_on_use(plan(*steps), STATISTICS, 1) == 0
    assert topology(plan(*steps), STATISTICS, 1) == VERTEX_BYTES * VERTICES + EDGE_BYTES * 4000


def test_edges_turned_round_are_held_beside_the_others() -> None:
    """With the vertices once more, and the order of their edges."""
    found = topology(plan(edge_sum(None, "reversed")), STATISTICS, 1)
    edges = (EDGE_BYTES + TURNED_EDGE_BYTES) * 4000
    assert found == 2 * VERTEX_BYTES * VERTICES + edges + 8 * OF_GRAPH[None] + STARTS


def test_a_transpose_for_each_level_of_a_reverse_sum() -> None:
    """A position for each edge, and where those of a source begin; however many steps share it."""
    steps = propagate(0), propagate(1), propagate(1), propagate(None)
    assert made_on_use(plan(*steps), STATISTICS, 1) == 4 * 300 + STARTS + 4 * 1032 + STARTS


@pytest.mark.parametrize("within", [0, 1])
def test_an_order_of_edges_for_each_level(within: int) -> None:
    """Two positions for each edge; within a level, a matrix of these edges besides."""
    every = 8 * OF_GRAPH[None] + STARTS
    some = (8 + 4) * OF_GRAPH[within] + 4 * ROWS[within] + STARTS
    assert made_on_use(plan(edge_sum(None)), STATISTICS, 1) == every
    assert made_on_use(plan(edge_sum(within)), STATISTICS, 1) == some
    assert (
        made_on_use(plan(edge_sum(None), edge_sum(within), edge_sum(within, name="z")), STATISTICS, 1) == every + some
    )


def test_self_loops_have_a_place_among_the_edges_of_an_order() -> None:
    loops = 4 * OF_LOOPS[None] + 4 * ROWS[None]
    assert made_on_use(plan(edge_sum(None, "self_loops")), STATISTICS, 1) == loops + 8 * OF_LOOPS[None] + STARTS


def test_weights_are_in_every_matrix() -> None:
    weighted = Statistics(VERTICES, EDGES, 8, weighted=True, training=100)
    assert made_on_use(plan(propagate(0)), weighted, 1) == 8 * OF_GRAPH[0] + STARTS


def test_dropout_of_edges_keeps_their_row_keys_and_the_order_of_all() -> None:
    step = EdgeDropoutStep(Column("y", (1,), edges="graph", within=0), "graph", "e", 0.5, 7, within=0)
    within = (8 + 4) * OF_GRAPH[0] + 4 * ROWS[0] + STARTS
    assert made_on_use(plan(step), STATISTICS, 1) == within + 8 * OF_GRAPH[None] + STARTS + 8 * OF_GRAPH[None]


@pytest.mark.parametrize("drawn", [False, True])
def test_neighbourhoods_for_each_level_of_a_stage_that_collects(drawn: bool) -> None:
    """Of each edge its position and its source's, with its row key if the stage draws on edges."""
    on_edge = ValueType("edge", (4,), edges="graph")
    calls = (Call("d", "lotan.dropout", (Ref("m"), 0.5, 7), on_edge),) if drawn else ()
    stage = Stage("train.0", (), (), calls, (), edge_sets=("graph",))
    steps = [PipeStep("train.0", "forward", (), (), (), (), within=within) for within in (0, 1, 1)]
    each = sum((4 + 4 + (8 if drawn else 0)) * OF_GRAPH[within] + 4 * ROWS[within] for within in (0, 1))
    order = 8 * OF_GRAPH[None] + STARTS if drawn else 0
    assert made_on_use(plan(*steps, stages=(stage,)), STATISTICS, 1) == each + order


def test_sources_are_there_once_for_each_block_that_reads_them() -> None:
    """Where blocks are many, a vertex is in the halo of nearly as many as it has out-edges."""
    one, many = (made_on_use(plan(propagate(0)), STATISTICS, partitions) for partitions in (1, 1000))
    assert one + 2.9 * STARTS < many <= one + 3 * STARTS
