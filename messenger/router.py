"""The Router: it passes chunks to workers and results to Dealers, and notices which peers are gone.

The Router has no data that cannot be sent again. It reads header frames only and passes tensors on untouched. It never
waits for a peer. The Dealers' credits bound its memory, and a peer that stops taking messages counts as lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from messenger.assignment import Assignment
from messenger.errors import FrameError
from messenger.fields import Kind
from messenger.frames import Envelope, Frame, Message, encode, peek
from messenger.hub_loop import take_messages
from messenger.joining import COORDINATOR_ROLE, DEALER_ROLE, WORKER_ROLE
from messenger.settings import Settings
from messenger.transport import COORDINATOR, ROUTER, Hub

log = logging.getLogger(__name__)

PROBE_BEATS = 16  # heartbeats between two checks that a Dealer with open work is still connected
IDLE_PROBE_BEATS = 1024  # the same for Dealers without open work, whose queue is only emptied by their next task

MAY_SEND = {
    DEALER_ROLE: {Kind.CHUNK, Kind.END, Kind.CLOSE, Kind.DATA, Kind.COMMIT, Kind.ERROR},
    WORKER_ROLE: {Kind.RESULT, Kind.NEED, Kind.PARTIAL, Kind.FETCH, Kind.LOST, Kind.ERROR},
    COORDINATOR_ROLE: {Kind.DATA, Kind.COMMITTED, Kind.ERROR, Kind.LOST, Kind.FORGET, Kind.STOP},
}


@dataclass
class Peer:
    """A peer that the Router has let in."""

    identity: bytes
    role: str
    name: str
    missed: int = 0  # heartbeats since the peer's last message


@dataclass
class Attempt:
    """A Dealer's current ticket: one attempt to pipe one partition through one worker."""

    ticket: int
    run: str
    partition: int
    worker: bytes | None = None  # None if no worker is connected
    waiting: list[Sequence[Frame]] = field(default_factory=list)  # messages that wait for a worker
    since: float = 0.0  # time at which waiting began, monotonic seconds
    lost: bool = False  # True once the Dealer was told; it will send a new ticket


class Router:
    """The Router's loop. `run` may be called once, and `stop` from any thread.

    Args:
        hub: the connections to all peers.
        settings: deadlines and limits, and the credits and heartbeats of all peers (default: `Settings()`).
    """

    def __init__(self, hub: Hub, settings: Settings | None = None) -> None:
        self._hub = hub
        self._settings = settings or Settings()
        self._peers: dict[bytes, Peer] = {}
        self._attempts: dict[bytes, Attempt] = {}  # by Dealer
        self._replaced: set[bytes] = set()  # workers whose name a newer worker has taken; they are refused
        # messages that arrived before a coordinator: time of arrival, sender, frames
        self._for_coordinator: list[tuple[float, bytes, list[Frame]]] = []
        self._assignment = Assignment()
        self._stopping = threading.Event()
        self._beats = 0

    @property
    def address(self) -> str:
        """The address to which peers connect."""
        return self._hub.address

    def stop(self) -> None:
        """End `run` within a heartbeat and tell the workers to stop."""
        self._stopping.set()

    def run(self) -> None:
        """Route messages until `stop` is called or the coordinator sends STOP."""
        try:
            take_messages(self._hub, self._stopping, self._settings, self._take, self._beat)
        finally:
            self._broadcast(Message(Kind.STOP))
            self._hub.close()

    # -- messages ----------------------------------------------------------------------------------------------------

    def _take(self, identity: bytes, frames: list[Frame]) -> None:
        if len(frames) < 2:
            return self._error(identity, "frame", "a message without a header frame reached the Router")
        try:
            envelope = peek(frames[1], self._settings.limits)
        except FrameError as error:
            return self._error(
                identity, "frame", f"the Router cannot read a message of {identity.decode(errors='replace')}: {error}"
            )
        peer = self._peers.get(identity)
        if identity in self._replaced:
            self._error(identity, "refused", "a newer worker has taken this one's name; give every worker its own")
        elif envelope.kind is Kind.HELLO:
            self._hello(identity, envelope)
        elif peer is None:
            self._send(identity, Message(Kind.REJOIN))
        else:
            peer.missed = 0
            self._route(peer, envelope, bytes(frames[0]), frames[1:])
        return None

    def _hello(self, identity: bytes, envelope: Envelope) -> None:
        role, name = envelope.header["role"], envelope.header["name"]
        if role not in MAY_SEND:
            return self._error(identity, "refused", f"unknown role {role!r}; expected {', '.join(MAY_SEND)}")
        if identity in self._peers:
            self._lose(identity, "it connected anew")
        if role == COORDINATOR_ROLE and (other := self._coordinator()):
            return self._error(
                identity,
                "refused",
                f"this Router has a coordinator already: {other.name!r}; start a Router of your own",
            )
        if role == WORKER_ROLE and (other := self._worker(name)):
            self._lose(other.identity, "a new worker of that name connected")
            self._replaced.add(other.identity)
        self._peers[identity] = Peer(identity, role, name)
        log.info("%s %s connected", role, name)
        settings = self._settings
        welcome = {
            "credits": settings.credits,
            "heartbeat": settings.heartbeat_seconds,
            "missed": settings.missed_heartbeats,
        }
        self._send(identity, Message(Kind.WELCOME, welcome))
        if role == WORKER_ROLE:
            self._place_waiting()
        if role == COORDINATOR_ROLE:
            waiting, self._for_coordinator = self._for_coordinator, []
            for _, sender, frames in waiting:
                self._hub.send(identity, sender, frames)
        return None

    def _route(self, peer: Peer, envelope: Envelope, to: bytes, frames: list[Frame]) -> None:
        kind = envelope.kind
        if kind is Kind.PING:
            return self._pong(peer)
        if kind not in MAY_SEND[peer.role]:
            return self._error(peer.identity, "refused", f"a {peer.role} may not send {kind.value!r}")
        if kind in (Kind.CHUNK, Kind.END, Kind.CLOSE):
            return self._to_worker(peer, envelope, frames)
        if to != ROUTER:
            return self._forward(peer, to, frames)
        if kind is Kind.LOST and (worker := self._worker(envelope.header.get("name", ""))):
            self._lose(worker.identity, envelope.header["text"])
        elif kind is Kind.FORGET:
            self._assignment.forget(envelope.header["run"])
            self._broadcast(Message(Kind.FORGET, envelope.header))
        elif kind is Kind.STOP:
            self.stop()
        return None

    def _to_worker(self, dealer: Peer, envelope: Envelope, frames: list[Frame]) -> None:
        """Pass a CHUNK, END or CLOSE to the worker to which the ticket's partition is assigned."""
        ticket = envelope.header["ticket"]
        attempt = self._attempts.get(dealer.identity)
        if envelope.kind is Kind.CHUNK and (attempt is None or ticket > attempt.ticket):
            attempt = self._open(dealer, envelope)
        if attempt is None or ticket != attempt.ticket or attempt.lost:
            return  # the ticket is over
        if attempt.worker is None:
            attempt.waiting.append(frames)
        elif not self._hub.send(attempt.worker, dealer.identity, frames):
            self._lose(attempt.worker, "its connection ended")
        if envelope.kind is Kind.CLOSE:
            self._attempts.pop(dealer.identity, None)

    def _open(self, dealer: Peer, envelope: Envelope) -> Attempt:
        header = envelope.header
        old = self._attempts.get(dealer.identity)
        attempt = Attempt(header["ticket"], header["run"], header["partition"], since=time.monotonic())
        self._attempts[dealer.identity] = attempt
        self._place(attempt)
        if old is not None and old.worker not in (None, attempt.worker):
            self._gone(dealer, old)
        return attempt

    def _forward(self, sender: Peer, to: bytes, frames: list[Frame]) -> None:
        target: Peer | None
        if to == COORDINATOR:
            target = self._coordinator()
            if target is None:  # the coordinator may still be connecting to a Router that was restarted
                self._for_coordinator.append((time.monotonic(), sender.identity, frames))
                return
        else:
            target = self._peers.get(to)
        if target is None or target.role == sender.role:  # peers of one role send each other nothing
            return  # a peer that waits for a lost one is told by `_lose`
        if not self._hub.send(target.identity, sender.identity, frames):
            self._lose(target.identity, "its connection ended")
        return

    # -- workers -----------------------------------------------------------------------------------------------------

    def _workers(self) -> dict[str, Peer]:
        return {peer.name: peer for peer in self._peers.values() if peer.role == WORKER_ROLE}

    def _worker(self, name: str) -> Peer | None:
        return self._workers().get(name)

    def _coordinator(self) -> Peer | None:
        return next((peer for peer in self._peers.values() if peer.role == COORDINATOR_ROLE), None)

    def _place(self, attempt: Attempt) -> None:
        workers = self._workers()
        name = self._assignment.choose(attempt.run, attempt.partition, workers)
        attempt.worker = workers[name].identity if name is not None else None

    def _place_waiting(self) -> None:
        for identity, attempt in list(self._attempts.items()):
            if attempt.worker is not None or attempt.lost:
                continue
            self._place(attempt)
            waiting, attempt.waiting = attempt.waiting, []
            for frames in waiting:
                if attempt.worker is not None and not self._hub.send(attempt.worker, identity, frames):
                    return self._lose(attempt.worker, "its connection ended")
        return None

    def _beat(self) -> None:
        """Count missed heartbeats, send signs of life, and end waits that have reached their deadline."""
        self._beats += 1
        for peer in list(self._peers.values()):
            if peer.role == DEALER_ROLE:
                self._probe(peer)
                continue
            peer.missed += 1
            if peer.missed > self._settings.missed_heartbeats:
                self._lose(peer.identity, f"it was silent for {peer.missed} heartbeats")
            elif peer.role == WORKER_ROLE:
                self._send(peer.identity, Message(Kind.PONG), droppable=True)
        for identity, attempt in list(self._attempts.items()):
            if (
                attempt.worker is None
                and not attempt.lost
                and time.monotonic() - attempt.since > self._settings.worker_seconds
            ):
                self._no_worker(identity, attempt)
        self._no_coordinator(time.monotonic() - self._settings.connect_seconds)

    def _no_coordinator(self, before: float) -> None:
        """Report an error to the senders whose messages have waited for a coordinator since `before`."""
        late = [sender for since, sender, _ in self._for_coordinator if since < before]
        self._for_coordinator = [waiting for waiting in self._for_coordinator if waiting[0] >= before]
        text = (
            "no coordinator is connected to the Router, and none came within"
            f" {self._settings.connect_seconds} s (connect_seconds): has the driver ended?"
        )
        for sender in late:
            self._error(sender, "no_coordinator", text)

    def _probe(self, dealer: Peer) -> None:
        """Send to a Dealer now and then, which shows whether it is still connected.

        Dealers send no heartbeats, because a Dealer may wait for its input for hours.
        """
        if self._beats % (PROBE_BEATS if dealer.identity in self._attempts else IDLE_PROBE_BEATS) == 0:
            self._send(dealer.identity, Message(Kind.PONG), droppable=True)

    def _no_worker(self, dealer: bytes, attempt: Attempt) -> None:
        attempt.lost, attempt.waiting = True, []
        seconds = self._settings.worker_seconds
        text = (
            f"no worker is connected to the Router at {self.address}, and none came within {seconds} s"
            " (worker_seconds); look at the workers' output, or start one with: lotan worker --router ADDRESS"
        )
        self._error(dealer, "no_worker", text, attempt.ticket)

    # -- loss --------------------------------------------------------------------------------------------------------

    def _lose(self, identity: bytes, reason: str) -> None:
        """Drop a peer and tell the peers that have work with it."""
        peer = self._peers.pop(identity, None)
        if peer is None:
            return
        log.info("%s %s is gone: %s", peer.role, peer.name, reason)
        if peer.role == DEALER_ROLE:
            attempt = self._attempts.pop(identity, None)
            if attempt is not None:
                self._gone(peer, attempt)
        elif peer.role == WORKER_ROLE:
            self._worker_lost(peer, reason)

    def _worker_lost(self, worker: Peer, reason: str) -> None:
        for dealer, attempt in list(self._attempts.items()):
            if attempt.worker == worker.identity and not attempt.lost:
                attempt.lost, attempt.worker = True, None
                text = f"worker {worker.name!r} is gone: {reason}"
                self._send(dealer, Message(Kind.LOST, {"ticket": attempt.ticket, "name": worker.name, "text": text}))

    def _gone(self, dealer: Peer, attempt: Attempt) -> None:
        """Tell a worker to drop the ticket of a Dealer that is gone."""
        if attempt.worker in self._peers:
            message = Message(Kind.GONE, {"name": dealer.name})
            self._hub.send(attempt.worker, dealer.identity, encode(message, self._settings.limits))

    # -- sending -----------------------------------------------------------------------------------------------------

    def _pong(self, peer: Peer) -> None:
        header = {"workers": sorted(self._workers())} if peer.role == COORDINATOR_ROLE else {}
        self._send(peer.identity, Message(Kind.PONG, header))

    def _broadcast(self, message: Message) -> None:
        for worker in list(self._workers().values()):
            self._send(worker.identity, message)

    def _send(self, identity: bytes, message: Message, droppable: bool = False) -> None:
        if not self._hub.send(identity, ROUTER, encode(message, self._settings.limits), droppable):
            self._lose(identity, "its connection ended")

    def _error(self, identity: bytes, code: str, text: str, ticket: int | None = None) -> None:
        header = {"code": code, "text": text}
        self._send(identity, Message(Kind.ERROR, header if ticket is None else header | {"ticket": ticket}))
