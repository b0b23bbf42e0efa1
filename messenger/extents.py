"""The free bytes of a region.

They are taken by first fit, so that the same few bytes are used again and again while they are in the cache.
"""

from __future__ import annotations

from bisect import bisect_left


class Extents:
    """The free extents between two offsets. The caller rounds sizes up. The memory itself is never read or written."""

    def __init__(self, start: int, end: int) -> None:
        self.end = end
        self._free: list[tuple[int, int]] = [(start, end)] if end > start else []  # sorted; no two are adjacent

    @property
    def free(self) -> int:
        """The number of free bytes."""
        return sum(end - start for start, end in self._free)

    def take(self, size: int) -> int | None:
        """Take `size` bytes, at least one. Return their offset, or None if no free extent is long enough."""
        for position, (start, end) in enumerate(self._free):
            if end - start >= size:
                self._free[position : position + 1] = [(start + size, end)] if end - start > size else []
                return start
        return None

    def give(self, start: int, size: int) -> None:
        """Free bytes that were taken. Freeing the same bytes twice would let them be taken twice."""
        end = start + size
        position = bisect_left(self._free, (start, end))
        if position < len(self._free) and self._free[position][0] == end:
            end = self._free.pop(position)[1]
        if position and self._free[position - 1][1] == start:
            position -= 1
            start = self._free.pop(position)[0]
        self._free.insert(position, (start, end))

    def extend(self, end: int) -> None:
        """Add the bytes up to `end` after the region has grown."""
        start, self.end = self.end, end
        self.give(start, end - start)
