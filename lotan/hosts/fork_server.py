"""Workers as forks of one process that has loaded torch: they start in milliseconds, and share its memory.

A process has one fork server for all its sessions that are open at a time, and none when the last one closes.
`held` keeps it between sessions. `lotan.worker.fork_server` is the process itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from lotan.errors import EngineError

LIBRARIES = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_", "GLIBC_", "LD_")
"""The variables that the C library and torch's libraries read when they are loaded begin with one of these."""

LOOK_SECONDS = 0.01  # between two looks at what a server has told
END_SECONDS = 1.0  # for a server to end before it is killed


class ForkedProcess:
    """A worker that a fork server has started. It has the methods of `subprocess.Popen` that a session uses.

    Attributes:
        stdin: the writing end of its standard input.
        stdout: None.
        returncode: its status after its end, negative for a signal; None while it runs.
    """

    def __init__(self, stdin: IO[bytes], told: int) -> None:
        self.stdin: IO[bytes] | None = stdin
        self.stdout: IO[bytes] | None = None
        self.returncode: int | None = None
        self._told = told  # the pipe on which the server tells of the start and of the end
        self._lines = b""
        self._lock = threading.Lock()
        os.set_blocking(told, False)

    @property
    def pid(self) -> int:
        """The number of the process.

        Raises:
            EngineError: If the fork server ended before it started the process.
        """
        while b"\n" not in self._lines:
            if self.poll() is not None:
                raise EngineError("the process that starts the workers has ended; see its output for the reason")
            time.sleep(LOOK_SECONDS)  # another thread may read the news
        return int(self._lines.split(b"\n")[0])

    def poll(self) -> int | None:
        """Return the status, or None while the process runs."""
        with self._lock:
            while self.returncode is None:
                try:
                    news = os.read(self._told, 4096)
                except BlockingIOError:
                    break
                self._lines += news
                lines = self._lines.split(b"\n")
                if len(lines) > 2:
                    self._end(int(lines[1]))
                elif not news:  # the server itself is gone; this worker goes when its standard input is closed
                    self._end(-signal.SIGKILL)
        return self.returncode

    def _end(self, status: int) -> None:
        self.returncode = status
        os.close(self._told)

    def wait(self, timeout: float | None = None) -> int:
        """Return the status once the process has ended.

        Raises:
            subprocess.TimeoutExpired: If it still runs after `timeout` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
            time.sleep(LOOK_SECONDS)
        return status

    def kill(self) -> None:
        """Kill the process. One that has not been forked yet ends by itself, because nobody holds its standard input."""
        if self.poll() is None and b"\n" in self._lines:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        else:
            with self._lock:
                if self.returncode is None:
                    self._end(-signal.SIGKILL)


class ForkServer:
    """A process that has loaded what workers need, and forks them. `shared` and `free` are how sessions get one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.loaded_with = _of_libraries(environment)
        self.users = 0
        self._asking, asked = socket.socketpair()
        self._lock = threading.Lock()
        with asked:
            words = [sys.executable, "-m", "lotan.worker.fork_server", str(asked.fileno())]
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=dict(environment),
                pass_fds=[asked.fileno()],
                start_new_session=True,  # Ctrl-C is handled by this process alone
            )

    @property
    def runs(self) -> bool:
        """True until the process has ended."""
        return self.process.poll() is None

    def start(self, words: Sequence[str], environment: Mapping[str, str]) -> ForkedProcess:
        """Start a worker, and return at once.

        Args:
            words: its command line, as for `lotan worker`.
            environment: its variables. Those that libraries read when they are loaded must be the server's own.

        Raises:
            EngineError: If the server has ended.
        """
        request = {"words": list(words), "environment": dict(environment), "folder": os.getcwd()}
        (its_input, our_end), (told, its_told) = os.pipe(), os.pipe()
        try:
            line = json.dumps(request).encode() + b"\n"
            with self._lock:
                sent = socket.send_fds(self._asking, [line], [its_input, its_told, 2])
                self._asking.sendall(line[sent:])
        except OSError as error:
            for end in (our_end, told):
                os.close(end)
            raise EngineError(f"the process that starts the workers has ended ({error}); see its output") from error
        finally:
            os.close(its_input)
            os.close(its_told)
        return ForkedProcess(open(our_end, "wb", buffering=0), told)

    def close(self) -> None:
        """End the process. Its workers are no concern of it: they end with their standard input."""
        self._asking.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


_lock = threading.Lock()
_servers: list[ForkServer] = []


def shared(environment: Mapping[str, str]) -> ForkServer:
    """Return this process's fork server for workers with these variables. Each call needs a call of `free`."""
    with _lock:
        for server in _servers:
            if server.loaded_with == _of_libraries(environment) and server.runs:
                break
        else:
            server = ForkServer(environment)
            _servers.append(server)
        server.users += 1
        return server


def free(server: ForkServer) -> None:
    """Give back what `shared` returned; without users the process ends."""
    with _lock:
        server.users -= 1
        if server.users:
            return
        _servers.remove(server)
    server.close()


@contextmanager
def held(environment: Mapping[str, str]) -> Iterator[None]:
    """Keep a fork server for sessions that open and close one after the other, so that torch is loaded once."""
    server = shared(environment)
    try:
        yield
    finally:
        free(server)


def _of_libraries(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(LIBRARIES)}
