"""A worker's state for one Dealer's ticket: what has come and waits for its turn, and the sums of the open group."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from messenger.errors import FrameError
from messenger.frames import Message, checksum, raw_bytes
from messenger.jobs import ChunkKey
from messenger.kept import KeptTensors, Offer, Slot
from messenger.sums import Sums


@dataclass
class ParkedChunk:
    """A chunk, complete or waiting for tensors that were offered by checksum."""

    key: ChunkKey
    digest: int
    tensors: dict[str, np.ndarray]
    missing: dict[str, Offer]
    reply: tuple[str, int, int] | None = None  # shared memory for the result: region, offset, bytes

    @classmethod
    def of(cls, message: Message, kept: KeptTensors) -> ParkedChunk:
        """What a CHUNK brings, completed with what was kept."""
        header = message.header
        names = ("run", "epoch", "stage", "mode", "partition", "chunk", "first_row", "rows")
        chunk = cls(ChunkKey(**{name: header[name] for name in names}), header["digest"], dict(message.tensors), {})
        if "reply" in header:
            region, offset, size = header["reply"]
            chunk.reply = region, offset, size
        for name, dtype, shape, total, epoch_only in header["offers"]:
            offer = Offer(name, dtype, tuple(shape), total, epoch_only)
            array = kept.get(chunk._slot(name), offer)
            if array is None:
                chunk.missing[name] = offer
            else:
                chunk.tensors[name] = array
        return chunk

    def fill(self, message: Message, kept: KeptTensors) -> None:
        """Take tensors that were asked for, and keep them.

        Raises:
            FrameError: one is not the tensor that was offered.
        """
        for name, array in message.tensors.items():
            offer = self.missing.get(name)
            if offer is None:
                continue
            if message.shared:  # the Dealer's memory is ours for this chunk only
                array = array.copy()
                array.flags.writeable = False
            if Offer(name, array.dtype.name, array.shape, checksum([raw_bytes(array)]), offer.epoch_only) != offer:
                raise FrameError(f"tensor {name!r} of chunk {self.key.chunk} is not the one that was offered")
            kept.put(self._slot(name), offer, array, self.key.epoch)
            self.tensors[name] = array
            del self.missing[name]

    def _slot(self, name: str) -> Slot:
        return self.key.run, self.key.partition, self.key.chunk, name


@dataclass(frozen=True)
class ParkedEnd:
    """The end of a group, to be answered when its turn comes."""

    group: int
    count: int


@dataclass
class Ticket:
    """One attempt of one Dealer."""

    dealer: bytes
    number: int
    next_seq: int = 0
    over: bool = False  # failed or out of step; the rest of it is ignored
    parked: deque[ParkedChunk | ParkedEnd] = field(default_factory=deque)
    _sums: Sums = field(default_factory=Sums)
    _count: int = 0

    def add(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Add a chunk's gradients and statistics to the open group."""
        self._sums.add(tensors)
        self._count += 1

    def take_group(self) -> tuple[dict[str, np.ndarray], int]:
        """The open group's sums and number of chunks; a new group is open then."""
        sums, count = self._sums.tensors, self._count
        self._sums, self._count = Sums(), 0
        return sums, count
