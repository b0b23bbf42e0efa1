"""A thread that owns a link. It sends, receives and beats the heart while another thread computes."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from dataclasses import dataclass

from messenger.endpoint import Endpoint
from messenger.errors import MessengerError, RouterLostError
from messenger.fields import Kind
from messenger.frames import Frame, Message, decode, encode, peek
from messenger.joining import hello, host_of, join, new_identity, refused
from messenger.settings import Settings
from messenger.spaces import Space
from messenger.transport import ROUTER, Connect


@dataclass(frozen=True)
class Incoming:
    """A message for the thread that computes."""

    sender: bytes
    frames: list[Frame]


@dataclass(frozen=True)
class Forgotten:
    """The Router has forgotten this peer. All work that was open through the Router is void.

    The thread that computes calls `Pump.rejoin` once it has no such work any more. Until then the Router gives it none, so
    that a worker that is lost in a long chunk gets no partition that another worker could take.
    """


@dataclass(frozen=True)
class Failed:
    """The connection is over."""

    error: Exception


Event = Incoming | Forgotten | Failed


class Pump:
    """A peer's connection with a thread of its own. It connects in `start` and runs until `close`.

    All methods are for the other threads. A Router that answered no heartbeat `missed_heartbeats` times in a row is
    lost. Silence is measured in heartbeats and not in seconds, so that a process that was stopped for a while does not
    take its own pause for the Router's silence.

    Args:
        endpoint: the Router's address and the peer's keys.
        role: `WORKER_ROLE`, `COORDINATOR_ROLE` or `USER_ROLE`, of `messenger.joining`.
        name: the peer's name.
        settings: deadlines and limits.
        connect: opens the link.
    """

    def __init__(self, endpoint: Endpoint, role: str, name: str, settings: Settings, connect: Connect) -> None:
        self.name = name
        self.role = role
        self._endpoint = endpoint
        self._settings = settings
        self._connect = connect
        self._outbox: deque[tuple[bytes, list[Frame]]] = deque()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._rejoining = False
        self._missed = 0

    def start(self) -> None:
        """Connect to the Router and start the thread.

        Raises:
            MessengerError: the Router does not answer or refuses this peer.
        """
        identity = new_identity(self.role, self.name)
        self._link = self._connect(self._endpoint, identity, self._settings)
        try:
            self._welcome = join(self._link, self.role, self.name, self._endpoint.address, self._settings)
        except BaseException:
            self._link.close(0)
            raise
        self._thread = threading.Thread(target=self._run, name=f"lotan-{self.role}-{self.name}", daemon=True)
        self._thread.start()

    def send(self, to: bytes, message: Message, space: Space | None = None) -> None:
        """Have the thread send a message.

        Args:
            to: the receiver's identity.
            message: the message.
            space: shared memory for its tensors, which is used if all of them fit.

        Raises:
            FrameError: the receiver would refuse the message.
        """
        self._outbox.append((to, encode(message, self._settings.limits, space)))
        self._link.wake()

    @property
    def is_forgotten(self) -> bool:
        """True while the Router does not know this peer, which was let in before."""
        return self._rejoining

    def rejoin(self) -> None:
        """Introduce this peer to the Router again, in answer to the event `Forgotten`."""
        self.send(ROUTER, hello(self.role, self.name))

    def next(self, seconds: float) -> Event | None:
        """Return the next event, or None after that time."""
        try:
            return self._events.get(timeout=seconds)
        except queue.Empty:
            return None

    def put(self, event: Event) -> None:
        """Add an event from this process, such as the wish to end."""
        self._events.put(event)

    def close(self) -> None:
        """Send what is left and end the thread. A second call does nothing."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._link.wake()
        self._thread.join(self._settings.linger_seconds + self._settings.connect_seconds)

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as error:  # whatever it is, the other thread must not wait for ever
            self._events.put(Failed(error))
        finally:
            self._link.close(self._settings.linger_seconds)

    def _loop(self) -> None:
        next_beat = time.monotonic()
        while True:
            closing = self._closing.is_set()
            while self._outbox:
                self._link.send(*self._outbox.popleft())
            if closing:
                return
            if time.monotonic() >= next_beat:
                self._beat()
                next_beat = time.monotonic() + self._welcome.heartbeat_seconds
            received = self._link.receive(max(0.0, next_beat - time.monotonic()))
            if received is not None:
                self._missed = 0
                self._take(*received)

    def _beat(self) -> None:
        if self._missed > self._welcome.missed_heartbeats:
            who, beat = f"{self.role} {self.name!r}", self._welcome.heartbeat_seconds
            raise router_lost(self._endpoint, who, self._missed, beat, host_of(self.role))
        self._missed += 1
        self._link.send(ROUTER, encode(Message(Kind.PING), self._settings.limits))

    def _take(self, sender: bytes, frames: list[Frame]) -> None:
        if sender != ROUTER:
            self._events.put(Incoming(sender, frames))
            return
        kind = peek(frames[0], self._settings.limits).kind
        if kind is Kind.REJOIN:
            self._forgotten()
        elif kind is Kind.WELCOME:
            self._rejoining = False
        elif kind is Kind.ERROR and self._is_final(message := decode(frames, self._settings.limits)):
            raise refused(message)
        else:
            self._events.put(Incoming(sender, frames))

    def _is_final(self, error: Message) -> bool:
        return self._rejoining or error.header["code"] == "refused"

    def _forgotten(self) -> None:
        if not self._rejoining:
            self._rejoining = True
            self._events.put(Forgotten())


def router_lost(
    endpoint: Endpoint, who: str, missed: int, heartbeat_seconds: float, host: str = "Router"
) -> MessengerError:
    """Return the error for a Router, or another host of peers, that fell silent."""
    return RouterLostError(
        f"the {host} at {endpoint.address} has been silent for {missed} heartbeats of {heartbeat_seconds} s: the {who}"
        f" gives up; was the {host}, or the driver that started it, ended?"
    )
