"""A transport of queues, for peers that are threads of one process: tests of everything above the sockets."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence

from messenger.endpoint import Endpoint
from messenger.frames import Frame
from messenger.settings import Settings
from messenger.transport import Received


class InProcessHub:
    """The Router's end. `connect` has the signature that Dealers, workers and coordinators expect."""

    def __init__(self, address: str = "in-process") -> None:
        self.address = address
        self._inbox: queue.SimpleQueue[tuple[bytes, list[Frame]]] = queue.SimpleQueue()
        self._links: dict[bytes, InProcessLink] = {}
        self._lock = threading.Lock()

    def connect(self, endpoint: Endpoint, identity: bytes, settings: Settings) -> InProcessLink:
        """A link to this hub; the endpoint's address is not looked at."""
        link = InProcessLink(self, identity)
        with self._lock:
            self._links[identity] = link
        return link

    def disconnect(self, identity: bytes) -> None:
        """Cut a peer off, as the death of its process would."""
        with self._lock:
            self._links.pop(identity, None)

    def deliver(self, identity: bytes, frames: list[Frame]) -> None:
        """Take a message from a link; those of links that were cut off are lost."""
        if identity in self._links:
            self._inbox.put((identity, frames))

    def send(self, peer: bytes, sender: bytes, frames: Sequence[Frame], droppable: bool = False) -> bool:
        """See `messenger.transport.Hub`."""
        with self._lock:
            link = self._links.get(peer)
        if link is None:
            return False
        link.inbox.put((sender, _bytes(frames)))
        return True

    def receive(self, seconds: float) -> tuple[bytes, list[Frame]] | None:
        """See `messenger.transport.Hub`."""
        try:
            return self._inbox.get(timeout=max(seconds, 0.0001))
        except queue.Empty:
            return None

    def close(self) -> None:
        """See `messenger.transport.Hub`."""
        with self._lock:
            self._links.clear()


class InProcessLink:
    """A peer's end."""

    def __init__(self, hub: InProcessHub, identity: bytes) -> None:
        self.identity = identity
        self.inbox: queue.SimpleQueue[Received | None] = queue.SimpleQueue()
        self._hub = hub

    def send(self, to: bytes, frames: Sequence[Frame]) -> None:
        """See `messenger.transport.Link`."""
        self._hub.deliver(self.identity, [to, *_bytes(frames)])

    def receive(self, seconds: float) -> Received | None:
        """See `messenger.transport.Link`."""
        try:
            return self.inbox.get(timeout=max(seconds, 0.0001))
        except queue.Empty:
            return None

    def wake(self) -> None:
        """See `messenger.transport.Link`."""
        self.inbox.put(None)

    def refusal(self) -> str | None:
        """Nobody is refused here."""
        return None

    def close(self, linger_seconds: float) -> None:
        """See `messenger.transport.Link`."""
        self._hub.disconnect(self.identity)


def _bytes(frames: Sequence[Frame]) -> list[Frame]:
    """Copies, as a socket would make them: nobody shares memory by accident."""
    return [bytes(frame) for frame in frames]
