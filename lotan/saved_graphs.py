"""Autograd graphs that wait for their backward, within a budget of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from lotan.stages import Saved
from messenger.jobs import ChunkKey

_Key = tuple[str, int, str, int, int]


@dataclass
class Size:
    """Bytes that a forward run left behind."""

    bytes: int = 0


class SavedGraphs:
    """Kept forward runs, by chunk. A run that does not fit is not kept: its backward computes it again.

    Args:
        budget: bytes.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._held: dict[_Key, tuple[Saved, int]] = {}
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether it is not worth recording another run."""
        return self._bytes >= self._budget

    @contextmanager
    def measured(self) -> Iterator[Size]:
        """Counts what autograd saves meanwhile, each memory once."""
        size, seen = Size(), set()

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                size.bytes += storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield size

    def put(self, key: ChunkKey, saved: Saved, size: int) -> None:
        """Keep a run if it fits. A second attempt replaces the first."""
        self.take(key)
        if self._bytes + size <= self._budget:
            self._held[_of(key)] = (saved, size)
            self._bytes += size

    def has(self, key: ChunkKey) -> bool:
        """Whether the run of that chunk is kept."""
        return _of(key) in self._held

    def take(self, key: ChunkKey) -> Saved | None:
        """The run of that chunk, once."""
        saved, size = self._held.pop(_of(key), (None, 0))
        self._bytes -= size
        return saved

    def forget(self, run: str) -> None:
        """Drop all of a run."""
        for key in [key for key in self._held if key[0] == run]:
            self._bytes -= self._held.pop(key)[1]


def _of(key: ChunkKey) -> _Key:
    return key.run, key.epoch, key.stage, key.partition, key.chunk
