"""What forward runs keep for their backward: in memory within a budget of bytes, beyond it in a file, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from lotan.spill_file import SpillFile
from lotan.stages import Saved
from messenger.jobs import ChunkKey

_Key = tuple[str, int, str, int, int]


@dataclass
class Size:
    """Bytes that a forward run left behind."""

    bytes: int = 0


class SavedGraphs:
    """Kept forward runs, by chunk. A run that is not kept is computed again by its backward, to the same bits.

    Args:
        budget: bytes of memory.
        file: for what exceeds them; None: it is not kept.
    """

    def __init__(self, budget: int, file: SpillFile | None = None) -> None:
        self._budget = budget
        self._file = file
        self._held: dict[_Key, tuple[Saved, int]] = {}
        self._bytes = 0

    def takes(self, spills: bool) -> bool:
        """Whether it is worth recording another run.

        Args:
            spills: whether reading it from a file costs less than computing it again.
        """
        return self._bytes < self._budget or (spills and self._file is not None and self._file.has_room)

    @contextmanager
    def measured(self) -> Iterator[Size]:
        """Counts what autograd saves meanwhile, each memory once."""
        size, seen = Size(), set()

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                size.bytes += storage.nbytes()
            return tensor.detach()  # an output that knew its graph, in that graph, would keep it for ever

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield size

    def put(self, key: ChunkKey, saved: Saved, size: int, spills: bool) -> None:
        """Keep a run where there is room. A second attempt replaces the first."""
        self._drop(_of(key))
        if self._bytes + size <= self._budget:
            self._held[_of(key)] = (saved, size)
            self._bytes += size
        elif spills and self._file is not None:
            self._held[_of(key)] = (saved, 0)
            if not saved.stow(self._file):
                self._drop(_of(key))

    def has(self, key: ChunkKey) -> bool:
        """Whether the run of that chunk is kept."""
        return _of(key) in self._held

    def take(self, key: ChunkKey) -> Saved | None:
        """The run of that chunk, once."""
        saved, size = self._held.pop(_of(key), (None, 0))
        self._bytes -= size
        if saved is not None and self._file is not None:
            saved.fetch(self._file)
        return saved

    def forget(self, run: str) -> None:
        """Drop all of a run."""
        for key in [key for key in self._held if key[0] == run]:
            self._drop(key)

    def clear(self) -> None:
        """Give the disk back where nothing is kept."""
        if self._file is not None and not self._held:
            self._file.clear()

    def _drop(self, key: _Key) -> None:
        saved, size = self._held.pop(key, (None, 0))
        self._bytes -= size
        if saved is not None and self._file is not None:
            saved.drop(self._file)


def _of(key: ChunkKey) -> _Key:
    return key.run, key.epoch, key.stage, key.partition, key.chunk
