"""Values that forward runs save for their backward: in memory within a budget, beyond it in a file, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from lotan.stages.chunk import Saved, Terms
from lotan.stages.spill_file import SpillFile
from messenger.jobs import ChunkKey

_Key = tuple[str, int, str, int, int]


@dataclass
class Size:
    """The bytes that a forward run has saved."""

    bytes: int = 0


@dataclass
class _Held:
    saved: Saved
    bytes: int  # bytes in memory
    terms: Terms


class SavedRuns:
    """Saved forward runs, by chunk. If a run is not saved, its backward computes it again, to the same bits.

    Args:
        budget: The bytes of memory for saved runs.
        file: The file for what exceeds them; None: it is not saved.
    """

    def __init__(self, budget: int, file: SpillFile | None = None) -> None:
        self._budget = budget
        self._file = file
        self._held: dict[_Key, _Held] = {}
        self._in_memory: dict[float, dict[_Key, None]] = {}  # by worth, which the runs of a stage have in common
        self._bytes = 0

    def takes(self, terms: Terms) -> bool:
        """Return True if another run on these terms would be worth saving."""
        if self._bytes < self._budget or (terms.spills and self._file is not None and self._file.has_room):
            return True
        return any(worth < terms.worth for worth in self._in_memory)

    @contextmanager
    def measured(self) -> Iterator[Size]:
        """Count the bytes that autograd saves within the block; shared memory counts once."""
        size, seen = Size(), set()

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                size.bytes += storage.nbytes()
            return tensor.detach()  # an output that refers to its own graph within that graph would never be freed

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield size

    def put(self, key: ChunkKey, saved: Saved, size: int, terms: Terms) -> None:
        """Save a run in memory, if there is room or if it is worth more than the runs that must leave for it.

        A run that must leave goes to the file or is forgotten, and so does this run if it is not worth more. A second
        attempt at a chunk replaces the first.
        """
        self._drop(_of(key))
        leaving = self._least_worth(self._bytes + size - self._budget, terms.worth)
        self._hold(_of(key), _Held(saved, size, terms))
        for one in [_of(key)] if leaving is None else leaving:
            self._put_out(one)

    def _least_worth(self, excess: int, worth: float) -> list[_Key] | None:
        """Return less worthy runs that take that many bytes together; None if there are not enough."""
        leaving: list[_Key] = []
        for less in sorted(one for one in self._in_memory if one < worth):
            for key in self._in_memory[less]:
                if excess <= 0:
                    return leaving
                leaving.append(key)
                excess -= self._held[key].bytes
        return leaving if excess <= 0 else None

    def _put_out(self, key: _Key) -> None:
        """Move a run out of memory: to the file, or for good."""
        one = self._held[key]
        self._free(key, one)
        if not one.terms.spills or self._file is None or not one.saved.stow(self._file):
            self._drop(key)

    def _hold(self, key: _Key, one: _Held) -> None:
        self._held[key] = one
        self._in_memory.setdefault(one.terms.worth, {})[key] = None
        self._bytes += one.bytes

    def _free(self, key: _Key, one: _Held) -> None:
        """Count a run's memory as free, if it was in memory."""
        alike = self._in_memory.get(one.terms.worth, {})
        if key not in alike:
            return
        self._bytes -= one.bytes
        del alike[key]
        if not alike:
            del self._in_memory[one.terms.worth]

    def has(self, key: ChunkKey) -> bool:
        """Return True if the run of a chunk is saved."""
        return _of(key) in self._held

    def take(self, key: ChunkKey) -> Saved | None:
        """Return the saved run of a chunk, and forget it; None if there is none."""
        one = self._held.pop(_of(key), None)
        if one is None:
            return None
        self._free(_of(key), one)
        if self._file is not None:
            one.saved.fetch(self._file)
        return one.saved

    def forget(self, run: str) -> None:
        """Forget all saved values of a run."""
        for key in [key for key in self._held if key[0] == run]:
            self._drop(key)

    def clear(self) -> None:
        """Free the disk if nothing is saved."""
        if self._file is not None and not self._held:
            self._file.clear()

    def _drop(self, key: _Key) -> None:
        one = self._held.pop(key, None)
        if one is None:
            return
        self._free(key, one)
        if self._file is not None:
            one.saved.drop(self._file)


def _of(key: ChunkKey) -> _Key:
    return key.run, key.pass_number, key.stage, key.partition, key.chunk
