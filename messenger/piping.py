"""One partition on its way through a worker.

An attempt to send a partition's open groups has a *ticket*, a number that only grows. A message that arrives under an
older ticket is ignored. When a worker is lost, the partition takes a new ticket and sends its open groups again, in
order. Results that were returned before are then compared and dropped, so that neither the rows nor the sums depend on
what went wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from messenger.connection import Connection
from messenger.errors import DeadlineError, FrameError, MessengerError, RemoteError, error_of
from messenger.fields import Kind
from messenger.frames import Frame, Message, complete, encode, peek
from messenger.jobs import OutgoingChunk, PipeJob, ReturnedChunk
from messenger.joining import peer_name
from messenger.kept_rows import ROWS
from messenger.lending import Lender
from messenger.messages import Moved, chunk_message, commit_message, end_message, may_offer_rows
from messenger.pump import router_lost
from messenger.settings import Settings
from messenger.spaces import Space
from messenger.stream import SendChunk, SendEnd, Stream
from messenger.transport import COORDINATOR, ROUTER


class Piping:
    """The state of one partition between its first chunk and its commit.

    Args:
        job: the pass and the partition.
        source: the partition's chunks, in order.
        connection: the Dealer's connection, open.
        lender: the Dealer's shared memory.
        tickets: numbers that only grow, one for each attempt.
        settings: deadlines and limits.
    """

    def __init__(
        self,
        job: PipeJob,
        source: Iterator[OutgoingChunk],
        connection: Connection,
        lender: Lender,
        tickets: Iterator[int],
        settings: Settings,
    ) -> None:
        self._job = job
        self._source = source
        self._connection = connection
        self._lender = lender
        self._tickets = tickets
        self._settings = settings
        self._stream = Stream(job, settings.group_chunks)
        self._moved = Moved()
        self._replays = 0
        self._exhausted = False  # the source has no more chunks
        self._committed = False  # the coordinator has acknowledged the commit
        self._ticket: int
        self._next_seq: int  # number of the ticket's next CHUNK or END message
        self._worker: str  # in words, for errors
        lender.begin(job)
        self._take_ticket()

    def run(self) -> Iterator[ReturnedChunk]:
        """Yield each chunk as the worker returned it, in order. Return when the partition is committed."""
        while not self._stream.done:
            self._fill()
            while self._stream.ready:
                yield self._stream.ready.popleft()
            if not self._stream.done and not self._can_send():
                self._wait(self._settings.result_seconds, self._result_missing)
        while self._stream.ready:
            yield self._stream.ready.popleft()
        self._send_commit()
        while not self._committed:
            self._wait(self._settings.commit_seconds, self._commit_missing)

    def leave(self) -> None:
        """Have the worker and the Router drop what is left of the ticket."""
        self._send(ROUTER, Message(Kind.CLOSE, {"ticket": self._ticket}))

    def _take_ticket(self) -> None:
        self._lender.give_up()
        self._ticket = next(self._tickets)
        self._next_seq = 0
        self._worker = "the worker that the Router chose"

    # -- sending -----------------------------------------------------------------------------------------------------

    def _can_send(self) -> bool:
        left = self._stream.unsent or not self._exhausted
        return left and len(self._stream.in_flight) < self._connection.welcome.credits

    def _fill(self) -> None:
        """Send as long as credits last, and take the messages that arrive meanwhile."""
        while max(len(self._stream.in_flight), len(self._stream.ready)) < self._connection.welcome.credits:
            item = self._stream.take()
            if item is None and not self._exhausted:
                self._next_chunk()
            elif item is None:
                return
            else:
                self._send_item(item)
            while self._receive(0) is not None:
                pass

    def _next_chunk(self) -> None:
        chunk = next(self._source, None)
        if chunk is None:
            self._exhausted = True
            self._stream.end()
        else:
            self._stream.add(chunk)

    def _send_item(self, item: SendChunk | SendEnd) -> None:
        if isinstance(item, SendEnd):
            self._send(ROUTER, end_message(item, self._ticket, self._next_seq))
        else:
            self._send_chunk(item)
        self._next_seq += 1

    def _send_chunk(self, item: SendChunk) -> None:
        """Send a chunk. Its tensors go through shared memory if there is space.

        Rows that the worker may have kept are offered if they would go through sockets. Shared memory is quicker than to
        hash them (`benchmarks/results/kept_rows.md`).
        """
        settings, chunk = self._settings, item.chunk
        given = self._job, item, self._ticket, self._next_seq, settings.limits, self._lender.lend_reply(chunk)
        offered = settings.kept_row_bytes > 0 and may_offer_rows(chunk)
        message = chunk_message(*given, by_row=offered and settings.offer_shared_rows)
        space = self._lender.lend(chunk, message.tensors.values())
        if space is None and offered and not settings.offer_shared_rows:
            message = chunk_message(*given, by_row=True)
        self._send(ROUTER, message, space)

    def _send_commit(self) -> None:
        self._send(COORDINATOR, commit_message(self._stream, self._ticket, self._moved))

    def _send(self, to: bytes, message: Message, space: Space | None = None) -> None:
        """Send a message, with its tensors in shared memory if there is space for them."""
        frames = encode(message, self._settings.limits, space)
        if space is not None:
            shared = sum(tensor.nbytes for tensor in message.tensors.values())
            self._moved.shared += shared
            self._moved.sent += shared
        self._moved.sent += _size(frames)
        self._connection.link.send(to, frames)

    # -- receiving ---------------------------------------------------------------------------------------------------

    def _wait(self, seconds: float, missing: Callable[[float], DeadlineError]) -> None:
        """Wait until a message of this ticket arrives.

        Silence is measured in heartbeats and not in seconds, so that a process that was stopped for a while does not
        take its own pause for the Router's silence.
        """
        deadline = time.monotonic() + seconds
        missed = 0
        while True:
            welcome = self._connection.welcome
            of_this_ticket = self._receive(welcome.heartbeat_seconds)
            if of_this_ticket:
                return
            if of_this_ticket is not None:
                missed = 0
                if time.monotonic() < deadline:
                    continue
            if time.monotonic() > deadline:
                raise missing(seconds)
            if missed > welcome.missed_heartbeats:
                who = f"Dealer of {self._job}"
                raise router_lost(self._connection.endpoint, who, missed, welcome.heartbeat_seconds)
            missed += 1
            self._connection.ping()

    def _result_missing(self, seconds: float) -> DeadlineError:
        what = f"chunk {self._stream.in_flight[0].index}" if self._stream.in_flight else "the sums of a group"
        return DeadlineError(
            f"{self._worker} did not return {what} of {self._job} within {seconds} s (result_seconds);"
            " it is alive: give it more time or smaller chunks"
        )

    def _commit_missing(self, seconds: float) -> DeadlineError:
        return DeadlineError(f"the coordinator did not acknowledge {self._job} within {seconds} s (commit_seconds)")

    def _receive(self, seconds: float) -> bool | None:
        """Take one message, if one arrives in that time.

        Returns:
            None if nothing arrived, True if the message was of this ticket, False if it was not.
        """
        received = self._connection.link.receive(seconds)
        if received is None:
            return None
        sender, frames = received
        self._moved.received += _size(frames)
        envelope = peek(frames[0], self._settings.limits)
        if envelope.header.get("ticket", self._ticket) != self._ticket:
            return False  # its tensors may be where this process must not look any more
        loan = self._lender.loan(envelope.header.get("chunk"))
        return self._take(sender, complete(envelope, frames[1:], self._settings.limits, loan))

    def _take(self, sender: bytes, message: Message) -> bool:
        match message.kind:
            case Kind.REJOIN:
                self._rejoin()
            case Kind.RESULT:
                self._worker = peer_name(sender)
                self._result(sender, message)
            case Kind.PARTIAL:
                self._stream.partial(message)
            case Kind.NEED:
                self._answer(sender, message)
            case Kind.LOST:
                self._lost(sender, message.header)
            case Kind.COMMITTED:
                self._committed = True
            case Kind.ERROR:
                raise self._remote(sender, message)
            case _:
                return False
        return True

    def _result(self, worker: bytes, message: Message) -> None:
        chunk = self._stream.result(message)
        self._lender.settle(worker, chunk, message)
        self._moved.received += message.shared
        self._moved.shared += message.shared

    def _answer(self, worker: bytes, need: Message) -> None:
        """Send the tensors of a chunk that the worker has dropped, or never had, or those of their rows that it lacks."""
        chunk = self._stream.find(need.header["chunk"])
        names = need.header["names"]
        if chunk is None or any(name not in chunk.tensors for name in names):
            raise FrameError(
                f"{peer_name(worker)} asks for {names!r:.200} of chunk {need.header['chunk']}, which has none such"
            )
        positions = need.tensors.get(ROWS)
        if positions is not None and not _are_rows(positions, chunk.rows):
            raise FrameError(f"{peer_name(worker)} asks for rows of chunk {chunk.index}, which has {chunk.rows} rows")
        header = {"what": "tensors", "ticket": self._ticket, "chunk": chunk.index}
        tensors = {name: chunk.tensors[name] for name in names}
        if positions is not None:
            tensors |= {name: tensors[name][positions] for name in names if name in chunk.by_row}
        self._send(worker, Message(Kind.DATA, header, tensors), self._lender.lend(chunk, tensors.values()))

    # -- loss --------------------------------------------------------------------------------------------------------

    def _lost(self, sender: bytes, header: dict[str, Any]) -> None:
        if header.get("unmapped", False) and self._lender.send_inline(sender):
            self._restart()
        else:
            self._replay(header["text"])

    def _rejoin(self) -> None:
        """Introduce the Dealer again to a Router that does not know it any more, and send the open groups again."""
        self._connection.join()
        self._replay("the Router had lost this Dealer")
        if self._stream.done:
            self._send_commit()

    def _replay(self, reason: str) -> None:
        self._replays += 1
        if self._replays > self._settings.max_replays:
            raise RemoteError(
                f"gave up on {self._job} after {self._replays} lost workers (max_replays); the last: {reason}",
                stage=self._job.stage,
                partition=self._job.partition,
            )
        self._restart()

    def _restart(self) -> None:
        self._stream.restart()
        self._take_ticket()

    def _remote(self, sender: bytes, message: Message) -> MessengerError:
        code, text = message.header["code"], message.header["text"]
        where = f"{self._job}: {peer_name(sender)} reports: "
        return error_of(code, text, where, self._job.stage, self._job.partition)


def _are_rows(positions: np.ndarray, rows: int) -> bool:
    """Return True if these are positions among so many rows."""
    if positions.ndim != 1 or positions.dtype.kind != "i":
        return False
    return not len(positions) or bool(positions.min() >= 0 and positions.max() < rows)


def _size(frames: list[Frame]) -> int:
    return sum(memoryview(frame).nbytes for frame in frames)
