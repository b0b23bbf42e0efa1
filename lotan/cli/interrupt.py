"""The handling of Ctrl-C: it ends the command within a bounded time, whatever the process is doing."""

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

# Seconds, chosen so that the prompt is back two seconds after Ctrl-C.
GRACE = 1.2  # for an orderly end; the rest is for the forced end on a busy machine
TORN = ("", "py4j.clientserver", "py4j.java_gateway")  # loggers: a filter applies only to messages of its own logger
EXIT_HANDLERS = 0.3  # for the exit handlers of a process that is forced to end
SEEN = 0.1  # within this time the watching thread has noticed a signal


@contextmanager
def exit_soon_after_interrupt(status: int, grace: float = GRACE) -> Iterator[threading.Event]:
    """Make SIGINT and SIGTERM raise KeyboardInterrupt within the block, and end the process `grace` seconds later.

    The context yields an event that is set within `SEEN` seconds of a signal. It is needed because PySpark's handler
    calls into the JVM before it raises. If the signal cut off another call, an error of Py4J is raised instead of
    KeyboardInterrupt.

    Most commands end in time by themselves and close all that they have opened. The deadline is for the others, such as
    a call into the JVM that does not return, or a long tensor operation. Signals are noticed through a wake-up socket,
    because PySpark replaces Python's own SIGINT handler. Outside the main thread, the context changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield threading.Event()
        return
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    previous = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    before = signal.signal(signal.SIGTERM, lambda *_: _interrupt())
    hook = sys.unraisablehook  # prints a KeyboardInterrupt that was raised in a callback, where nobody can catch it
    sys.unraisablehook = lambda given: None if given.exc_type is KeyboardInterrupt else hook(given)
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
        if ending.is_set():  # the error may be the loss of a child that was just killed, with another exit status
            threading.Event().wait()
        for name in TORN:
            logging.getLogger(name).removeFilter(_is_no_torn_call)
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, before)
        signal.set_wakeup_fd(previous)
        writing.close()


def leave_at_once(status: int) -> NoReturn:
    """End the process after its exit handlers, without tearing down its modules: with torch that alone takes half a second."""
    atexit._run_exitfuncs()
    with suppress(OSError):  # the streams may have no reader any more
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
    """Return False for messages that Py4J logs about a call into the JVM that was cut off; it also raises an error for it."""
    said = record.getMessage()
    return "while sending command" not in said and "while shutting down connection" not in said


def _end_now(status: int) -> None:
    """Kill the child processes, give the exit handlers a moment, and end the process. Folders may be removed later."""
    import psutil

    from lotan.hosts.local_folder import leave_removal

    with suppress(OSError):  # a reader that has gone or has stopped reading must not delay the end
        if select.select([], [2], [], 0)[1]:
            os.write(2, b"lotan: interrupted\n")
    # silences the messages of other threads about the processes that they lose
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.kill()
    handlers = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
    handlers.start()
    handlers.join(EXIT_HANDLERS)
    with suppress(OSError):  # the next start removes folders that remain
        leave_removal()
    os._exit(status)
