"""The tensors, and the rows of tensors, that a worker keeps so that they are sent once.

A Dealer has another copy of each, so any of them may be dropped at any time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from messenger.kept_rows import KeptRows, Layout

Slot = tuple[str, int, int, str, tuple[int, ...]]
"""Run, partition, chunk, tensor name and shape. One tensor is kept in each slot.

The shape belongs to it because passes on fewer vertices have shorter chunks.
"""


@dataclass(frozen=True)
class Offer:
    """A tensor that a Dealer has and the worker may have."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    checksum: int
    epoch_only: bool


@dataclass(frozen=True)
class _Kept:
    offer: Offer
    array: np.ndarray
    pass_number: int


class KeptTensors:
    """Tensors by slot, and rows by key, up to a number of bytes. Beyond it, the least recently used tensors are dropped.

    Args:
        budget: the largest number of bytes of both.
        of_rows: the largest number of bytes of rows.
    """

    def __init__(self, budget: int, of_rows: int = 0) -> None:
        self._budget = budget
        self.rows = KeptRows(min(budget, of_rows))
        self._kept: OrderedDict[Slot, _Kept] = OrderedDict()
        self.bytes = 0

    def get(self, slot: Slot, offer: Offer) -> np.ndarray | None:
        """Return the tensor of a slot if it is exactly the one offered, else None."""
        kept = self._kept.get(slot)
        if kept is None or kept.offer != offer:
            return None
        self._kept.move_to_end(slot)
        return kept.array

    def put(self, slot: Slot, offer: Offer, array: np.ndarray, pass_number: int) -> None:
        """Keep a tensor that came in a pass, unless it alone exceeds the budget."""
        self._drop(slot)
        if array.nbytes > self._budget - self.rows.bytes:
            return
        self._kept[slot] = _Kept(offer, array, pass_number)
        self.bytes += array.nbytes
        self._make_room()

    def put_rows(
        self, run: str, layout: Layout, keys: np.ndarray, checksums: np.ndarray, rows: Mapping[str, np.ndarray]
    ) -> None:
        """Keep rows that came, see `KeptRows.put`."""
        self.rows.put(run, layout, keys, checksums, rows)
        self._make_room()

    def _make_room(self) -> None:
        while self._kept and self.bytes + self.rows.bytes > self._budget:
            self._drop(next(iter(self._kept)))

    def begin_pass(self, run: str, pass_number: int) -> None:
        """Drop a run's tensors that were kept for an earlier pass only."""
        for slot, kept in list(self._kept.items()):
            if slot[0] == run and kept.offer.epoch_only and kept.pass_number < pass_number:
                self._drop(slot)

    def forget(self, run: str) -> None:
        """Drop all tensors of a run, and its rows if no other run has them."""
        self.rows.forget(run)
        for slot in [slot for slot in self._kept if slot[0] == run]:
            self._drop(slot)

    def _drop(self, slot: Slot) -> None:
        kept = self._kept.pop(slot, None)
        if kept is not None:
            self.bytes -= kept.array.nbytes
