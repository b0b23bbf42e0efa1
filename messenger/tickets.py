"""A worker's state for one Dealer's ticket: what has come and waits for its turn, and the sums of the open group."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from messenger.errors import FrameError
from messenger.frames import Message, raw_bytes, tensor_checksum
from messenger.jobs import ChunkKey
from messenger.kept import KeptTensors, Offer, Slot
from messenger.room import aligned
from messenger.sums import Sums


@dataclass
class ParkedChunk:
    """A chunk, complete or waiting for tensors that it was offered, by checksum or as spare ones."""

    key: ChunkKey
    digest: int
    tensors: dict[str, np.ndarray]
    missing: dict[str, Offer]
    spares: frozenset[str] = frozenset()  # to be had for the asking
    awaited: set[str] = field(default_factory=set)  # those of them that were asked for and are not here
    reply: tuple[str, int, int] | None = None  # shared memory for the result: region, offset, bytes

    @classmethod
    def of(cls, message: Message, kept: KeptTensors) -> ParkedChunk:
        """What a CHUNK brings, completed with what was kept."""
        header = message.header
        names = ("run", "epoch", "stage", "mode", "partition", "chunk", "first_row", "rows")
        chunk = cls(ChunkKey(*(header[name] for name in names)), header["digest"], dict(message.tensors), {})
        chunk.spares = frozenset(header.get("spares", ()))
        if "reply" in header:
            region, offset, size = header["reply"]
            chunk.reply = region, offset, size
        for name, dtype, shape, total, epoch_only in header["offers"]:
            offer = Offer(name, dtype, tuple(shape), total, epoch_only)
            array = kept.get(chunk._slot(offer), offer)
            if array is None:
                chunk.missing[name] = offer
            else:
                chunk.tensors[name] = array
        return chunk

    @property
    def complete(self) -> bool:
        """Whether all that it lacked and asked for is here."""
        return not self.missing and not self.awaited

    def want(self, spares: bool) -> list[str]:
        """The names to ask for now: what is missing, with or without the spare ones. Each is asked for once."""
        if spares and not self.awaited and not self.tensors.keys() >= self.spares:
            self.awaited = set(self.spares)
        return sorted(self.missing.keys() | self.awaited)

    def fill(self, message: Message, kept: KeptTensors) -> None:
        """Take tensors that were asked for, and keep those that were offered by checksum.

        Raises:
            FrameError: one is not the tensor that was offered.
        """
        for name, array in message.tensors.items():
            if name in self.awaited:
                self.tensors[name] = array
                self.awaited.remove(name)
            offer = self.missing.get(name)
            if offer is None:
                continue
            if message.shared:  # the Dealer's memory is ours for this chunk only
                copy = aligned(array.shape, array.dtype)
                copy[...] = array
                copy.flags.writeable = False
                array = copy
            if Offer(name, array.dtype.name, array.shape, tensor_checksum(raw_bytes(array)), offer.epoch_only) != offer:
                raise FrameError(f"tensor {name!r} of chunk {self.key.chunk} is not the one that was offered")
            kept.put(self._slot(offer), offer, array, self.key.pass_number)
            self.tensors[name] = array
            del self.missing[name]

    def _slot(self, offer: Offer) -> Slot:
        return self.key.run, self.key.partition, self.key.chunk, offer.name, offer.shape


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
