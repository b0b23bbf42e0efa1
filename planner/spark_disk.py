"""Estimates the bytes that an engine on Spark writes to Spark's local disk if its heap holds no column."""

from __future__ import annotations

from collections.abc import Sequence

from planner.estimate import columns_bytes, row_bytes
from planner.layout import Layout
from planner.physical import Plan
from planner.statistics import Statistics
from planner.steps.propagate import PropagateStep
from planner.steps.step import Step
from planner.topology import topology

ENDS_BYTES = 16  # the two ends of an edge, as they are sent to its partition
PARTS_LOADED = 3  # copies of a partition's rows while it is built: as they came, in one piece, sorted
EDGES_LOADED = 64  # bytes of an edge in that time
# copies of the blocks where sums read partitions in turn: as they are, and once more for each direction of edges
BLOCKS_IN_TURN = 3


def blocks_disk_bytes(plan: Plan, statistics: Statistics, layout: Layout, columns: int) -> int:
    """Return the bytes on the disk for a plan on blocks: the graph as it is sent, and the most that is stored at one time.

    Args:
        plan: The plan.
        statistics: The statistics of the graph.
        layout: The partitions, and the way in which sums read them.
        columns: The most bytes of columns that are alive together.
    """
    rows = sum(row_bytes(column) for column in plan.static_columns) * statistics.vertices
    of_edge = 4 * (statistics.weighted + statistics.edge_data.numbers)
    sent = rows + (ENDS_BYTES + of_edge) * statistics.edges
    loading = PARTS_LOADED * rows + (EDGES_LOADED + PARTS_LOADED * of_edge) * statistics.edges
    blocks = topology(plan, statistics, layout.partitions)
    running = blocks + columns
    if layout.in_turn:
        running = BLOCKS_IN_TURN * blocks + columns + max(_in_turn(plan, steps, statistics) for steps in plan.passes)
    return sent + max(loading, running)


def _in_turn(plan: Plan, steps: Sequence[Step], statistics: Statistics) -> int:
    """Return the bytes of the columns that a pass sums over edges, each of which stays in files until the pass ends."""
    sizes = columns_bytes(plan, steps, statistics)
    return sum(sizes[name] for name in {step.input for step in steps if isinstance(step, PropagateStep)})
