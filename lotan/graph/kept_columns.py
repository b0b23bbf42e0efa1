"""Columns that were computed once from a graph, kept for the next training on it."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from threading import RLock
from typing import Protocol

from lotan.memory.free import free_memory

MOST_BYTES = 1 << 30
FREE_SHARE = 0.1  # of the memory that is free, where that is less


class Sized(Protocol):
    """An array or a tensor."""

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""


@dataclass(frozen=True)
class _Kept:
    column: Sized
    seconds: float  # that it took

    @property
    def worth(self) -> float:
        """Seconds that a byte spares."""
        return self.seconds / max(1, self.column.nbytes)


class KeptColumns:
    """Within a budget: where that is short, what is worth least a byte goes. For any thread.

    Args:
        most: bytes; None: as suits the memory that is free whenever one is put.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._kept: dict[Hashable, _Kept] = {}
        self._lock = RLock()

    def get(self, key: Hashable) -> Sized | None:
        """What was put, if it is still there."""
        kept = self._kept.get(key)
        return None if kept is None else kept.column

    def put(self, key: Hashable, column: Sized, seconds: float) -> None:
        """Keep a column, which nobody writes to any more."""
        with self._lock:
            self._kept[key] = _Kept(column, seconds)
            self.shrink(self._budget())

    def shrink(self, most: int, but: Collection[Hashable] = ()) -> None:
        """Let go of what is worth least, until there are so many bytes at the most; of those with these keys nothing."""
        with self._lock:
            others = [key for key in self._kept if key not in but]
            for key in sorted(others, key=lambda key: self._kept[key].worth):
                if self.nbytes <= most:
                    return
                del self._kept[key]

    @property
    def nbytes(self) -> int:
        """Of all there are."""
        with self._lock:
            return sum(kept.column.nbytes for kept in self._kept.values())

    def _budget(self) -> int:
        if self._most is not None:
            return self._most
        return min(MOST_BYTES, int(FREE_SHARE * free_memory()))
