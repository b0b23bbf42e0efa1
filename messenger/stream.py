"""A Dealer's book-keeping for one partition: chunks to send, results returned, groups to send again. It does no I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import xxhash

from messenger.errors import ConflictError, MessengerError
from messenger.frames import Message
from messenger.jobs import OutgoingChunk, PipeJob, ReturnedChunk
from messenger.sums import Sums


@dataclass
class Group:
    """Consecutive chunks whose gradients a worker sums. A group is open until the worker has sent the sums."""

    index: int
    chunks: list[OutgoingChunk] = field(default_factory=list)  # to be sent again if the worker is lost
    results: dict[int, int] = field(default_factory=dict)  # chunk index -> checksum of its result, once returned
    closed: bool = False  # True if no chunk will be added


@dataclass(frozen=True)
class SendChunk:
    """The task to send a chunk."""

    group: int
    chunk: OutgoingChunk


@dataclass(frozen=True)
class SendEnd:
    """The task to close a group on the worker."""

    group: int
    count: int


class Stream:
    """The state of one task's attempt at a partition.

    Sums and checksum are those of an undisturbed run, even if groups were sent again.

    Args:
        job: the pass and the partition.
        group_chunks: number of chunks in a group.
    """

    def __init__(self, job: PipeJob, group_chunks: int) -> None:
        self.job = job
        self.count = 0
        self.rows = 0
        self.sums = Sums()
        self.in_flight: deque[OutgoingChunk] = deque()  # chunks without a result yet, in the order of sending
        self.ready: deque[ReturnedChunk] = deque()  # results that the caller has not taken yet
        self._group_chunks = group_chunks
        self._groups: deque[Group] = deque()  # open groups, oldest first
        self._unsent: deque[SendChunk | SendEnd] = deque()
        self._last = -1  # index of the newest chunk
        self._next_new = 0  # chunks before this index were returned once, so a second result is only compared
        self._ended = False  # True if no chunk will be added
        self._results = xxhash.xxh64()

    @property
    def done(self) -> bool:
        """True if every chunk has its result and every group its sums. Chunks may be left in `ready`."""
        return self._ended and not self._groups and not self._unsent and not self.in_flight

    @property
    def unsent(self) -> bool:
        """True if `take` will return a task."""
        return bool(self._unsent)

    @property
    def checksum(self) -> int:
        """The checksum of the partition's results and sums, by which attempts are compared."""
        state = self._results.copy()
        state.update(self.sums.checksum().to_bytes(8, "little"))
        return state.intdigest()

    def add(self, chunk: OutgoingChunk) -> None:
        """Add the next chunk of the partition.

        Raises:
            MessengerError: the chunk's index is not greater than the last one.
        """
        if chunk.index <= self._last:
            raise MessengerError(
                f"chunk {chunk.index} came after chunk {self._last}: a partition's chunks come in order"
            )
        self._last = chunk.index
        if not self._groups or self._groups[-1].closed:
            self._groups.append(Group(self.count // self._group_chunks))
        group = self._groups[-1]
        group.chunks.append(chunk)
        self._unsent.append(SendChunk(group.index, chunk))
        self.count += 1
        self.rows += chunk.rows
        if self.count % self._group_chunks == 0:
            self._close(group)

    def end(self) -> None:
        """Close the last group, because the partition has no more chunks."""
        if self._groups and not self._groups[-1].closed:
            self._close(self._groups[-1])
        self._ended = True

    def _close(self, group: Group) -> None:
        group.closed = True
        if self.job.accumulates:
            self._unsent.append(SendEnd(group.index, len(group.chunks)))
        self._finish_returned()

    def take(self) -> SendChunk | SendEnd | None:
        """Return the next task, or None. A chunk counts as in flight from then on."""
        if not self._unsent:
            return None
        item = self._unsent.popleft()
        if isinstance(item, SendChunk):
            self.in_flight.append(item.chunk)
        return item

    def result(self, message: Message) -> OutgoingChunk:
        """Take a RESULT and return its chunk. A chunk's second result, after a replay, is only compared with the first.

        Raises:
            ConflictError: the result is not that of the oldest chunk in flight, or differs from the chunk's first.
        """
        header = message.header
        if not self.in_flight or header["chunk"] != self.in_flight[0].index:
            raise self._conflict(f"a result of chunk {header['chunk']} arrived out of order")
        chunk = self.in_flight.popleft()
        if header["digest"] != chunk.digest:
            raise self._conflict(f"the result of chunk {chunk.index} is for other vertices")
        group = next(group for group in self._groups if any(one is chunk for one in group.chunks))
        before = group.results.setdefault(chunk.index, message.checksum)
        if before != message.checksum:
            raise self._conflict(f"chunk {chunk.index} had another result when it was sent again")
        self._return_once(group, chunk, message)
        return chunk

    def _return_once(self, group: Group, chunk: OutgoingChunk, message: Message) -> None:
        if not self.job.accumulates:
            group.chunks = [one for one in group.chunks if one is not chunk]
        if chunk.index >= self._next_new:
            self._next_new = chunk.index + 1
            for number in (chunk.index, chunk.first_row, chunk.rows, chunk.digest, message.checksum):
                self._results.update(number.to_bytes(8, "little"))
            self.ready.append(ReturnedChunk(chunk.index, chunk.first_row, chunk.rows, chunk.digest, message.tensors))
        self._finish_returned()

    def _finish_returned(self) -> None:
        """Drop closed groups whose chunks are all returned, if nothing is summed."""
        while not self.job.accumulates and self._groups and self._groups[0].closed and not self._groups[0].chunks:
            self._groups.popleft()

    def partial(self, message: Message) -> None:
        """Take a group's sums.

        Raises:
            ConflictError: they are not the complete sums of the oldest open group.
        """
        header = message.header
        group = self._groups[0] if self._groups else None
        if group is None or not group.closed or header["group"] != group.index:
            raise self._conflict(f"the sums of group {header['group']} arrived out of order")
        if header["count"] != len(group.chunks) or len(group.results) != len(group.chunks):
            raise self._conflict(
                f"the sums of group {group.index} are of {header['count']} chunks, not of {len(group.chunks)}"
            )
        self.sums.add(message.tensors)
        self._groups.popleft()

    def restart(self) -> None:
        """Schedule everything in the open groups to be sent again, because the worker is lost."""
        self.in_flight.clear()
        self._unsent.clear()
        for group in self._groups:
            self._unsent.extend(SendChunk(group.index, chunk) for chunk in group.chunks)
            if group.closed and self.job.accumulates:
                self._unsent.append(SendEnd(group.index, len(group.chunks)))

    def find(self, index: int) -> OutgoingChunk | None:
        """Return the chunk of that index, or None if it is not in flight."""
        return next((chunk for chunk in self.in_flight if chunk.index == index), None)

    def _conflict(self, what: str) -> ConflictError:
        return ConflictError(f"{what}, in {self.job}", stage=self.job.stage, partition=self.job.partition)
