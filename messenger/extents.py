"""Which bytes of a region are free: first fit, so that the same few are used again and again, while the cache has them."""

from __future__ import annotations

from bisect import bisect_left


class Extents:
    """Free extents between two offsets. Sizes are the caller's to round up; does not look at the memory itself."""

    def __init__(self, start: int, end: int) -> None:
        self.end = end
        self._free: list[tuple[int, int]] = [(start, end)] if end > start else []  # sorted, never touching each other

    @property
    def free(self) -> int:
        """Bytes that nobody has."""
        return sum(end - start for start, end in self._free)

    def take(self, size: int) -> int | None:
        """The offset of that many bytes (at least one), or None where they do not fit."""
        for position, (start, end) in enumerate(self._free):
            if end - start >= size:
                self._free[position : position + 1] = [(start + size, end)] if end - start > size else []
                return start
        return None

    def give(self, start: int, size: int) -> None:
        """Free what was taken. Once: what is free twice would be taken twice."""
        end = start + size
        position = bisect_left(self._free, (start, end))
        if position < len(self._free) and self._free[position][0] == end:
            end = self._free.pop(position)[1]
        if position and self._free[position - 1][1] == start:
            position -= 1
            start = self._free.pop(position)[0]
        self._free.insert(position, (start, end))

    def extend(self, end: int) -> None:
        """The region has grown to that many bytes."""
        start, self.end = self.end, end
        self.give(start, end - start)
