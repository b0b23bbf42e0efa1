"""A worker's state for one Dealer's ticket: chunks that wait for their turn, and the sums of the open group."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from messenger.errors import FrameError
from messenger.frames import DTYPES, Message, check_shape, raw_bytes, tensor_checksum
from messenger.jobs import ChunkKey
from messenger.kept import KeptTensors, Offer, Slot
from messenger.kept_rows import ROW_CHECKSUMS, layout_of, row_checksums
from messenger.room import aligned
from messenger.settings import Limits
from messenger.sums import Sums


@dataclass
class OfferedRows:
    """The tensors of a chunk that its Dealer has offered row by row. Some of their rows may not be here yet."""

    keys: np.ndarray
    checksums: np.ndarray
    tensors: dict[str, np.ndarray]  # rows that are not here have any content
    lacking: np.ndarray  # positions of rows that are not here, int32

    @classmethod
    def of(cls, message: Message, kept: KeptTensors, limits: Limits) -> OfferedRows:
        """Return the offered tensors of a CHUNK message, with the rows that the worker has kept.

        Raises:
            FrameError: the offer contradicts itself, or exceeds the limits.
        """
        header = message.header
        keys, checksums = (message.tensors.get(name) for name in (header.get("row_keys", ""), ROW_CHECKSUMS))
        count = header["rows"]
        for one in (keys, checksums):
            if one is None or one.shape != (count,) or one.dtype.name != "int64":
                raise FrameError(f"rows of chunk {header['chunk']} are offered without {count} keys and checksums")
        assert keys is not None
        assert checksums is not None
        size = sum(check_shape(name, dtype, shape, limits) for name, dtype, shape in header["row_offers"])
        if size > limits.message_bytes or any(shape[0] != count for _, _, shape in header["row_offers"]):
            raise FrameError(f"the rows that are offered of chunk {header['chunk']} are not {count} within the limits")
        tensors = {name: aligned(tuple(shape), DTYPES[dtype]) for name, dtype, shape in header["row_offers"]}
        lacking = kept.rows.take(header["run"], layout_of(tensors), keys, checksums, tensors)
        return cls(keys, checksums, tensors, lacking)

    def fill(self, run: str, chunk: int, given: Mapping[str, np.ndarray], kept: KeptTensors) -> None:
        """Take the rows that were asked for, and keep them.

        Raises:
            FrameError: they are not the rows that were offered.
        """
        lacking, layout = self.lacking, layout_of(self.tensors)
        rows = {name: given[name] for name in self.tensors if name in given}
        same = layout_of(rows) == layout and all(len(one) == len(lacking) for one in rows.values())
        if not same or not np.array_equal(row_checksums(rows, layout), self.checksums[lacking]):
            raise FrameError(f"the rows of chunk {chunk} are not those that were offered")
        for name, one in rows.items():
            self.tensors[name][lacking] = one
        kept.put_rows(run, layout, self.keys[lacking], self.checksums[lacking], rows)
        self.lacking = lacking[:0]


@dataclass
class WaitingChunk:
    """A chunk that waits for its turn, and perhaps for tensors or rows that its Dealer offered, or for spares."""

    key: ChunkKey
    digest: int
    tensors: dict[str, np.ndarray]  # the tensors that are here
    missing: dict[str, Offer]  # tensors that were offered by checksum and that the worker has not kept
    spares: frozenset[str] = frozenset()  # tensors that are sent only if the worker asks for them
    awaited: set[str] = field(default_factory=set)  # spares that were asked for and have not arrived
    reply: tuple[str, int, int] | None = None  # shared memory for the result: region, offset, bytes
    rows: OfferedRows | None = None  # what was offered row by row

    @classmethod
    def of(cls, message: Message, kept: KeptTensors, limits: Limits) -> WaitingChunk:
        """Return the chunk of a CHUNK message, completed with tensors and rows that the worker has kept.

        Raises:
            FrameError: what is offered contradicts itself, or exceeds the limits.
        """
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
        if header.get("row_offers"):
            chunk.rows = OfferedRows.of(message, kept, limits)
            chunk.tensors |= chunk.rows.tensors
            del chunk.tensors[ROW_CHECKSUMS]
        return chunk

    @property
    def complete(self) -> bool:
        """True if no tensor and no row is missing or awaited."""
        return not self.missing and not self.awaited and not len(self.lacking)

    @property
    def lacking(self) -> np.ndarray:
        """The positions of the offered rows that are not here yet. int32"""
        return np.empty(0, np.int32) if self.rows is None else self.rows.lacking

    def needs(self, spares: bool) -> list[str]:
        """Return the names of the tensors to ask for now.

        Args:
            spares: if True, the spare tensors are among them, unless they are here or were asked for before.
        """
        if spares and not self.awaited and not self.tensors.keys() >= self.spares:
            self.awaited = set(self.spares)
        by_row = self.rows.tensors.keys() if self.rows is not None and len(self.rows.lacking) else set()
        return sorted(self.missing.keys() | self.awaited | by_row)

    def fill(self, message: Message, kept: KeptTensors) -> None:
        """Take tensors and rows that were asked for. Those that were offered are kept for later.

        Raises:
            FrameError: a tensor or a row is not the one that was offered.
        """
        if len(self.lacking) and self.rows is not None:
            self.rows.fill(self.key.run, self.key.chunk, message.tensors, kept)
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
