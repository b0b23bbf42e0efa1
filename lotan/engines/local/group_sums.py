"""Gradients of parameters, summed over groups of chunks in the order of groups, whichever thread finishes first."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

import torch
from torch import Tensor


class GroupSums:
    """Sums in float32 within a group and in float64 across groups.

    Args:
        shapes: The shapes of the parameters, by name.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = shapes
        self._lock = Lock()
        self._next = 0  # the group to be added next
        self._waiting: dict[int, Mapping[str, Tensor]] = {}  # the sums of later groups
        self._free: list[Mapping[str, Tensor]] = []
        self._totals: dict[str, Tensor] = {}

    def new(self) -> Mapping[str, Tensor]:
        """Return zeros to which a group's gradients are added."""
        try:
            sums = self._free.pop()
        except IndexError:
            return {name: torch.zeros(shape) for name, shape in self._shapes.items()}
        for part in sums.values():
            part.zero_()
        return sums

    def take(self, group: int, sums: Mapping[str, Tensor]) -> None:
        """Add the sums of a finished group, once all groups before it are added."""
        with self._lock:
            self._waiting[group] = sums
            while (ready := self._waiting.pop(self._next, None)) is not None:
                for name, part in ready.items():
                    # a cast and a sum of one type are several times as fast as a sum of two types
                    self._totals[name] = self._totals[name].add_(part.double()) if self._next else part.double()
                self._next += 1
                self._free.append(ready)

    def result(self) -> dict[str, Tensor]:
        """Return the float32 sums over all groups, once all groups are finished."""
        return {name: total.float() for name, total in self._totals.items()}
