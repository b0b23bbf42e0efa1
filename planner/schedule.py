"""Puts steps in an order in which each comes after the steps that make its inputs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heappop, heappush

from planner.steps.step import Step


def in_turn(waiting: Sequence[Step], there: Collection[str]) -> tuple[Step, ...]:
    """Return the steps in an order in which each runs as soon as its inputs are made.

    Among steps that are ready, the first one in `waiting` comes first.

    Args:
        waiting: The steps.
        there: The names of the columns that exist before the first step.
    """
    missing = [set(step.reads).difference(there) for step in waiting]
    readers: dict[str, list[int]] = {}
    for place, names in enumerate(missing):
        for name in names:
            readers.setdefault(name, []).append(place)
    ready = [place for place, names in enumerate(missing) if not names]  # sorted, so it is a heap already
    steps: list[Step] = []
    while ready:
        step = waiting[heappop(ready)]
        steps.append(step)
        for name in step.makes:
            for place in readers.get(name, ()):
                missing[place].discard(name)
                if not missing[place]:
                    heappush(ready, place)
    return tuple(steps)
