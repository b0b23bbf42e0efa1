"""Memory of columns: what one column no longer needs, the next of its size takes over.

Memory that is fresh from the system costs more to touch for the first time than most passes over it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class _Held:
    column: Tensor
    memory: Tensor
    users: int = 1


class Columns:
    """Lends columns, float32, and counts who uses them. Columns from elsewhere are let pass."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}  # by id of the tensor
        self._free: dict[int, list[Tensor]] = defaultdict(list)  # by size

    def new(self, rows: int, shape: tuple[int, ...]) -> Tensor:
        """A column [rows, *shape] with any numbers in it, and one user."""
        size = rows * torch.Size(shape).numel()
        memory = self._free[size].pop() if self._free[size] else torch.empty(size)
        column = memory.view(rows, *shape)
        self._held[id(column)] = _Held(column, memory)
        return column

    def share(self, column: Tensor) -> Tensor:
        """One more user."""
        if id(column) in self._held:
            self._held[id(column)].users += 1
        return column

    def release(self, column: Tensor) -> None:
        """One user fewer; without any, the memory is free."""
        held = self._held.get(id(column))
        if held is None:
            return
        held.users -= 1
        if held.users == 0:
            del self._held[id(column)]
            self._free[held.memory.numel()].append(held.memory)

    def hand_over(self, column: Tensor) -> Tensor:
        """The column is the caller's from now on."""
        self._held.pop(id(column), None)
        return column

    def forget(self) -> None:
        """Nobody uses any column any more; their memory may be seen still, and so is not lent again."""
        self._held.clear()
