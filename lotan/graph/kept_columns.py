"""Columns that were computed from a graph and are kept for the next training on it."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from threading import RLock
from typing import Protocol

from lotan.memory.free import free_memory

MOST_BYTES = 1 << 30
FREE_SHARE = 0.1  # kept columns take at most this share of the free memory


class Sized(Protocol):
    """An object with a size in memory, such as an array or a tensor."""

    @property
    def nbytes(self) -> int:
        """The number of bytes that it takes."""


@dataclass(frozen=True)
class _Kept:
    column: Sized
    seconds: float  # the time that it took to compute

    @property
    def worth(self) -> float:
        """The seconds that are saved by each byte of the column."""
        return self.seconds / max(1, self.column.nbytes)


class KeptColumns:
    """Columns within a budget of bytes. Beyond it, the columns that save the fewest seconds per byte are dropped.

    Any thread may use it.

    Args:
        most: the budget in bytes. None takes it from the free memory, each time that a column is added (default: None).
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._kept: dict[Hashable, _Kept] = {}
        self._lock = RLock()

    def get(self, key: Hashable) -> Sized | None:
        """Return the column of a key, or None if it was dropped or never added."""
        kept = self._kept.get(key)
        return None if kept is None else kept.column

    def put(self, key: Hashable, column: Sized, seconds: float) -> None:
        """Add a column, which must not be written to any more. `seconds` is the time that it took to compute."""
        with self._lock:
            self._kept[key] = _Kept(column, seconds)
            self.shrink(self._budget())

    def shrink(self, most: int, but: Collection[Hashable] = ()) -> None:
        """Drop the columns that save least per byte, until at most `most` bytes are left. Keys in `but` are not dropped."""
        with self._lock:
            others = [key for key in self._kept if key not in but]
            for key in sorted(others, key=lambda key: self._kept[key].worth):
                if self.nbytes <= most:
                    return
                del self._kept[key]

    @property
    def nbytes(self) -> int:
        """The number of bytes of all columns."""
        with self._lock:
            return sum(kept.column.nbytes for kept in self._kept.values())

    def _budget(self) -> int:
        if self._most is not None:
            return self._most
        return min(MOST_BYTES, int(FREE_SHARE * free_memory()))
