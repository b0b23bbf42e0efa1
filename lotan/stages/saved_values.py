"""The values that a forward run of known calls keeps for its backward, in memory that is used again or in a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import local

import torch
from torch import Tensor

from lotan.stages.chunk import Saved
from lotan.stages.spill_file import Extent, SpillFile


class Scratch(local):
    """The buffers of one thread, by width. They have as many rows as the largest chunk so far."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, int], Tensor] = {}

    def get(self, number: int, rows: int, width: int) -> Tensor:
        """Return memory [rows, width], which the next caller with this number and width gets as well."""
        key = number, width
        buffer = self._buffers.get(key)
        if buffer is None or buffer.shape[0] < rows:
            buffer = self._buffers[key] = torch.empty(rows, width)
        return buffer if buffer.shape[0] == rows else buffer[:rows]


class Memory:
    """The memory that stages use again, by width: `take` and `give` serve values that a run keeps, `scratch` all others.

    All programs of a plan share one, and it is freed with them. The memory of finished runs of all stages is used again.

    Args:
        most: The most pieces of one width that wait for their next use; None: any number.
    """

    def __init__(self, most: int | None = None) -> None:
        self.scratch = Scratch()
        self._most = most
        self._free: dict[int, list[Tensor]] = {}

    def take(self, rows: int, width: int) -> Tensor:
        """Return memory with at least `rows` rows, [rows or more, width]."""
        try:
            found = self._free[width].pop()  # several threads may ask at once
        except (KeyError, IndexError):
            found = None
        if found is None or found.shape[0] < rows:
            found = torch.empty(rows, width)
        return found

    def give(self, values: dict[int, Tensor]) -> None:
        """Take back memory that nothing reads any more."""
        while values:
            _, memory = values.popitem()
            free = self._free.setdefault(memory.shape[1], [])
            if self._most is None or len(free) < self._most:
                free.append(memory)


@dataclass(eq=False)
class SavedValues(Saved):
    """The values of a forward run that backward reads. After backward, a later run takes over their memory."""

    rows: int
    memory: Memory
    values: dict[int, Tensor] = field(default_factory=dict)  # by region; with as many rows as the chunk, or more
    places: dict[int, tuple[Extent, int]] = field(
        default_factory=dict
    )  # by region, the extents and widths of values in the file

    @property
    def bytes(self) -> int:
        """The number of bytes of memory that the values take."""
        return sum(value.nbytes for value in self.values.values())

    def stow(self, file: SpillFile) -> bool:
        """Move the values to the file. Return False if there is no room."""
        places = file.write([value[: self.rows] for value in self.values.values()])
        if places is None:
            return False
        self.places = {r: (place, self.values[r].shape[1]) for r, place in zip(self.values, places, strict=True)}
        self.memory.give(self.values)
        return True

    def fetch(self, file: SpillFile) -> None:
        """Read the values back into memory with the same alignment, so that results have the same bits."""
        for region, (place, width) in self.places.items():
            self.values[region] = self.memory.take(self.rows, width)
            file.read(place, self.values[region][: self.rows])
        self.drop(file)

    def drop(self, file: SpillFile) -> None:
        """Free the values' room in the file."""
        file.free([place for place, _ in self.places.values()])
        self.places = {}
