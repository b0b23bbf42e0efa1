"""Estimates the memory that a graph takes in blocks, without its columns.

A block makes further structures of its edges on first use and holds them as long as it lives: orders of edge columns,
transposes and neighbourhoods. It makes each of them once for every level of a step that uses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from planner.edge_sets import has_added_loops, relation_of
from planner.physical import Plan
from planner.spec import EdgeSet, edges_of_column
from planner.statistics import Statistics
from planner.steps.edge_dropout import EdgeDropoutStep
from planner.steps.edge_step import EdgeStep
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.step import Step
from planner.turning import reversed_sets

EDGE_BYTES = 24  # bytes of an edge: both directions of both edge sets, and its part of the halo
TURNED_EDGE_BYTES = 16  # the same of edges turned round, in their own direction only
VERTEX_BYTES = 40  # bytes of a vertex: id, row key, places
POSITION_BYTES = 4  # bytes of the position of a row, of an edge, or of a row's first edge; also of a weight
KEY_BYTES = 8  # bytes of an edge's row key
DATA_COPIES = 3  # copies of edges' attributes and types: with each of the two edge sets, and in chunks
TURNED_DATA_COPIES = 2  # the copies beside them if edges are turned round too

Scope = tuple[EdgeSet, int | None]
"""An edge set, and the level up to which its edges end; None: all edges."""


def topology(plan: Plan, statistics: Statistics, partitions: int) -> int:
    """Return the bytes of all blocks, including the structures that a plan's steps make them build.

    Args:
        plan: The plan.
        statistics: The statistics of the graph.
        partitions: The number of blocks.
    """
    turns = bool(reversed_sets(plan))  # the vertices and edges are held a second time
    edges = max(statistics.edge_count("graph"), statistics.edge_count("self_loops"))
    of_edge = EDGE_BYTES + TURNED_EDGE_BYTES * turns
    first = (1 + turns) * VERTEX_BYTES * statistics.vertices + of_edge * edges
    return first + data_bytes(plan, statistics) + made_on_use(plan, statistics, partitions)


def data_bytes(plan: Plan, statistics: Statistics) -> int:
    """Return the bytes of edges' columns in both edge sets, and in chunks; 0 if no stage reads any.

    One more number an edge tells whether it is a self-loop.
    """
    read = relations_of(plan) or any(stage.edge_columns(edges) for stage in plan.stages for edges in stage.edge_sets)
    copies = DATA_COPIES + TURNED_DATA_COPIES * bool(reversed_sets(plan))
    return copies * 4 * (statistics.edge_data.numbers + 1) * statistics.edges if read else 0


def made_on_use(plan: Plan, statistics: Statistics, partitions: int) -> int:
    """Return the bytes of the structures that blocks build of their edges for the steps of a plan."""
    steps = list(chain.from_iterable(plan.passes))
    pipes = [step for step in steps if isinstance(step, PipeStep)]
    collected = {(edges, step.within) for step in pipes for edges in plan.stage(step.stage).edge_sets}
    keyed = {edges for edges, _ in collected if any(stage.draws_on(edges) for stage in plan.stages)}
    dropped = {step.edges for step in steps if isinstance(step, EdgeDropoutStep)}
    every: set[Scope] = {(edges, None) for edges in keyed | dropped}  # row keys are made in the order of all edges
    orders = every | {(step.edges, step.within) for step in steps if isinstance(step, EdgeStep)}
    looped = {edges for edges, _ in orders | collected if has_added_loops(edges)}
    sizes = _Sizes(statistics, partitions)
    return (
        sum(sizes.rows_of_edges(edges, None) for edges in looped)
        + sum(sizes.rows_of_edges(edges, None) + sizes.transpose((edges, None)) for edges in relations_of(plan))
        + sum(map(sizes.order, orders))
        + sum(map(sizes.transpose, _partial(steps)))
        + sum(sizes.neighbourhoods(scope, scope[0] in keyed) for scope in collected)
        + sum(KEY_BYTES * statistics.edge_count(edges) for edges in dropped)
    )


def relations_of(plan: Plan) -> set[EdgeSet]:
    """Return the edge sets of single types of edges that a plan reads."""
    read = {edges for stage in plan.stages for edges in stage.edge_sets}
    read |= {edges for column in plan.static_columns if (edges := edges_of_column(column.name)) is not None}
    for step in chain.from_iterable(plan.passes):
        if isinstance(step, EdgeStep | PropagateStep):
            read.add(step.edges)
    return {edges for edges in read if relation_of(edges) is not None}


def _partial(steps: Iterable[Step]) -> set[Scope]:
    """Return the edges whose transpose is built. The transpose of all edges exists already."""
    reverse = [step for step in steps if isinstance(step, PropagateStep) and step.reverse]
    return {(step.edges, step.within) for step in reverse if step.within is not None}


class _Sizes:
    """The bytes of each structure, over all blocks."""

    def __init__(self, statistics: Statistics, partitions: int) -> None:
        self._statistics = statistics
        self._entry = POSITION_BYTES * (2 if statistics.weighted else 1)  # bytes of an entry of a matrix
        halo = min(statistics.degrees().replication(partitions), partitions - 1)
        self._starts = round(POSITION_BYTES * statistics.vertices * (1 + halo))  # one for each source of a block

    def rows_of_edges(self, edges: EdgeSet, within: int | None) -> int:
        """Return the bytes of a matrix by destination."""
        ends = POSITION_BYTES * self._statistics.rows_within(within)
        return ends + self._entry * self._statistics.edge_count(edges, within)

    def order(self, scope: Scope) -> int:
        """Return the bytes of an order of edges: each edge's destination, edges by source, and each source's first edge.

        Within a level, a matrix of these edges by destination is included.
        """
        edges, within = scope
        matrix = 0 if within is None else self.rows_of_edges(edges, within)
        return matrix + 2 * POSITION_BYTES * self._statistics.edge_count(edges, within) + self._starts

    def transpose(self, scope: Scope) -> int:
        """Return the bytes of a matrix by source. The matrix by destination is freed."""
        return self._entry * self._statistics.edge_count(*scope) + self._starts

    def neighbourhoods(self, scope: Scope, keyed: bool) -> int:
        """Return the bytes of the matrices of all chunks, with their sources, and with row keys of edges if `keyed`.

        A chunk has at most one source for each of its edges.
        """
        more = POSITION_BYTES + (KEY_BYTES if keyed else 0)
        return self.rows_of_edges(*scope) + more * self._statistics.edge_count(*scope)
