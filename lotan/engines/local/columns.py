"""Memory of columns: memory that one column no longer needs is used for the next column of the same size.

Memory that is fresh from the system costs more to touch for the first time than most passes over it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from lotan.memory.mapped import MappedMemory


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
        self._held: dict[int, _Held] = {}  # by the id of the tensor
        self._free: dict[int, list[Tensor]] = defaultdict(list)  # by size

    def new(self, rows: int, shape: tuple[int, ...]) -> Tensor:
        """Return a column [rows, *shape] with arbitrary numbers in it, and one user."""
        size = rows * torch.Size(shape).numel()
        memory = self._free[size].pop() if self._free[size] else self._fresh(size)
        column = memory.view(rows, *shape)
        self._held[id(column)] = _Held(column, memory)
        return column

    def _fresh(self, size: int) -> Tensor:
        return torch.empty(size) if self.mapped is None else self.mapped.new(size)

    def stored(self, column: Tensor) -> Tensor:
        """Return a column from elsewhere, or a copy in files if columns lie there."""
        if self.mapped is None or self.mapped.holds(column):
            return column
        return self.new(len(column), column.shape[1:]).copy_(column)

    def share(self, column: Tensor) -> Tensor:
        """Count one more user of a column, and return the column."""
        if id(column) in self._held:
            self._held[id(column)].users += 1
        return column

    def release(self, column: Tensor) -> None:
        """Count one user fewer. Without users, the column's memory is free."""
        held = self._held.get(id(column))
        if held is None:
            return
        held.users -= 1
        if held.users == 0:
            del self._held[id(column)]
            self._free[held.memory.numel()].append(held.memory)

    def hand_over(self, column: Tensor) -> Tensor:
        """Give a column to the caller, and stop counting its users."""
        self._held.pop(id(column), None)
        return column

    def forget(self) -> None:
        """Forget all columns. Their memory may still be visible to somebody, and so is not used again."""
        self._held.clear()
