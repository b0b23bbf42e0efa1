"""What a forward run of known calls keeps for its backward: values in memory that is used again, or in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lotan.spill_file import Extent, SpillFile
from lotan.stages.chunk import Saved


class Memory:
    """Memory for values that are kept, by region: that of runs that are done with, where there is some."""

    def __init__(self, widths: Mapping[int, int]) -> None:
        self._widths = widths
        self._free: dict[int, list[Tensor]] = {region: [] for region in widths}

    def take(self, region: int, rows: int) -> Tensor:
        """[rows or more, width of the region]."""
        free = self._free[region]
        try:
            found = free.pop()
        except IndexError:
            found = None
        if found is None or found.shape[0] < rows:
            found = torch.empty(rows, self._widths[region])
        return found

    def give(self, values: dict[int, Tensor]) -> None:
        """Take back what nobody reads any more."""
        while values:
            region, memory = values.popitem()
            self._free[region].append(memory)


@dataclass(eq=False)
class SavedValues(Saved):
    """What backward reads of a forward run. Its memory is taken over by a later run once it was used, or is in a file."""

    rows: int
    memory: Memory
    values: dict[int, Tensor] = field(default_factory=dict)  # by region; as many rows as the chunk has, or more
    places: dict[int, Extent] = field(default_factory=dict)  # of those that are in the file instead

    @property
    def bytes(self) -> int:
        """Memory held."""
        return sum(value.nbytes for value in self.values.values())

    def stow(self, file: SpillFile) -> bool:
        """Move the values to the file."""
        places = file.write([value[: self.rows] for value in self.values.values()])
        if places is None:
            return False
        self.places = dict(zip(self.values, places, strict=True))
        self.memory.give(self.values)
        return True

    def fetch(self, file: SpillFile) -> None:
        """Bring them back, into memory as aligned as it was: the same bits come of it."""
        for region, place in self.places.items():
            self.values[region] = self.memory.take(region, self.rows)
            file.read(place, self.values[region][: self.rows])
        self.drop(file)

    def drop(self, file: SpillFile) -> None:
        """Free their room in the file."""
        file.free(list(self.places.values()))
        self.places = {}
