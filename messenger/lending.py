"""The shared memory that a Dealer lends to workers, for a chunk's tensors and for its result.

To lend is to let a worker use bytes of the Dealer's region until it has sent the chunk's result. The rules are in
`messenger.shared_memory`. This module does no I/O except for the memory itself.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from messenger.errors import FrameError
from messenger.fields import ALIGNMENT
from messenger.frames import Message
from messenger.jobs import OutgoingChunk, PipeJob
from messenger.settings import Settings
from messenger.shared_memory import Region
from messenger.spaces import Space, space_bytes

log = logging.getLogger(__name__)

INLINE_LIMIT = (
    4096  # so many partitions whose workers share no memory are remembered; beyond, the oldest is tried again
)

_warned: set[str] = set()  # warnings that this process has logged


@dataclass
class Loan:
    """The bytes of a region that are lent for one chunk in flight.

    It is the `messenger.frames.Regions` with which the chunk's result is decoded.
    """

    region: Region
    sent: list[Space] = field(default_factory=list)  # the chunk's tensors
    reply: Space | None = None  # for the chunk's result
    _result: memoryview | None = None  # the bytes of `reply`, once the result is in them

    def view(self, region: str, offset: int, size: int) -> memoryview:
        """Return bytes of the result.

        Raises:
            FrameError: these bytes were not lent for the result.
        """
        reply = self.reply
        start = offset - reply.offset if reply is not None else -1
        if reply is None or region != reply.region or start < 0 or start + size > reply.memory.nbytes:
            raise FrameError(f"a result is at {offset} of the region {region}, {size} bytes that were not lent for it")
        if self._result is None:
            self._result = self.region.give_when_unread(reply)
        return self._result[start : start + size]

    def end(self) -> None:
        """Free what was lent. The bytes of a result are freed only when nobody reads it any more."""
        for space in self.sent:
            self.region.give(space)
        if self.reply is not None and self._result is None:
            self.region.give(self.reply)
        self._result = None


class Lender:
    """A Dealer's region, made when it is first needed, and the loans to the worker of the current ticket."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._region: Region | None = None
        self._full = False  # the file system had no space; it is tried again for the next partition
        self._loans: dict[int, Loan] = {}  # by chunk
        self._inline: dict[
            tuple[str, int], None
        ] = {}  # run and partition whose worker shares no memory with the Dealer
        self._sharers: set[bytes] = set()  # workers that have read shared tensors
        self._results: dict[tuple[str, str], tuple[float, int]] = {}  # stage and mode -> most bytes a row, most tensors

    def begin(self, job: PipeJob) -> None:
        """Begin a partition."""
        self._job = job
        self._full = False
        if (
            self._region is not None and self._region.pid != os.getpid()
        ):  # after a fork the region belongs to the parent
            self._region, self._loans = None, {}

    @property
    def sharing(self) -> bool:
        """True if this partition's tensors go through shared memory, as long as there is space."""
        return self._settings.shared_bytes > 0 and (self._job.run, self._job.partition) not in self._inline

    def lend(self, chunk: OutgoingChunk, tensors: Iterable[np.ndarray]) -> Space | None:
        """Return space for tensors of a chunk, or None if they must travel inline."""
        size = space_bytes(tensors)
        space = self._take(size) if size else None
        if space is not None:
            self._loan(chunk).sent.append(space)
        return space

    def lend_reply(self, chunk: OutgoingChunk) -> Space | None:
        """Return space for a chunk's result, or None if the result must travel inline.

        Its size is that of the largest result so far, in proportion to the chunk's rows.
        """
        known = self._results.get((self._job.stage, self._job.mode))
        if known is None:
            size = space_bytes(chunk.tensors.values())  # a first guess
        else:
            size = ALIGNMENT * (math.ceil(known[0] * chunk.rows / ALIGNMENT) + known[1])
        space = self._take(size) if size else None
        if space is not None:
            self._loan(chunk).reply = space
        return space

    def loan(self, chunk: int | None) -> Loan | None:
        """Return what is lent for a chunk in flight, or None if nothing is."""
        return None if chunk is None else self._loans.get(chunk)

    def settle(self, worker: bytes, chunk: OutgoingChunk, result: Message) -> None:
        """End the loan for a chunk whose result has arrived."""
        key = self._job.stage, self._job.mode
        row_bytes = sum(tensor.nbytes for tensor in result.tensors.values()) / max(1, chunk.rows)
        most = self._results.get(key, (0.0, 0))
        self._results[key] = max(row_bytes, most[0]), max(len(result.tensors), most[1])
        if (loan := self._loans.pop(chunk.index, None)) is not None:
            loan.end()
            if loan.sent:
                self._sharers.add(worker)
        elif worker in self._sharers:  # the partition has moved to a worker on this host
            self._inline.pop((self._job.run, self._job.partition), None)

    def send_inline(self, worker: bytes) -> bool:
        """Send the partition's tensors inline from now on, because its worker cannot map the region.

        Such a worker has not touched the region, so all loans end.

        Returns:
            False if the partition's tensors travel inline already.
        """
        if not self.sharing:
            return False
        self._inline[self._job.run, self._job.partition] = None
        if len(self._inline) > INLINE_LIMIT:
            del self._inline[next(iter(self._inline))]
        self._sharers.discard(worker)
        for loan in self._loans.values():
            loan.end()
        self._loans.clear()
        return True

    def give_up(self) -> None:
        """End a ticket. If a chunk is still in flight, its worker may write later, so the region is not used again."""
        if self._loans:
            self.close()

    def close(self) -> None:
        """Free the region as soon as nobody reads a result in it. Another region is made when it is needed."""
        self._loans.clear()
        if self._region is not None:
            self._region.close()
            self._region = None

    def _loan(self, chunk: OutgoingChunk) -> Loan:
        assert self._region is not None
        return self._loans.setdefault(chunk.index, Loan(self._region))

    def _take(self, size: int) -> Space | None:
        if self._full or not self.sharing:
            return None
        try:
            if self._region is None:
                self._region = Region(self._settings.shared_directory, self._settings.shared_bytes)
            return self._region.take(size)
        except OSError as error:
            self._full = True
            _warn(
                f"no shared memory in {self._settings.shared_directory} (shared_directory): {error.strerror or error};"
                " tensors travel through sockets, which is slower. Free space there, or set shared_bytes lower"
            )
            return None


def _warn(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        log.warning(text)
