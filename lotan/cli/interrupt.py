"""Ctrl-C ends the command within a bounded time, whatever the process is doing."""

from __future__ import annotations

import atexit
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

# Seconds, so that two after Ctrl-C the prompt is back.
GRACE = 1.2  # for an orderly end; the rest is for ending it on a machine that is busy
TORN = ("", "py4j.clientserver", "py4j.java_gateway")  # loggers: a filter sees only what is logged by its own
EXIT_HANDLERS = 0.3  # for the exit handlers of a process that is ended
SEEN = 0.1  # within this the thread that watches has seen a signal


@contextmanager
def exit_soon_after_interrupt(status: int, grace: float = GRACE) -> Iterator[threading.Event]:
    """Within the block: SIGINT and SIGTERM raise KeyboardInterrupt, and `grace` seconds later the process is gone.

    Yields an event that is set within `SEEN` seconds of a signal: PySpark's handler calls into the JVM before it raises,
    and where the signal cut off another call, what comes out is an error of Py4J.

    Most commands end in time by themselves and close all they opened. The deadline is for the rest: a call into the
    JVM that does not come back, a long tensor operation. Signals are seen through a wake-up socket, because PySpark
    replaces Python's own SIGINT handler. Where the block is not in the main thread, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield threading.Event()
        return
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    previous = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    before = signal.signal(signal.SIGTERM, lambda *_: _interrupt())
    for name in TORN:
        logging.getLogger(name).addFilter(_is_no_torn_call)
    received, finished, ending = threading.Event(), threading.Event(), threading.Event()
    threading.Thread(
        target=_watch, args=(reading, received, finished, ending, status, grace), name="lotan-interrupt", daemon=True
    ).start()
    try:
        yield received
    finally:
        finished.set()
        if ending.is_set():  # what came back may be the loss of a child just killed, with another exit status
            threading.Event().wait()
        for name in TORN:
            logging.getLogger(name).removeFilter(_is_no_torn_call)
        signal.signal(signal.SIGTERM, before)
        signal.set_wakeup_fd(previous)
        writing.close()


def leave_at_once(status: int) -> NoReturn:
    """End the process, its exit handlers run but its modules not torn down: with torch that alone takes half a second."""
    atexit._run_exitfuncs()
    with suppress(OSError):  # nobody reads them any more
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _watch(
    reading: socket.socket,
    received: threading.Event,
    finished: threading.Event,
    ending: threading.Event,
    status: int,
    grace: float,
) -> None:
    with reading:
        while number := reading.recv(1):
            if number[0] in (signal.SIGINT, signal.SIGTERM):
                received.set()
                if not finished.wait(grace):
                    ending.set()
                    _end_now(status)
                return


def _is_no_torn_call(record: logging.LogRecord) -> bool:
    """False for what Py4J logs, with a traceback, of a call into the JVM that is cut off; it raises an error as well."""
    said = record.getMessage()
    return "while sending command" not in said and "while shutting down connection" not in said


def _end_now(status: int) -> None:
    """Kill what this process started, give its exit handlers a moment, and end it. Folders may be removed later."""
    import psutil

    from lotan.hosts.local_folder import leave_removal

    with suppress(OSError):  # a reader that is gone, or does not read on, must not keep the process
        if select.select([], [2], [], 0)[1]:
            os.write(2, b"lotan: interrupted\n")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what other threads have to say of the processes they lose
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.kill()
    handlers = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
    handlers.start()
    handlers.join(EXIT_HANDLERS)
    with suppress(OSError):  # the next start removes what stays
        leave_removal()
    os._exit(status)
