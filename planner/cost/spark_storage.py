"""Counts the bytes that go to Spark's local disk and come back, where Spark's storage has no room for all columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from planner.estimate import columns_bytes
from planner.layout import Layout
from planner.lifetimes import alive_bytes
from planner.physical import Plan
from planner.statistics import Statistics
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.step import Step
from planner.topology import topology


def stored_bytes(plan: Plan, steps: Sequence[Step], statistics: Statistics, layout: Layout) -> list[float]:
    """Return the bytes of columns and blocks that Spark writes to its local disk or reads there at each step of a pass.

    Of all that exists at a step, the share for which storage has no room is taken to lie on the disk. The same share of
    a column is written when it is made, and read by each of its readers. Blocks are read by each step on the graph.
    Where sums read partitions in turn, the step of a sum counts its files itself, so nothing is counted here.
    """
    if layout.storage is None or layout.in_turn:
        return [0.0] * len(steps)
    blocks, sizes = topology(plan, statistics, layout.partitions), columns_bytes(plan, steps, statistics)
    # in one JVM, the pipe that reads a sum computes it, and no column of it is kept
    sums = {step.output.name for step in steps if isinstance(step, PropagateStep) and not layout.shuffled}
    found: list[float] = []
    for step, alive in zip(steps, _alive(plan, steps, statistics, layout), strict=True):
        share = max(0.0, 1 - layout.storage / max(1, blocks + alive))
        columns = sum(sizes.get(name, 0) for name in {*step.reads, *step.makes} - sums)
        found.append(share * (columns + blocks * (not isinstance(step, PipeStep))))
    return found


def _alive(plan: Plan, steps: Sequence[Step], statistics: Statistics, layout: Layout) -> list[int]:
    """Return the bytes of columns that are persisted while each step runs. Executors free none before the end of a pass."""
    if not layout.shuffled:
        return alive_bytes(plan, steps, statistics)
    sizes = columns_bytes(plan, steps, statistics)
    there = {column.name for column in plan.static_columns} if steps == plan.prepare else plan.lasting
    made = accumulate(sum(sizes.get(name, 0) for name in step.makes) for step in steps)
    return [sum(sizes[name] for name in there) + size for size in made]
