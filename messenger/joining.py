"""The introduction of a peer to its Router: HELLO, and WELCOME or ERROR in answer."""

from __future__ import annotations

import os
import socket
import time
import uuid
from dataclasses import dataclass

from messenger.errors import DeadlineError, FrameError, RefusedError
from messenger.fields import Kind
from messenger.frames import Message, decode, encode
from messenger.settings import Settings
from messenger.transport import ROUTER, Link

DEALER_ROLE, WORKER_ROLE, COORDINATOR_ROLE = "dealer", "worker", "coordinator"
USER_ROLE = "trainer"  # a user of a row table, which stands in the Router's place for it


@dataclass(frozen=True)
class Welcome:
    """The settings that the Router decides for all its peers."""

    credits: int
    heartbeat_seconds: float
    missed_heartbeats: int


def new_identity(role: str, name: str) -> bytes:
    """Return an identity that no other peer, attempt or process has. People can read it in messages."""
    short = name.encode(errors="replace")[:128]  # ZeroMQ takes 255 bytes in all
    return f"{role}/".encode() + short + f"/{uuid.uuid4().hex[:12]}".encode()


def peer_name(identity: bytes) -> str:
    """Return a peer's role and name, such as "worker 'w0'"."""
    if not identity:
        return "the Router"
    role, _, rest = identity.decode(errors="replace").partition("/")
    return f"{role} {rest.rpartition('/')[0]!r}"


def host_of(role: str) -> str:
    """Return the name of what lets peers of a role in."""
    return "row table" if role == USER_ROLE else "Router"


def hello(role: str, name: str) -> Message:
    """Return the message that introduces this peer to the Router, which answers with WELCOME or ERROR."""
    return Message(Kind.HELLO, {"role": role, "name": name, "pid": os.getpid(), "host": socket.gethostname()[:255]})


def read_welcome(message: Message) -> Welcome:
    """Return the settings in a WELCOME message."""
    return Welcome(message.header["credits"], float(message.header["heartbeat"]), message.header["missed"])


def join(link: Link, role: str, name: str, address: str, settings: Settings) -> Welcome:
    """Introduce this peer to the Router and wait until the Router lets it in.

    Args:
        link: a link to the Router.
        role: `DEALER_ROLE`, `WORKER_ROLE`, `COORDINATOR_ROLE` or `USER_ROLE`.
        name: the peer's name.
        address: the Router's address, for the texts of errors.
        settings: deadlines and limits.

    Raises:
        RefusedError: the Router refuses this peer, for the reason that the error names.
        DeadlineError: the Router did not answer within `connect_seconds`.
    """
    link.send(ROUTER, encode(hello(role, name), settings.limits))
    deadline = time.monotonic() + settings.connect_seconds
    while (left := deadline - time.monotonic()) > 0:
        if reason := link.refusal():
            raise RefusedError(
                f"the {host_of(role)} at {address} refused the {role} {name!r}: {reason}; check the keys directory"
            )
        received = link.receive(min(left, 0.1))
        if received is None or received[0] != ROUTER:
            continue
        message = decode(received[1], settings.limits)
        if message.kind is Kind.WELCOME:
            return read_welcome(message)
        if message.kind is Kind.ERROR:
            raise refused(message)
    raise DeadlineError(
        f"the {host_of(role)} at {address} did not answer the {role} {name!r} within {settings.connect_seconds} s"
        " (connect_seconds): is it running there, and reachable from this host?"
    )


def refused(message: Message) -> RefusedError | FrameError:
    """Return the exception for an ERROR in answer to HELLO."""
    kind = FrameError if message.header["code"] == "frame" else RefusedError
    return kind(message.header["text"])
