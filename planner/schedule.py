"""The order of steps: each once what it reads is made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heappop, heappush

from planner.steps.step import Step


def in_turn(waiting: Sequence[Step], there: Collection[str]) -> tuple[Step, ...]:
    """The steps, each as soon as what it reads is made; of several that could be next, the one that stands first."""
    missing = [set(step.reads).difference(there) for step in waiting]
    readers: dict[str, list[int]] = {}
    for place, names in enumerate(missing):
        for name in names:
            readers.setdefault(name, []).append(place)
    ready = [place for place, names in enumerate(missing) if not names]  # in order, and so a heap
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
