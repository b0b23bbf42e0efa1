"""What `blocks` sends from partition to partition through Spark's shuffles.

Edges lie with their destinations. A row of the column that they begin at goes once to every other partition that has an edge
from it, and what such a partition has summed for it comes back as one row: so both ways, what moves is counted in rows of
sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.layout import Layout
from planner.physical import Plan
from planner.statistics import Statistics
from planner.steps.step import AtSources, Step


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
    brought: set[AtSources] = set()
    for step in steps:
        row = step.bytes_for_a_source(plan, layout, others, brought)
        yield row and row * statistics.sources_within(step.within)
