"""What a forward run of known calls keeps for its backward: values in memory that is used again, or in a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import local

import torch
from torch import Tensor

from lotan.stages.chunk import Saved
from lotan.stages.spill_file import Extent, SpillFile


class Scratch(local):
    """Buffers of one thread, by width, as high as the highest chunk so far."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, int], Tensor] = {}

    def get(self, number: int, rows: int, width: int) -> Tensor:
        """Memory [rows, width] that the next caller with this number and width gets too."""
        key = number, width
        buffer = self._buffers.get(key)
        if buffer is None or buffer.shape[0] < rows:
            buffer = self._buffers[key] = torch.empty(rows, width)
        return buffer if buffer.shape[0] == rows else buffer[:rows]


class Memory:
    """Memory that stages use again, by width: `take` and `give` are for values that a run keeps, `scratch` for all others.

    Whoever makes the programs of a plan makes one for them all. It is freed with them.
    """

    def __init__(self) -> None:
        self.scratch = Scratch()
        self._free: dict[int, list[Tensor]] = {}

    def take(self, rows: int, width: int) -> Tensor:
        """[rows or more, width]."""
        try:
            found = self._free[width].pop()  # threads ask at once
        except (KeyError, IndexError):
            found = None
        if found is None or found.shape[0] < rows:
            found = torch.empty(rows, width)
        return found

    def give(self, values: dict[int, Tensor]) -> None:
        """Take back what nobody reads any more."""
        while values:
            _, memory = values.popitem()
            self._free.setdefault(memory.shape[1], []).append(memory)


@dataclass(eq=False)
class SavedValues(Saved):
    """What backward reads of a forward run. Its memory is taken over by a later run once it was used, or is in a file."""

    rows: int
    memory: Memory
    values: dict[int, Tensor] = field(default_factory=dict)  # by region; as many rows as the chunk has, or more
    places: dict[int, tuple[Extent, int]] = field(
        default_factory=dict
    )  # of those in the file instead, and their widths

    @property
    def bytes(self) -> int:
        """Memory held."""
        return sum(value.nbytes for value in self.values.values())

    def stow(self, file: SpillFile) -> bool:
        """Move the values to the file."""
        places = file.write([value[: self.rows] for value in self.values.values()])
        if places is None:
            return False
        self.places = {r: (place, self.values[r].shape[1]) for r, place in zip(self.values, places, strict=True)}
        self.memory.give(self.values)
        return True

    def fetch(self, file: SpillFile) -> None:
        """Bring them back, into memory as aligned as it was: the same bits come of it."""
        for region, (place, width) in self.places.items():
            self.values[region] = self.memory.take(self.rows, width)
            file.read(place, self.values[region][: self.rows])
        self.drop(file)

    def drop(self, file: SpillFile) -> None:
        """Free their room in the file."""
        file.free([place for place, _ in self.places.values()])
        self.places = {}
