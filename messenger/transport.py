"""The two interfaces of a transport between peers and the Router. `sockets` and `in_process` implement them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from messenger.endpoint import Endpoint
from messenger.frames import Frame
from messenger.settings import Settings

Received = tuple[bytes, list[Frame]]
"""The sender's identity and the frames of a message."""

ROUTER = b""
"""The identity that stands for the Router."""

COORDINATOR = b"coordinator"
"""The identity that stands for the coordinator, whichever process it is."""


class Link(Protocol):
    """A peer's connection to the Router. Only one thread may use it at a time, except for `wake`."""

    identity: bytes

    def send(self, to: bytes, frames: Sequence[Frame]) -> None:
        """Hand over a message.

        Raises:
            DeadlineError: the connection took no message for `connect_seconds`.
        """

    def receive(self, seconds: float) -> Received | None:
        """Return the next message, or None after that time or after `wake`."""

    def wake(self) -> None:
        """Make a `receive` in another thread return."""

    def refusal(self) -> str | None:
        """Return the reason why the Router's side refused the connection, or None if it did not."""

    def close(self, linger_seconds: float) -> None:
        """Free everything. Messages may still be delivered within that time. A second call does nothing."""


class Hub(Protocol):
    """The Router's end of all connections. It never waits for a slow peer."""

    address: str

    def send(self, peer: bytes, sender: bytes, frames: Sequence[Frame], droppable: bool = False) -> bool:
        """Queue a message for a peer.

        Args:
            peer: the receiver's identity.
            sender: the sender's identity, which the receiver is told.
            frames: the message.
            droppable: if True, the message is dropped instead of queued while the peer is behind (default: False).

        Returns:
            False if the peer is not connected or takes nothing any more.
        """

    def receive(self, seconds: float) -> tuple[bytes, list[Frame]] | None:
        """Return the next message as (peer, [route, header, tensors...]), or None after that time."""

    def close(self) -> None:
        """Free everything. A second call does nothing."""


Connect = Callable[[Endpoint, bytes, Settings], Link]
"""A function that opens a link under an identity."""
