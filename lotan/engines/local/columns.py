"""Memory of columns: memory that one column no longer needs is used for the next column of the same size.

Memory that is fresh from the system costs more to touch for the first time than most passes over it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lotan.memory.mapped import MappedMemory
from planner.chunks import PART_BYTES


@dataclass
class _Held:
    column: Tensor
    memory: Tensor
    users: int = 1


class Columns:
    """Provides memory for float32 columns, and counts the users of each. Columns from elsewhere are ignored.

    Args:
        mapped: Memory in files, in which the columns shall lie; None: they lie in memory.
    """

    def __init__(self, mapped: MappedMemory | None = None) -> None:
        self.mapped = mapped
        self.in_memory: Collection[str] = ()  # the names of columns that lie in memory all the same
        self._held: dict[int, _Held] = {}  # by the id of the tensor
        self._free: dict[int, list[Tensor]] = defaultdict(list)  # by size

    def new(self, rows: int, shape: tuple[int, ...], name: str = "") -> Tensor:
        """Return a column [rows, *shape] with arbitrary numbers in it, and one user.

        Args:
            rows: The number of its rows.
            shape: The shape of a row.
            name: The name of the column, by which it may lie in memory; "": it has none.
        """
        size = rows * torch.Size(shape).numel()
        if self.mapped is not None and name in self.in_memory:
            memory = torch.empty(size)
        else:
            memory = self._free[size].pop() if self._free[size] else self._fresh(size)
        column = memory.view(rows, *shape)
        self._held[id(column)] = _Held(column, memory)
        return column

    def _fresh(self, size: int) -> Tensor:
        return torch.empty(size) if self.mapped is None else self.mapped.new(size)

    def in_file(self, column: Tensor) -> bool:
        """Return True if a column lies in a file."""
        return self.mapped is not None and self.mapped.holds(column)

    def stored(self, column: Tensor, name: str = "") -> Tensor:
        """Return a column from elsewhere, or a copy in files if columns lie there, or in memory if this one does."""
        if self.mapped is None or id(column) in self._held or self.mapped.holds(column):
            return column
        return self.copied(column, name)

    def copied(self, column: Tensor, name: str = "") -> Tensor:
        """Return a copy of a column, in memory or in a file by its name. Pages of files are given back on the way."""
        copy = self.new(len(column), column.shape[1:], name)
        if self.mapped is None:
            return copy.copy_(column)
        for some in _parts(column):
            copy[some] = column[some]
            self.mapped.give_back(copy[some])
            self.mapped.give_back(column[some])
        return copy

    def clear(self, column: Tensor, first: int) -> None:
        """Set the rows of a column from the first one on to zero. Pages of files are given back on the way."""
        if self.mapped is None:
            column[first:].zero_()
            return
        for some in _parts(column, first):
            self.mapped.give_back(column[some].zero_())

    def share(self, column: Tensor) -> Tensor:
        """Count one more user of a column, and return the column."""
        if id(column) in self._held:
            self._held[id(column)].users += 1
        return column

    def release(self, column: Tensor) -> None:
        """Count one user fewer. Without users, the column's memory is free.

        Where columns lie in files, memory goes back to the system, because the next column may be one of another size.
        """
        held = self._held.get(id(column))
        if held is None:
            return
        held.users -= 1
        if held.users == 0:
            del self._held[id(column)]
            if self.mapped is None or self.mapped.holds(held.memory):
                self._free[held.memory.numel()].append(held.memory)

    def hand_over(self, column: Tensor) -> Tensor:
        """Give a column to the caller, and stop counting its users."""
        self._held.pop(id(column), None)
        return column

    def forget(self) -> None:
        """Forget all columns. Their memory may still be visible to somebody, and so is not used again."""
        self._held.clear()


def _parts(column: Tensor, first: int = 0) -> Iterator[slice]:
    """Yield the rows of a column from the first one on, as many at a time as `PART_BYTES` hold."""
    length = max(1, PART_BYTES // max(1, column[:1].nbytes))
    for start in range(first, len(column), length):
        yield slice(start, start + length)
