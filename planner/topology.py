"""The memory of a graph in blocks, beside its columns.

Of its edges a block makes more on first use and holds it for as long as it lives: orders of edge columns, transposes and
neighbourhoods, each once for every level that steps are within.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from planner.physical import Plan
from planner.spec import EdgeSet
from planner.statistics import Statistics
from planner.steps.edge_dropout import EdgeDropoutStep
from planner.steps.edge_step import EdgeStep
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.step import Step

EDGE_BYTES = 24  # of an edge: both directions of both edge sets, and what tells its halo
VERTEX_BYTES = 40  # of a vertex: id, row key, places
POSITION_BYTES = 4  # of a row, an edge or where a row's edges begin; a weight takes as much
KEY_BYTES = 8  # of an edge: its row key

Scope = tuple[EdgeSet, int | None]
"""Edges of a set that end within a level; None: all."""


def topology(plan: Plan, statistics: Statistics, partitions: int) -> int:
    """Bytes of all blocks, once they have made what a plan's steps use.

    Args:
        plan: see there.
        statistics: of the graph.
        partitions: blocks there are.
    """
    edges = max(statistics.edge_count("graph"), statistics.edge_count("self_loops"))
    first = VERTEX_BYTES * statistics.vertices + EDGE_BYTES * edges
    return first + made_on_use(plan, statistics, partitions)


def made_on_use(plan: Plan, statistics: Statistics, partitions: int) -> int:
    """Bytes of what blocks make of their edges for the steps of a plan."""
    steps = list(chain.from_iterable(plan.passes))
    pipes = [step for step in steps if isinstance(step, PipeStep)]
    collected = {(edges, step.within) for step in pipes for edges in plan.stage(step.stage).edge_sets}
    keyed = {edges for edges, _ in collected if any(stage.draws_on(edges) for stage in plan.stages)}
    dropped = {step.edges for step in steps if isinstance(step, EdgeDropoutStep)}
    every: set[Scope] = {(edges, None) for edges in keyed | dropped}  # row keys come of the order of all edges
    orders = every | {(step.edges, step.within) for step in steps if isinstance(step, EdgeStep)}
    looped = {edges for edges, _ in orders | collected} & {"self_loops"}
    sizes = _Sizes(statistics, partitions)
    return (
        sum(sizes.rows_of_edges(edges, None) for edges in looped)
        + sum(map(sizes.order, orders))
        + sum(map(sizes.transpose, _partial(steps)))
        + sum(sizes.neighbourhoods(scope, scope[0] in keyed) for scope in collected)
        + sum(KEY_BYTES * statistics.edge_count(edges) for edges in dropped)
    )


def _partial(steps: Iterable[Step]) -> set[Scope]:
    """The edges of which a transpose is made: that of all is there."""
    reverse = [step for step in steps if isinstance(step, PropagateStep) and step.reverse]
    return {(step.edges, step.within) for step in reverse if step.within is not None}


class _Sizes:
    """Bytes of each structure, over all blocks."""

    def __init__(self, statistics: Statistics, partitions: int) -> None:
        self._statistics = statistics
        self._entry = POSITION_BYTES * (2 if statistics.weighted else 1)  # of a matrix
        halo = min(statistics.degrees().replication(partitions), partitions - 1)
        self._starts = round(POSITION_BYTES * statistics.vertices * (1 + halo))  # one for each source of a block

    def rows_of_edges(self, edges: EdgeSet, within: int | None) -> int:
        """A matrix by destination."""
        ends = POSITION_BYTES * self._statistics.rows_within(within)
        return ends + self._entry * self._statistics.edge_count(edges, within)

    def order(self, scope: Scope) -> int:
        """The destination of each edge, edges by source, where a source's begin; within a level, a matrix of these edges."""
        edges, within = scope
        matrix = 0 if within is None else self.rows_of_edges(edges, within)
        return matrix + 2 * POSITION_BYTES * self._statistics.edge_count(edges, within) + self._starts

    def transpose(self, scope: Scope) -> int:
        """A matrix by source; that by destination is let go."""
        return self._entry * self._statistics.edge_count(*scope) + self._starts

    def neighbourhoods(self, scope: Scope, keyed: bool) -> int:
        """The matrix of each chunk, with its distinct sources, at the most one for each edge, and with row keys of edges."""
        more = POSITION_BYTES + (KEY_BYTES if keyed else 0)
        return self.rows_of_edges(*scope) + more * self._statistics.edge_count(*scope)
