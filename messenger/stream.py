"""A Dealer's book-keeping for one partition: what to send next, what has come back, what to send again. Does no I/O."""

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
    """A run of consecutive chunks whose gradients a worker sums; open until the worker has handed the sums over."""

    index: int
    chunks: list[OutgoingChunk] = field(default_factory=list)  # kept for a replay
    results: dict[int, int] = field(default_factory=dict)  # chunk index -> checksum of its result, once returned
    closed: bool = False  # no chunk will be added


@dataclass(frozen=True)
class SendChunk:
    """To do: send this chunk."""

    group: int
    chunk: OutgoingChunk


@dataclass(frozen=True)
class SendEnd:
    """To do: close this group."""

    group: int
    count: int


class Stream:
    """One attempt's state. Sums and checksum are those of an undisturbed run, whatever was replayed."""

    def __init__(self, job: PipeJob, group_chunks: int) -> None:
        self.job = job
        self.count = 0
        self.rows = 0
        self.sums = Sums()
        self.in_flight: deque[OutgoingChunk] = deque()  # sent, not answered, in order
        self.ready: deque[ReturnedChunk] = deque()  # answered, not yet handed on
        self._group_chunks = group_chunks
        self._groups: deque[Group] = deque()  # unfinished ones, oldest first
        self._unsent: deque[SendChunk | SendEnd] = deque()
        self._last = -1  # index of the newest chunk
        self._handed = 0  # chunks before this index were handed on
        self._ended = False
        self._results = xxhash.xxh64()

    @property
    def done(self) -> bool:
        """Whether all chunks were answered and all groups handed over. What is `ready` may be left."""
        return self._ended and not self._groups and not self._unsent and not self.in_flight

    @property
    def unsent(self) -> bool:
        """Whether `take` has something."""
        return bool(self._unsent)

    @property
    def checksum(self) -> int:
        """Of all that this partition came to: results and sums. Attempts are compared by it."""
        state = self._results.copy()
        state.update(self.sums.checksum().to_bytes(8, "little"))
        return state.intdigest()

    def add(self, chunk: OutgoingChunk) -> None:
        """Take the next chunk of the partition.

        Raises:
            MessengerError: chunks are out of order.
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
        """No more chunks."""
        if self._groups and not self._groups[-1].closed:
            self._close(self._groups[-1])
        self._ended = True

    def _close(self, group: Group) -> None:
        group.closed = True
        if self.job.accumulates:
            self._unsent.append(SendEnd(group.index, len(group.chunks)))
        self._finish_returned()

    def take(self) -> SendChunk | SendEnd | None:
        """What to send next, if anything; a chunk counts as in flight from now on."""
        if not self._unsent:
            return None
        item = self._unsent.popleft()
        if isinstance(item, SendChunk):
            self.in_flight.append(item.chunk)
        return item

    def result(self, message: Message) -> OutgoingChunk:
        """Take a RESULT; one that has been handed on before is only compared. Returns the chunk that it is of.

        Raises:
            ConflictError: it is not the answer to the oldest chunk in flight, or differs from the one before the
            replay.
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
        self._hand_on(group, chunk, message)
        return chunk

    def _hand_on(self, group: Group, chunk: OutgoingChunk, message: Message) -> None:
        if not self.job.accumulates:
            group.chunks = [one for one in group.chunks if one is not chunk]
        if chunk.index >= self._handed:
            self._handed = chunk.index + 1
            for number in (chunk.index, chunk.first_row, chunk.rows, chunk.digest, message.checksum):
                self._results.update(number.to_bytes(8, "little"))
            self.ready.append(ReturnedChunk(chunk.index, chunk.first_row, chunk.rows, chunk.digest, message.tensors))
        self._finish_returned()

    def _finish_returned(self) -> None:
        """Where nothing is summed, a group is finished when its chunks are back."""
        while not self.job.accumulates and self._groups and self._groups[0].closed and not self._groups[0].chunks:
            self._groups.popleft()

    def partial(self, message: Message) -> None:
        """Take a group's sums.

        Raises:
            ConflictError: not those of the oldest open group, complete.
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
        """The worker is lost: everything of the open groups is to be sent again."""
        self.in_flight.clear()
        self._unsent.clear()
        for group in self._groups:
            self._unsent.extend(SendChunk(group.index, chunk) for chunk in group.chunks)
            if group.closed and self.job.accumulates:
                self._unsent.append(SendEnd(group.index, len(group.chunks)))

    def find(self, index: int) -> OutgoingChunk | None:
        """The chunk of that index, while it is in flight."""
        return next((chunk for chunk in self.in_flight if chunk.index == index), None)

    def _conflict(self, what: str) -> ConflictError:
        return ConflictError(f"{what}, in {self.job}", stage=self.job.stage, partition=self.job.partition)
