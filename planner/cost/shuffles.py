"""Counts the bytes that `blocks` sends from partition to partition through Spark's shuffles.

Edges lie with their destinations. Forward, a source's row goes once to every other partition that has an edge from it.
Backward, such a partition returns one row: its sum for that source. So both ways are counted in rows of sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.layout import Layout
from planner.physical import Plan
from planner.statistics import Statistics
from planner.steps.step import AtSources, Step


def shuffled_bytes(steps: Sequence[Step], plan: Plan, statistics: Statistics, layout: Layout) -> Iterator[float]:
    """Yield the bytes that each step sends, in order.

    If all partitions lie in one JVM, tasks read source rows where they are. Even then, a shuffle brings rows to the
    stages that collect neighbourhoods.

    Args:
        steps: Steps of one pass, not necessarily all.
        plan: The plan.
        statistics: The statistics of the graph.
        layout: The spread of the job over the host.
    """
    partitions = layout.partitions
    others = statistics.degrees().replication(partitions) * (partitions - 1) / partitions  # with edges from a vertex
    brought: set[AtSources] = set()
    for step in steps:
        row = step.bytes_for_a_source(plan, layout, others, brought)
        yield row and row * statistics.sources_within(step.within)
