"""The Dealer: pipes a partition's chunks through a worker and commits what they came to, once.

An attempt to send a partition's open groups has a *ticket*, a number that only grows. Whatever comes back under an
older ticket is ignored; when a worker is lost, the Dealer takes a new ticket and sends the open groups again, in
order. Results already handed on are then compared and dropped, so that neither the rows nor the sums depend on what
went wrong.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from messenger.endpoint import Endpoint
from messenger.errors import DeadlineError, FrameError, MessengerError, RemoteError, error_of
from messenger.fields import Kind
from messenger.frames import Frame, Message, complete, encode, peek
from messenger.jobs import OutgoingChunk, PipeJob, ReturnedChunk
from messenger.joining import DEALER_ROLE, Welcome, join, new_identity, peer_name
from messenger.lending import Lender
from messenger.messages import Moved, chunk_message, commit_message, end_message
from messenger.pump import router_lost
from messenger.settings import Settings
from messenger.sockets import connect as connect_socket
from messenger.stream import SendChunk, SendEnd, Stream
from messenger.transport import COORDINATOR, ROUTER, Connect, Link


class Dealer:
    """One connection to the Router, for one partition at a time and any number after each other.

    Connects when first used, and again after a failure or a fork. Not for several threads at once.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        settings: Settings | None = None,
        name: str = "",
        connect: Connect = connect_socket,
    ) -> None:
        self.endpoint = endpoint
        self.settings = settings or Settings()
        self.name = name or f"pid {os.getpid()}"
        self.busy = False
        self._connect = connect
        self._link: Link | None = None
        self._pid = 0
        self._ticket = 0
        self._progress = False
        self._lender = Lender(self.settings)

    def pipe(self, job: PipeJob, chunks: Iterable[OutgoingChunk]) -> Iterator[ReturnedChunk]:
        """Send chunks to a worker and yield what it makes of them, in order, with several under way.

        After the last one the partition is committed: the iterator ends when the coordinator has acknowledged it.
        Closing the iterator earlier commits nothing.

        Raises:
            RemoteError: the handler failed, with stage and partition; or one of its kinds: StaleEpochError (the epoch
                is over), ConflictError (another attempt came to something else), NoWorkerError.
            DeadlineError: a result or the acknowledgement did not come in time.
            RouterLostError, RefusedError, FrameError: the connection failed.
        """
        if self.busy:
            raise MessengerError(
                "a Dealer pipes one partition at a time: end the earlier iterator, or take another Dealer"
            )
        self.busy = True
        try:
            yield from self._run(job, iter(chunks))
        except RemoteError:
            raise
        except Exception:
            self.close()  # the next partition starts with a new connection
            raise
        finally:
            self._leave()
            self.busy = False

    def close(self) -> None:
        """Disconnect. The Dealer can be used again."""
        link, self._link = self._link, None
        if link is not None and self._pid == os.getpid():  # after a fork the link belongs to the parent
            link.close(self.settings.linger_seconds)
        self._lender.close()

    # -- one partition -----------------------------------------------------------------------------------------------

    def _run(self, job: PipeJob, source: Iterator[OutgoingChunk]) -> Iterator[ReturnedChunk]:
        self._open()
        self._start(job)
        while not self._stream.done:
            self._fill(source)
            while self._stream.ready:
                yield self._stream.ready.popleft()
            if not self._stream.done and not self._can_send():
                self._wait(self.settings.result_seconds, self._result_missing)
        while self._stream.ready:
            yield self._stream.ready.popleft()
        self._commit()

    def _start(self, job: PipeJob) -> None:
        self._job = job
        self._stream = Stream(job, self.settings.group_chunks)
        self._exhausted = False
        self._replays = 0
        self._committed = False
        self._moved = Moved()
        self._lender.begin(job)
        self._new_ticket()

    def _new_ticket(self) -> None:
        self._lender.give_up()
        self._ticket += 1
        self._seq = 0
        self._worker = "the worker that the Router chose"

    def _can_send(self) -> bool:
        left = self._stream.unsent or not self._exhausted
        return left and len(self._stream.in_flight) < self._welcome.credits

    def _fill(self, source: Iterator[OutgoingChunk]) -> None:
        """Send as long as credits last, and look at what has come in meanwhile."""
        while max(len(self._stream.in_flight), len(self._stream.ready)) < self._welcome.credits:
            item = self._stream.take()
            if item is None and not self._exhausted:
                self._next_chunk(source)
            elif item is None:
                return
            else:
                self._send_item(item)
            while self._receive(0):
                pass

    def _next_chunk(self, source: Iterator[OutgoingChunk]) -> None:
        chunk = next(source, None)
        if chunk is None:
            self._exhausted = True
            self._stream.end()
        else:
            self._stream.add(chunk)

    def _send_item(self, item: SendChunk | SendEnd) -> None:
        if isinstance(item, SendEnd):
            self._send(ROUTER, end_message(item, self._ticket, self._seq))
        else:
            reply = self._lender.lend_reply(item.chunk)
            message = chunk_message(self._job, item, self._ticket, self._seq, self.settings.limits, reply)
            self._send(ROUTER, message, item.chunk)
        self._seq += 1

    def _commit(self) -> None:
        self._send_commit()
        while not self._committed:
            self._wait(self.settings.commit_seconds, self._commit_missing)

    def _send_commit(self) -> None:
        self._send(COORDINATOR, commit_message(self._stream, self._ticket, self._moved))

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _wait(self, seconds: float, missing: Callable[[float], DeadlineError]) -> None:
        """Until something of this ticket arrives. Heartbeats are counted: to be stopped for a while is not silence."""
        assert self._link is not None
        deadline = time.monotonic() + seconds
        missed = 0
        while True:
            if self._receive(self._welcome.heartbeat_seconds):
                if self._progress:
                    return
                missed = 0
                if time.monotonic() < deadline:
                    continue
            if time.monotonic() > deadline:
                raise missing(seconds)
            if missed > self._welcome.missed_heartbeats:
                raise router_lost(self.endpoint, f"Dealer of {self._job}", missed, self._welcome.heartbeat_seconds)
            missed += 1
            self._link.send(ROUTER, encode(Message(Kind.PING), self.settings.limits))  # not counted as sent

    def _result_missing(self, seconds: float) -> DeadlineError:
        what = f"chunk {self._stream.in_flight[0].index}" if self._stream.in_flight else "the sums of a group"
        return DeadlineError(
            f"{self._worker} did not return {what} of {self._job} within {seconds} s (result_seconds);"
            " it is alive: give it more time or smaller chunks"
        )

    def _commit_missing(self, seconds: float) -> DeadlineError:
        return DeadlineError(f"the coordinator did not acknowledge {self._job} within {seconds} s (commit_seconds)")

    def _receive(self, seconds: float) -> bool:
        """Take one message if one comes in that time. `_progress` tells whether it was of this ticket."""
        assert self._link is not None
        received = self._link.receive(seconds)
        if received is None:
            return False
        sender, frames = received
        self._moved.received += _size(frames)
        envelope = peek(frames[0], self.settings.limits)
        self._progress = envelope.header.get("ticket", self._ticket) == self._ticket
        if self._progress:  # what came under an older ticket may be where nobody may look any more
            loan = self._lender.loan(envelope.header.get("chunk"))
            self._progress = self._take(sender, complete(envelope, frames[1:], self.settings.limits, loan))
        return True

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

    def _lost(self, sender: bytes, header: dict[str, Any]) -> None:
        if header.get("unmapped", False) and self._lender.set_apart(sender):
            self._stream.restart()
            self._new_ticket()
        else:
            self._replay(header["text"])

    def _answer(self, worker: bytes, need: Message) -> None:
        """Send tensors that the worker does not have any more, or yet."""
        chunk = self._stream.find(need.header["chunk"])
        names = need.header["names"]
        if chunk is None or any(name not in chunk.tensors for name in names):
            raise FrameError(
                f"{peer_name(worker)} asks for {names!r:.200} of chunk {need.header['chunk']}, which has none such"
            )
        header = {"what": "tensors", "ticket": self._ticket, "chunk": chunk.index}
        self._send(worker, Message(Kind.DATA, header, {name: chunk.tensors[name] for name in names}), chunk)

    def _replay(self, reason: str) -> None:
        self._replays += 1
        if self._replays > self.settings.max_replays:
            raise RemoteError(
                f"gave up on {self._job} after {self._replays} lost workers (max_replays); the last: {reason}",
                stage=self._job.stage,
                partition=self._job.partition,
            )
        self._stream.restart()
        self._new_ticket()

    def _remote(self, sender: bytes, message: Message) -> MessengerError:
        code, text = message.header["code"], message.header["text"]
        where = f"{self._job}: {peer_name(sender)} reports: "
        return error_of(code, text, where, self._job.stage, self._job.partition)

    # -- connection --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._link is not None and self._pid == os.getpid():
            return
        link = self._connect(self.endpoint, new_identity(DEALER_ROLE, self.name), self.settings)
        try:
            self._welcome: Welcome = join(link, DEALER_ROLE, self.name, self.endpoint.address, self.settings)
        except BaseException:
            link.close(0)
            raise
        self._link, self._pid = link, os.getpid()

    def _rejoin(self) -> None:
        """The Router does not know this Dealer (any more): introduce it again, and start the open groups anew."""
        assert self._link is not None
        self._welcome = join(self._link, DEALER_ROLE, self.name, self.endpoint.address, self.settings)
        self._replay("the Router had lost this Dealer")
        if self._stream.done:
            self._send_commit()

    def _leave(self) -> None:
        """Have worker and Router drop what is left of the ticket."""
        if self._link is not None and self._pid == os.getpid():
            try:
                self._send(ROUTER, Message(Kind.CLOSE, {"ticket": self._ticket}))
            except MessengerError:
                self.close()
        self._lender.give_up()

    def _send(self, to: bytes, message: Message, chunk: OutgoingChunk | None = None) -> None:
        """Send a message; what is a chunk's may go through shared memory."""
        assert self._link is not None
        space = None if chunk is None else self._lender.lend(chunk, message.tensors.values())
        frames = encode(message, self.settings.limits, space)
        if space is not None:
            shared = sum(tensor.nbytes for tensor in message.tensors.values())
            self._moved.shared += shared
            self._moved.sent += shared
        self._moved.sent += _size(frames)
        self._link.send(to, frames)


_Key = tuple[int, Endpoint, Settings]
_POOL: dict[_Key, list[Dealer]] = {}


def shared_dealer(endpoint: Endpoint, settings: Settings | None = None) -> Dealer:
    """An idle Dealer of this process for that endpoint; it stays connected for the next task of the same process.

    A Spark Python worker is reused for many tasks; this saves each the connection. Idle Dealers of other endpoints are
    closed: their Router has most likely ended with the session that started it.
    """
    key = (os.getpid(), endpoint, settings or Settings())
    _close_idle(lambda other: other != key)
    pool = _POOL.setdefault(key, [])
    for dealer in pool:
        if not dealer.busy:
            return dealer
    pool.append(Dealer(endpoint, settings))
    return pool[-1]


def close_shared_dealers() -> None:
    """Disconnect this process's shared Dealers that are idle."""
    _close_idle(lambda key: True)


def _close_idle(which: Callable[[_Key], bool]) -> None:
    for key in [key for key in _POOL if which(key)]:
        for dealer in _POOL[key]:
            if not dealer.busy:
                dealer.close()
        _POOL[key] = [dealer for dealer in _POOL[key] if dealer.busy]
        if not _POOL[key] or key[0] != os.getpid():  # those of a parent process are not ours
            del _POOL[key]


def _size(frames: list[Frame]) -> int:
    return sum(memoryview(frame).nbytes for frame in frames)
