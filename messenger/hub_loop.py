"""The loop of a process that answers peers: it takes their messages, and counts heartbeats."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from messenger.frames import Frame
from messenger.settings import Settings
from messenger.transport import Hub

TICK_SECONDS = 0.1  # the loop checks this often whether it is to stop


def take_messages(
    hub: Hub,
    stopping: threading.Event,
    settings: Settings,
    take: Callable[[bytes, list[Frame]], None],
    beat: Callable[[], None],
) -> None:
    """Hand on each message as it arrives, until somebody sets `stopping`.

    Args:
        hub: the socket, which the caller closes.
        stopping: the event that ends the loop within a tick.
        settings: its heartbeats are counted.
        take: called with the sender and the frames of a message.
        beat: called at once, and then once a heartbeat.
    """
    next_beat = time.monotonic()
    while not stopping.is_set():
        received = hub.receive(max(0.0, min(next_beat - time.monotonic(), TICK_SECONDS)))
        if received is not None:
            take(*received)
        if time.monotonic() >= next_beat:
            beat()
            next_beat = time.monotonic() + settings.heartbeat_seconds
