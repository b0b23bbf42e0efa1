"""What steps send from partition to partition, where these lie in several JVMs.

Edges lie with their destinations. A row of the column that they begin at goes once to every other partition that has an edge
from it, and what such a partition has summed for it comes back as one row: so both ways, what crosses is counted in rows of
sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.estimate import row_bytes
from planner.expressions import leaves
from planner.footprint import Layout
from planner.physical import (
    CollectStep,
    EdgeDotStep,
    EdgeExpressionStep,
    EdgeStep,
    EdgeSumStep,
    ExtremeGradientStep,
    ExtremeStep,
    GatherStep,
    PipeStep,
    Plan,
    PropagateStep,
    ScaledPropagateStep,
    Step,
)
from planner.statistics import Statistics


def shuffled_bytes(steps: Sequence[Step], plan: Plan, statistics: Statistics, layout: Layout) -> Iterator[float]:
    """Of each step of a pass.

    Args:
        steps: one of plan.passes.
        plan: see there.
        statistics: of the graph.
        layout: how its work is spread.
    """
    partitions = layout.partitions
    others = (
        statistics.degrees().replication(partitions) * (partitions - 1) / partitions
    )  # that have an edge from a vertex
    all_of_them = others + 1  # where a partition sends to itself what it has for its own vertices
    collections = {step.output: step.columns for step in steps if isinstance(step, CollectStep)}
    brought: set[tuple[str, int | None]] = set()  # columns, and the level up to which edges end

    def bring(step: EdgeStep) -> float:
        """Columns come to the edges once, however many steps read them there."""
        new = {(name, step.within) for name in _at_sources(step)} - brought
        brought.update(new)
        return sum(row_bytes(plan.columns[name]) for name, _ in new) * others

    for step in steps:
        match step:
            case PropagateStep():
                sent = row_bytes(step.output) * others
            case PipeStep():
                columns = [name for collection in step.collections for name in collections[collection]]
                sent = sum(row_bytes(plan.columns[name]) for name in columns) * others
            case CollectStep():
                sent = 0.0  # each pipe brings the rows that it sends
            case GatherStep():
                sent = row_bytes(step.output) * all_of_them
            case ExtremeGradientStep():
                sent = bring(step) + row_bytes(step.output) * all_of_them
            case EdgeStep():
                sent = bring(step) + (row_bytes(step.output) * others if _sums_by_source(step) else 0.0)
        yield sent * sources(step.within, statistics)


def sources(within: int | None, statistics: Statistics) -> int:
    """Vertices at which edges begin that end within a level, at the most."""
    return statistics.rows_within(None if within is None else within + 1)


def _at_sources(step: EdgeStep) -> tuple[str, ...]:
    """The columns that a step reads where its edges begin."""
    match step:
        case EdgeExpressionStep():
            return tuple(leaf[1] for leaf in leaves(step.expression) if leaf[0] == "source")
        case ScaledPropagateStep(reverse=False) | ExtremeStep() | ExtremeGradientStep():
            return (step.input,)
        case EdgeDotStep():
            return (step.source,)
    return ()


def _sums_by_source(step: EdgeStep) -> bool:
    """Whether it has one row for each vertex at which edges begin."""
    return (isinstance(step, EdgeSumStep) and step.end == "source") or (
        isinstance(step, ScaledPropagateStep) and step.reverse
    )
