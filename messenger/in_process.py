"""A transport made of queues, for peers that are threads of one process. Tests use it in place of sockets."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence

from messenger.endpoint import Endpoint
from messenger.frames import Frame
from messenger.settings import Settings
from messenger.transport import Received


class InProcessHub:
    """The Router's end of a transport within one process.

    `connect` has the signature that Dealers, workers and coordinators expect. `messenger.transport.Hub` explains the
    other methods.
    """

    def __init__(self, address: str = "in-process") -> None:
        self.address = address
        self._inbox: queue.SimpleQueue[tuple[bytes, list[Frame]]] = queue.SimpleQueue()
        self._links: dict[bytes, InProcessLink] = {}
        self._lock = threading.Lock()

    def connect(self, endpoint: Endpoint, identity: bytes, settings: Settings) -> InProcessLink:
        """Return a link to this hub. The endpoint's address is ignored."""
        link = InProcessLink(self, identity)
        with self._lock:
            self._links[identity] = link
        return link

    def disconnect(self, identity: bytes) -> None:
        """Cut a peer off, as the death of its process would."""
        with self._lock:
            self._links.pop(identity, None)

    def deliver(self, identity: bytes, frames: list[Frame]) -> None:
        """Take a message from a link. Messages of links that were cut off are lost."""
        if identity in self._links:
            self._inbox.put((identity, frames))

    def send(self, peer: bytes, sender: bytes, frames: Sequence[Frame], droppable: bool = False) -> bool:
        """Queue a message for a peer."""
        with self._lock:
            link = self._links.get(peer)
        if link is None:
            return False
        link.inbox.put((sender, _bytes(frames)))
        return True

    def receive(self, seconds: float) -> tuple[bytes, list[Frame]] | None:
        """Return the next message, or None after that time."""
        try:
            return self._inbox.get(timeout=max(seconds, 0.0001))
        except queue.Empty:
            return None

    def close(self) -> None:
        """Cut all peers off."""
        with self._lock:
            self._links.clear()


class InProcessLink:
    """A peer's end of a transport within one process. `messenger.transport.Link` explains the methods."""

    def __init__(self, hub: InProcessHub, identity: bytes) -> None:
        self.identity = identity
        self.inbox: queue.SimpleQueue[Received | None] = queue.SimpleQueue()
        self._hub = hub

    def send(self, to: bytes, frames: Sequence[Frame]) -> None:
        """Hand a message over to the hub."""
        self._hub.deliver(self.identity, [to, *_bytes(frames)])

    def receive(self, seconds: float) -> Received | None:
        """Return the next message, or None after that time or after `wake`."""
        try:
            return self.inbox.get(timeout=max(seconds, 0.0001))
        except queue.Empty:
            return None

    def wake(self) -> None:
        """Make a `receive` in another thread return."""
        self.inbox.put(None)

    def refusal(self) -> str | None:
        """Return None, because a hub within one process refuses nobody."""
        return None

    def close(self, linger_seconds: float) -> None:
        """Disconnect from the hub."""
        self._hub.disconnect(self.identity)


def _bytes(frames: Sequence[Frame]) -> list[Frame]:
    """Return copies of the frames, as a socket would, so that no two peers share memory by accident."""
    return [bytes(frame) for frame in frames]
