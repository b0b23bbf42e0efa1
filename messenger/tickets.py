"""A worker's state for one Dealer's ticket: chunks that wait for their turn, and the sums of the open group."""

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
class WaitingChunk:
    """A chunk that waits for its turn, and perhaps for tensors that its Dealer offered by checksum or as spares."""

    key: ChunkKey
    digest: int
    tensors: dict[str, np.ndarray]  # the tensors that are here
    missing: dict[str, Offer]  # tensors that were offered by checksum and that the worker has not kept
    spares: frozenset[str] = frozenset()  # tensors that are sent only if the worker asks for them
    awaited: set[str] = field(default_factory=set)  # spares that were asked for and have not arrived
    reply: tuple[str, int, int] | None = None  # shared memory for the result: region, offset, bytes

    @classmethod
    def of(cls, message: Message, kept: KeptTensors) -> WaitingChunk:
        """Return the chunk of a CHUNK message, completed with tensors that the worker has kept."""
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
        """True if no tensor is missing or awaited."""
        return not self.missing and not self.awaited

    def needs(self, spares: bool) -> list[str]:
        """Return the names of the tensors to ask for now.

        Args:
            spares: if True, the spare tensors are among them, unless they are here or were asked for before.
        """
        if spares and not self.awaited and not self.tensors.keys() >= self.spares:
            self.awaited = set(self.spares)
        return sorted(self.missing.keys() | self.awaited)

    def fill(self, message: Message, kept: KeptTensors) -> None:
        """Take tensors that were asked for. Those that were offered by checksum are kept for later epochs.

        Raises:
            FrameError: a tensor is not the one that was offered.
        """
        for name, array in message.tensors.items():
            if name in self.awaited:
                self.tensors[name] = array
                self.awaited.remove(name)
            offer = self.missing.get(name)
            if offer is None:
                continue
            if message.shared:  # the Dealer lends its memory for this chunk only
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
class WaitingEnd:
    """The end of a group, which waits for its turn."""

    group: int
    count: int


@dataclass
class Ticket:
    """A Dealer's attempt to pipe a partition, as its worker sees it."""

    dealer: bytes
    number: int
    next_seq: int = 0  # number of the next CHUNK or END message
    over: bool = False  # True if the ticket failed or is out of step; its further messages are ignored
    waiting: deque[WaitingChunk | WaitingEnd] = field(default_factory=deque)
    _sums: Sums = field(default_factory=Sums)
    _count: int = 0

    def add(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Add a chunk's gradients and statistics to the open group."""
        self._sums.add(tensors)
        self._count += 1

    def take_group(self) -> tuple[dict[str, np.ndarray], int]:
        """Return the open group's sums and its number of chunks, and open a new group."""
        sums, count = self._sums.tensors, self._count
        self._sums, self._count = Sums(), 0
        return sums, count
