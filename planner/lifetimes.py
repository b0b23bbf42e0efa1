"""The bytes of the columns that exist together while the steps of a pass run, each until its last reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate

from planner.estimate import columns_bytes
from planner.physical import Plan
from planner.statistics import Statistics
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.step import Step


def _reads(step: Step) -> Collection[str]:
    return step.reads


def alive_bytes(plan: Plan, steps: Sequence[Step], statistics: Statistics) -> list[int]:
    """Return the bytes of the columns that exist while each step of a pass runs, static columns included.

    Args:
        plan: The plan.
        steps: One of the plan's passes.
        statistics: The statistics of the graph.
    """
    sizes = columns_bytes(plan, steps, statistics)
    there = {column.name for column in plan.static_columns} if steps == plan.prepare else plan.lasting
    stay = {column.name for column in plan.hoisted}  # counted from the step of `prepare` that makes them
    changes = Counter({0: sum(sizes[name] for name in there)})
    for place, change in byte_changes(steps, {name: size for name, size in sizes.items() if name not in stay}):
        changes[place] += change
    for place, step in enumerate(steps):
        changes[place] += sum(sizes[name] for name in stay.intersection(step.makes))
    return list(accumulate(changes[place] for place in range(len(steps))))


def most_alive(steps: Sequence[Step], sizes: Mapping[str, int], read: Callable[[Step], Collection[str]]) -> int:
    """Return the most bytes that are alive at any step."""
    return max(accumulate((change for _, change in byte_changes(steps, sizes, read)), initial=0))


def byte_changes(
    steps: Sequence[Step], sizes: Mapping[str, int], read: Callable[[Step], Collection[str]] = _reads
) -> list[tuple[int, int]]:
    """Return the places of steps at which columns are made or freed, each with the change in bytes, in order.

    At one place, freed columns come first. A sum that a pipe reads is made by the pipe itself, so the pipe counts as
    the reader of the column that is summed.

    Args:
        steps: The steps of a pass, in order.
        sizes: The bytes of each column that counts, by name.
        read: The names that a step reads; by default all of them.
    """
    sums = {step.output.name: step.input for step in steps if isinstance(step, PropagateStep)}
    last: dict[str, int] = {}
    for place, step in enumerate(steps):
        spends = isinstance(step, PipeStep | PropagateStep)  # columns with other readers stay until the end
        for name in read(step):
            last[sums.get(name, name)] = place if spends else len(steps)
    born = {name: place for place, step in enumerate(steps) for name in step.makes}  # collections have no size
    found: list[tuple[int, int]] = []
    for name, first in born.items():
        size, gone = sizes.get(name), last.get(name, first)
        if size and name not in sums and gone >= first:
            found += (first, size), (gone + 1, -size)
    return sorted(found)
