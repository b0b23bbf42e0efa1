"""Ctrl-C ends the command within a bounded time, whatever the process is doing."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

GRACE = 1.7  # seconds for an orderly end, so that two seconds after Ctrl-C the prompt is back


@contextmanager
def exit_soon_after_interrupt(status: int, grace: float = GRACE) -> Iterator[None]:
    """Within the block: SIGINT and SIGTERM raise KeyboardInterrupt, and `grace` seconds later the process is gone.

    Most commands end in time by themselves and close all they opened. The deadline is for the rest: a call into the
    JVM that does not come back, a long tensor operation. Signals are seen through a wake-up socket, because PySpark
    replaces Python's own SIGINT handler. Where the block is not in the main thread, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    previous = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    before = signal.signal(signal.SIGTERM, lambda *_: _interrupt())
    finished = threading.Event()
    threading.Thread(
        target=_watch, args=(reading, finished, status, grace), name="lotan-interrupt", daemon=True
    ).start()
    try:
        yield
    finally:
        finished.set()
        signal.signal(signal.SIGTERM, before)
        signal.set_wakeup_fd(previous)
        writing.close()


def leave_at_once(status: int) -> NoReturn:
    """End the process, its exit handlers run but its modules not torn down: with torch that alone takes half a second."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _watch(reading: socket.socket, finished: threading.Event, status: int, grace: float) -> None:
    with reading:
        while received := reading.recv(1):
            if received[0] in (signal.SIGINT, signal.SIGTERM):
                if not finished.wait(grace):
                    _end_now(status)
                return


def _end_now(status: int) -> None:
    """Kill what this process started, and then itself."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    os._exit(status)
