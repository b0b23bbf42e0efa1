"""The processes that training on Spark needs beside Spark: a Router, workers, and the link to them.

By default they are started as child processes and watched. They always stop: by `close`, or if this process is killed,
by the end of their standard input.
"""

from __future__ import annotations

import logging
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from lotan.borders import translated
from lotan.errors import ConfigurationError, EngineError
from lotan.hosts import fork_server
from messenger.coordinator import CoordinatorLink
from messenger.endpoint import Endpoint
from messenger.errors import DeadlineError
from messenger.joining import DEALER_ROLE, join, new_identity
from messenger.keys import keyed_endpoint
from messenger.settings import Settings
from messenger.sockets import connect
from planner.shares import MALLOC_ARENAS

log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[2]
ROUTER_SECONDS = 5.0  # seconds for a given Router to answer a first greeting
WATCH_SECONDS = 0.1  # seconds between two looks at the workers' processes


def worker_environment(threads: int, capped: bool = False) -> dict[str, str]:
    """Return the variables that a worker needs before it loads torch."""
    # MKL takes one code path for a matrix product wherever its operands are in memory, so a rerun gives the same bits
    needed = {"OMP_NUM_THREADS": str(threads), "MKL_CBWR": "AUTO,STRICT"}
    return needed | {"MALLOC_ARENA_MAX": MALLOC_ARENAS} if capped else needed


def child_environment(threads: int, capped: bool = False) -> dict[str, str]:
    """Return the variables of a process that is started here: this process's own, the checkout, and a worker's."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environment.get("PYTHONPATH")])])
    return worker_environment(threads, capped) | environment


@dataclass(frozen=True)
class SessionSettings:
    """The processes to start, and the deadlines for them."""

    workers: int | None = None  # processes to start; None: one per core, or none if a Router is given
    router: str | None = None  # address of a running Router; None: start one
    keys: str | Path | None = None  # directory of CurveZMQ keys
    threads: int = 1  # torch's threads per worker
    worker_memory: int = 1 << 30  # bytes that a worker may hold in memory between forward and backward
    # Folder for what exceeds these bytes; None: it is computed again.
    spill: str | None = field(default_factory=tempfile.gettempdir)
    capped: bool = False  # True if the C library is not to trade memory for speed
    respawns: int = 8  # ended workers and Routers that are replaced, over the session's life
    start_seconds: float = 60.0  # deadline for the Router and all workers to be connected
    stop_seconds: float = 1.0  # deadline for processes to end before they are killed
    messenger: Settings = field(default_factory=Settings)


@translated()
def check_router(address: str, keys: str | Path | None) -> None:
    """Check within seconds that a Router answers and lets us in, before Spark is started or a graph is read.

    Raises:
        MessengerError: If no Router answers at the address, it refuses, or the address or the keys are unusable.
    """
    settings = Settings(connect_seconds=ROUTER_SECONDS, linger_seconds=0.0)
    endpoint = keyed_endpoint(address, None if keys is None else Path(keys))
    link = connect(endpoint, new_identity(DEALER_ROLE, "greeting"), settings)
    try:
        join(link, DEALER_ROLE, "greeting", address, settings)
    finally:
        link.close(0)


class Session:
    """A Router with workers, and the link to them. Starting takes seconds; `wait` returns when all are connected.

    Args:
        settings: The processes to start, and their deadlines; None: the defaults.

    Raises:
        EngineError: If a process did not start, or (MessengerError) if the Router cannot be reached.
    """

    def __init__(self, settings: SessionSettings | None = None) -> None:
        self.settings = settings or SessionSettings()
        self._children: list[_Child] = []
        self._lock = threading.Lock()  # protects _children and _stopping
        self._stopping = threading.Event()
        self._respawned = 0
        self._watcher: threading.Thread | None = None
        self._fork_server: fork_server.ForkServer | None = None
        self.link: CoordinatorLink | None = None
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Session:
        try:
            self.wait()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def worker_processes(self) -> dict[str, int]:
        """The name and process id of each running worker that this session has started."""
        with self._lock:
            return {child.name: child.process.pid for child in self._children if child.is_worker and child.runs}

    @translated()
    def _start(self) -> None:
        settings = self.settings
        keys = None if settings.keys is None else Path(settings.keys)
        address = settings.router or self._start_router()
        self.endpoint: Endpoint = keyed_endpoint(address, keys)
        self._count = _worker_count(settings)
        for number in range(self._count):
            self._start_worker(f"worker-{os.getpid()}-{number}")
        self.link = CoordinatorLink(self.endpoint, settings.messenger)
        self._watcher = threading.Thread(target=self._watch, name="lotan-worker-watch", daemon=True)
        self._watcher.start()

    @translated()
    def wait(self) -> None:
        """Wait until every worker is connected, or at least one worker if all were started elsewhere.

        Raises:
            EngineError: If the workers do not connect before the deadline.
        """
        assert self.link is not None
        try:
            self.link.wait_for_workers(max(1, self._count), self.settings.start_seconds)
        except DeadlineError as error:
            raise EngineError(f"{error} (start_seconds){self._how_to_mend()}") from error

    def _how_to_mend(self) -> str:
        if self._count:
            return "; see their output for the reason"
        keys = "" if self.settings.keys is None else f" --keys {self.settings.keys}"
        return f"; start some with `lotan worker --router {self.endpoint.address}{keys}`"

    def _start_router(self, bind: str = "tcp://127.0.0.1:*") -> str:
        words = ["messenger.router_process", "--exit-with-parent", "--bind", bind]
        words += [] if self.settings.keys is None else ["--keys", str(self.settings.keys)]
        with self._lock:
            self._refuse_if_closed()
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                stdin=subprocess.PIPE,  # the end of this stream tells the child that we are gone
                stdout=subprocess.PIPE,
                env=child_environment(self.settings.threads, self.settings.capped),
                start_new_session=True,  # Ctrl-C is handled by this process alone
            )
            child = _Child("router", process, is_worker=False)
            self._children.append(child)
        assert child.process.stdout is not None
        line = read_line(child.process.stdout, self.settings.start_seconds)
        if not line:
            raise EngineError(
                f"the Router's process printed no address within {self.settings.start_seconds:.0f} s (start_seconds); "
                f"it {'runs' if child.runs else f'ended with status {child.process.returncode}'}. See its output above"
            )
        return line

    def _start_worker(self, name: str) -> None:
        settings = self.settings
        words = ["--router", self.endpoint.address, "--name", name, "--exit-with-parent"]
        words += ["--threads", str(settings.threads), "--memory", str(settings.worker_memory)]
        words += ["--kept", str(settings.messenger.kept_bytes), "--kept-rows", str(settings.messenger.kept_row_bytes)]
        words += [] if settings.spill is None else ["--spill", settings.spill]
        if settings.keys is not None:
            words += ["--keys", str(settings.keys)]
        environment = child_environment(settings.threads, settings.capped)
        with self._lock:
            self._refuse_if_closed()
            if self._fork_server is None or not self._fork_server.runs:
                self._free_fork_server()
                self._fork_server = fork_server.shared(environment)
            process = self._fork_server.start(words, environment)
            self._children.append(_Child(name, process, is_worker=True))

    def _refuse_if_closed(self) -> None:
        if self._stopping.is_set():
            raise EngineError("the session is closed")

    def _free_fork_server(self) -> None:
        server, self._fork_server = self._fork_server, None
        if server is not None:
            fork_server.free(server)

    # -- while it runs -----------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stopping.wait(WATCH_SECONDS):
            with self._lock:
                ended = [child for child in self._children if not child.runs]
                self._children = [child for child in self._children if child not in ended]
            # the Router first, because workers look for it
            for child in sorted(ended, key=lambda child: child.is_worker):
                self._replace(child)

    def _replace(self, child: _Child) -> None:
        """Report a worker or Router that has ended, and start another: neither holds the only copy of any data."""
        child.free()
        kind = "worker" if child.is_worker else "Router"
        reason = f"its process ended with status {child.process.returncode}"
        replaced = self._respawned < self.settings.respawns
        log.warning(
            "%s %s: %s%s",
            kind,
            child.name,
            reason,
            "; another takes its place, and nothing is lost" if replaced else "",
        )
        if child.is_worker and self.link is not None:
            self.link.lost(child.name, reason)
        self._respawned += 1
        if self._respawned > self.settings.respawns:
            log.error("%d processes died: no more are started (respawns)", self._respawned)
            return
        try:
            if child.is_worker:
                self._start_worker(f"{child.name.split('+')[0]}+{self._respawned}")
            else:
                self._start_router(self.endpoint.address)
        except (OSError, EngineError) as error:
            log.error("cannot start another %s: %s", kind, error)

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop all processes that were started. This may be called twice."""
        with self._lock:
            self._stopping.set()
        if self._watcher is not None:
            self._watcher.join(timeout=5)
        if self.link is not None:
            if self.settings.router is None:
                self.link.stop_router()
            self.link.close()
        self._stop_children()

    def _stop_children(self) -> None:
        with self._lock:
            children, self._children = self._children, []
        for child in children:
            child.end_input()
        deadline = time.monotonic() + self.settings.stop_seconds
        for child in children:
            child.wait(max(0.0, deadline - time.monotonic()))
        for child in children:
            child.free()
        with self._lock:
            self._free_fork_server()


@dataclass(eq=False)
class _Child:
    """A process that this session has started."""

    name: str
    process: subprocess.Popen[bytes] | fork_server.ForkedProcess
    is_worker: bool

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def end_input(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()

    def wait(self, seconds: float) -> None:
        """Wait until the process has ended; kill it at the deadline."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def free(self) -> None:
        """Close our ends of the process's pipes."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def _worker_count(settings: SessionSettings) -> int:
    if settings.workers is not None:
        if settings.workers < 1:
            raise ConfigurationError(f"workers is {settings.workers}; expected at least 1")
        return settings.workers
    return 0 if settings.router is not None else (os.cpu_count() or 1)


def read_line(stream: IO[bytes], seconds: float) -> str:
    """Return the first line of a process's output; empty if the process ended, or printed none before the deadline."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return stream.readline().decode().strip() if selector.select(seconds) else ""
