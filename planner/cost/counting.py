"""Counts the work of a plan's steps: that of graph operators here, that of stages in `planner.cost.stages`."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from planner.chunks import chunk_count
from planner.cost.stages import beyond_memory, pipe_work
from planner.estimate import row_bytes
from planner.expressions import operations
from planner.layout import Layout
from planner.physical import (
    CollectStep,
    EdgeDotStep,
    EdgeDropoutStep,
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
    SegmentSoftmaxGradientStep,
    SegmentSoftmaxStep,
    Step,
)
from planner.statistics import Statistics
from planner.traits import EngineTraits
from planner.work import Work

CACHE_BYTES = 24 << 20
"""What processors keep at hand of the rows that edges begin at: a column of half as much costs less a number, one of ten
times as much is read from memory."""

EXTREME_GRADIENT = 3  # comparisons of the gradient of a max or min, where that itself takes one
SOFTMAX = 5  # operations of a softmax over in-edges, on each number
SOFTMAX_GRADIENT = 4  # operations of its gradient
OUT_OF_ORDER = 4  # operations to read a number of an edge column by source, where by destination it takes one
EDGE_CALLS = 2  # of torch's operators, by which a step on edges is made in this process
BOTH_ENDS = 2  # numbers that a product along edges reads, for each that it multiplies


def step_work(
    step: Step, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout, beyond: float | None = None
) -> Work:
    """The work of one step, but for its shuffles.

    Args:
        step: of `plan`.
        plan: see there.
        statistics: of the graph.
        traits: of the engine that runs it.
        layout: how its work is spread.
        beyond: as of `beyond_memory`, where that is known.
    """
    waves = 1 if traits.in_process else ceil(layout.partitions / max(1, layout.crew.tasks))
    match step:
        case PipeStep():
            beyond = beyond_memory(plan, statistics, traits, layout) if beyond is None else beyond
            found = pipe_work(step, plan, statistics, traits, layout, beyond)
            found.pipes = waves
            return found
        case PropagateStep():
            edges = statistics.edge_count(step.edges, step.within)
            numbers = edges * step.output.width
            far = numbers * _far(statistics.sources_within(step.within) * row_bytes(step.output))
            return Work(steps=waves, edges=edges, summed_numbers=numbers, far_numbers=far)
        case CollectStep():
            rows = _collected(step, statistics, traits, layout)
            return Work(steps=waves, collected_numbers=rows * _width(plan, step.columns))
        case GatherStep():
            rows = _collected(step, statistics, traits, layout)
            return Work(steps=waves, collected_numbers=rows * step.output.width)
    found = _edge_work(step, plan, statistics)
    found.steps = waves
    found.calls = EDGE_CALLS if traits.in_process else 0.0
    return found


def _far(size: int) -> float:
    """The share of a column of so many bytes that is in no cache.

    >>> _far(1000), _far(96 << 20)
    (0.0, 0.75)
    """
    return max(0.0, 1 - CACHE_BYTES / max(1, size))


def _collected(step: CollectStep | GatherStep, statistics: Statistics, traits: EngineTraits, layout: Layout) -> float:
    """Rows of sources, each as often as chunks have it: these are runs of vertices that a hash has put in order."""
    chunks = 1 if traits.in_process else chunk_count(statistics.rows_within(step.within), traits, layout)
    return statistics.sources_within(step.within) * statistics.degrees().replication(chunks)


def _width(plan: Plan, names: Iterable[str]) -> int:
    """Numbers of a row of some columns together."""
    return sum(plan.columns[name].width for name in names)


def _edge_work(step: EdgeStep, plan: Plan, statistics: Statistics) -> Work:
    edges = statistics.edge_count(step.edges, step.within)
    width = step.output.width
    match step:
        case EdgeExpressionStep():
            return Work(edge_values=edges * width * max(1, operations(step.expression)))
        case SegmentSoftmaxStep():
            return Work(edge_values=edges * width * SOFTMAX)
        case SegmentSoftmaxGradientStep():
            return Work(edge_values=edges * width * SOFTMAX_GRADIENT)
        case EdgeDropoutStep():
            return Work(edge_values=edges * width, draws=edges * width)
        case EdgeSumStep():
            reads = OUT_OF_ORDER if step.end == "source" else 1
            return Work(edges=edges, edge_values=edges * width * reads)
        case ScaledPropagateStep():
            scales = edges * step.heads * (OUT_OF_ORDER if step.reverse else 1)
            return Work(edges=edges, scaled_numbers=edges * width, edge_values=scales)
        case EdgeDotStep():
            return Work(edges=edges, scaled_numbers=BOTH_ENDS * edges * _width(plan, [step.source]))
        case ExtremeStep():
            return Work(edges=edges, extreme_numbers=edges * width)
        case ExtremeGradientStep():
            return Work(edges=edges, extreme_numbers=EXTREME_GRADIENT * edges * width)
    return Work(edges=edges, edge_values=edges * width)
