"""What `blocks` sends from partition to partition through Spark's shuffles.

Edges lie with their destinations. A row of the column that they begin at goes once to every other partition that has an edge
from it, and what such a partition has summed for it comes back as one row: so both ways, what moves is counted in rows of
sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.estimate import BYTES, row_bytes
from planner.layout import Layout
from planner.physical import (
    EdgeStep,
    EdgeSumStep,
    ExtremeGradientStep,
    GatherStep,
    PipeStep,
    Plan,
    PropagateStep,
    ScaledPropagateStep,
    Step,
)
from planner.statistics import Statistics


def shuffled_bytes(steps: Sequence[Step], plan: Plan, statistics: Statistics, layout: Layout) -> Iterator[float]:
    """Of each step, in order.

    Where all partitions lie in one JVM, tasks read rows of sources where these are; stages that collect neighbourhoods have
    them brought by a shuffle even then.

    Args:
        steps: of one pass, not necessarily all.
        plan: see there.
        statistics: of the graph.
        layout: how its work is spread.

    Yields:
        bytes.
    """
    partitions = layout.partitions
    others = statistics.degrees().replication(partitions) * (partitions - 1) / partitions  # with edges from a vertex
    brought: set[tuple[str, int | None]] = set()  # columns, and the level up to which edges end
    for step in steps:
        row = 0.0  # bytes for each source
        match step:
            case PipeStep():
                row = _collected_bytes(step, plan) * others
            case GatherStep():
                row = row_bytes(step.output) * (others + 1)  # a partition sends its own vertices' sums the same way
            case PropagateStep() if layout.shuffled:
                row = row_bytes(step.output) * others
            case EdgeStep() if layout.shuffled:
                new = {(name, step.within) for name in step.at_sources} - brought
                brought |= new  # once, however many steps of the pass read it there
                row = sum(row_bytes(plan.columns[name]) for name, _ in new) * others + _returned_bytes(step, others)
        yield row and row * statistics.sources_within(step.within)


def _collected_bytes(step: PipeStep, plan: Plan) -> int:
    """Of the columns that a stage reads at a source: every pipe has them brought anew."""
    if not step.collections:
        return 0
    inputs = (one for one in plan.stage(step.stage).inputs if one.role == "source")
    return sum({(one.edges, one.column): one.width * BYTES[one.dtype] for one in inputs}.values())


def _returned_bytes(step: EdgeStep, others: float) -> float:
    """Of what partitions have summed for a source."""
    match step:
        case ExtremeGradientStep():
            return row_bytes(step.output) * (others + 1)  # as of a Gather
        case EdgeSumStep(end="source") | ScaledPropagateStep(reverse=True):
            return row_bytes(step.output) * others
    return 0.0
