"""What carries frames between peers and Router: two small interfaces, implemented by `sockets` and `in_process`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from messenger.endpoint import Endpoint
from messenger.frames import Frame
from messenger.settings import Settings

Received = tuple[bytes, list[Frame]]
"""The other side's identity and the frames of a message."""

ROUTER = b""
"""Route to, or from, the Router itself."""

COORDINATOR = b"coordinator"
"""Route to whoever is the coordinator."""


class Link(Protocol):
    """A peer's connection to the Router. Used by one thread at a time, except `wake`."""

    identity: bytes

    def send(self, to: bytes, frames: Sequence[Frame]) -> None:
        """Hand over a message; DeadlineError if the connection takes none for `connect_seconds`."""

    def receive(self, seconds: float) -> Received | None:
        """The next message, or None after that time or after `wake`."""

    def wake(self) -> None:
        """Make a `receive` in another thread return."""

    def refusal(self) -> str | None:
        """Why the Router's side refused the connection, if it did."""

    def close(self, linger_seconds: float) -> None:
        """Free everything; what was sent may still be delivered within that time. May be called twice."""


class Hub(Protocol):
    """The Router's end of all connections. Never blocks on a slow peer."""

    address: str

    def send(self, peer: bytes, sender: bytes, frames: Sequence[Frame], droppable: bool = False) -> bool:
        """Queue a message for a peer. False: it is not connected, or takes nothing any more.

        droppable: leave it out instead of queueing when the peer is behind.
        """

    def receive(self, seconds: float) -> tuple[bytes, list[Frame]] | None:
        """The next message as (peer, [route, header, tensors...]), or None after that time."""

    def close(self) -> None:
        """Free everything. May be called twice."""


Connect = Callable[[Endpoint, bytes, Settings], Link]
"""Opens a link under an identity."""
