"""Gradients of parameters, summed over groups of chunks in the order of groups, whichever thread is done first."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

import torch
from torch import Tensor


class GroupSums:
    """float32 within a group, float64 across groups.

    Args:
        shapes: of the parameters, by name.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = shapes
        self._lock = Lock()
        self._next = 0  # group to be added
        self._waiting: dict[int, Mapping[str, Tensor]] = {}  # sums of groups after it
        self._free: list[Mapping[str, Tensor]] = []
        self._totals: dict[str, Tensor] = {}

    def new(self) -> Mapping[str, Tensor]:
        """Zeros that a group's gradients are to be added to."""
        try:
            sums = self._free.pop()
        except IndexError:
            return {name: torch.zeros(shape) for name, shape in self._shapes.items()}
        for part in sums.values():
            part.zero_()
        return sums

    def take(self, group: int, sums: Mapping[str, Tensor]) -> None:
        """A group is done."""
        with self._lock:
            self._waiting[group] = sums
            while (ready := self._waiting.pop(self._next, None)) is not None:
                for name, part in ready.items():
                    # a cast and a sum of one type are several times as fast as a sum of two
                    self._totals[name] = self._totals[name].add_(part.double()) if self._next else part.double()
                self._next += 1
                self._free.append(ready)

    def result(self) -> dict[str, Tensor]:
        """The sums over all groups, once all are done. float32."""
        return {name: total.float() for name, total in self._totals.items()}
