"""A whole messenger in one process: a Router, workers and a coordinator, each with its threads."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

from messenger.coordinator import CoordinatorLink
from messenger.dealer import Dealer
from messenger.endpoint import Endpoint
from messenger.in_process import InProcessHub
from messenger.jobs import PipeJob
from messenger.ledger import Totals
from messenger.router import Router
from messenger.settings import Settings
from messenger.sockets import ZmqHub
from messenger.sockets import connect as connect_socket
from messenger.transport import Connect
from messenger.worker_loop import WorkerLoop
from tests.messenger.numpy_handler import DEADLINE, NumpyHandler, weight

QUICK = Settings(
    credits=3,
    group_chunks=4,
    heartbeat_seconds=0.05,
    missed_heartbeats=60,
    connect_seconds=5,
    worker_seconds=DEADLINE,
    result_seconds=DEADLINE,
    fetch_seconds=DEADLINE,
    commit_seconds=DEADLINE,
    linger_seconds=0.5,
)


TRANSPORTS = ["in_process", "zmq", "shared"]


class Network:
    """Started by hand, piece by piece; `close` ends everything.

    Args:
        transport: "in_process" for queues, "zmq" for sockets, "shared" for sockets with tensors in shared memory.
        settings: of all peers.
    """

    def __init__(self, transport: str, settings: Settings = QUICK) -> None:
        self.transport = transport
        if transport != "shared":
            settings = dataclasses.replace(settings, shared_bytes=0)
        self.settings = settings
        hub = InProcessHub() if transport == "in_process" else ZmqHub("tcp://127.0.0.1:*", settings)
        self.connect: Connect = hub.connect if isinstance(hub, InProcessHub) else connect_socket
        self.router = Router(hub, settings)
        self.endpoint = Endpoint(self.router.address)
        self.handlers: dict[str, NumpyHandler] = {}
        self.failures: dict[str, Exception] = {}
        self._workers: dict[str, tuple[WorkerLoop, threading.Thread]] = {}
        self._dealers: list[Dealer] = []
        self._router_thread = self._thread(self.router.run)
        self.link = CoordinatorLink(self.endpoint, settings, self.connect)

    def worker(self, name: str, **changes: Any) -> None:
        """Start a worker, with these changes to the settings."""
        handler = self.handlers[name] = NumpyHandler(name)
        settings = dataclasses.replace(self.settings, **changes)
        loop = WorkerLoop(self.endpoint, handler, name, settings, self.connect)

        def run() -> None:
            try:
                loop.run()
            except Exception as error:
                self.failures[name] = error

        self._workers[name] = loop, self._thread(run)

    def workers(self, count: int) -> None:
        """Start workers w0, w1, ... and wait until the Router has them."""
        for index in range(count):
            self.worker(f"w{index}")
        self.link.wait_for_workers(count, DEADLINE)

    def stop_worker(self, name: str) -> None:
        """End a worker the orderly way."""
        loop, thread = self._workers.pop(name)
        loop.stop()
        thread.join(DEADLINE)

    def dealer(self, connect: Connect | None = None, **changes: Any) -> Dealer:
        """A new Dealer, with these changes to the settings."""
        settings = dataclasses.replace(self.settings, **changes)
        self._dealers.append(Dealer(self.endpoint, settings, connect=connect or self.connect))
        return self._dealers[-1]

    def begin(self, epoch: int, run: str = "run", **settings: Any) -> None:
        """Publish the stage and open an epoch."""
        self.link.publish(run, "s", {"calls": []})
        self.link.begin(run, epoch, {"w": weight(epoch)}, settings)

    def totals(self, partitions: int, epoch: int = 0, mode: str = "turn") -> Totals:
        """What an epoch came to."""
        return self.link.wait([job(partition, epoch, mode) for partition in range(partitions)], DEADLINE)

    def stop_router(self) -> None:
        """End the Router; others have to notice."""
        self.router.stop()
        self._router_thread.join(DEADLINE)

    def abandon_router(self) -> None:
        """Have the Router fall silent without a word of farewell."""
        self.router._broadcast = lambda message: None  # type: ignore[method-assign]
        self.stop_router()

    def close(self) -> None:
        """End everything that runs."""
        for dealer in self._dealers:
            dealer.close()
        for name in list(self._workers):
            self.stop_worker(name)
        self.link.close()
        self.stop_router()
        assert not self._router_thread.is_alive()

    @staticmethod
    def _thread(target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=target, daemon=True)
        thread.start()
        return thread


def job(partition: int, epoch: int = 0, mode: str = "turn", run: str = "run", stage: str = "s") -> PipeJob:
    return PipeJob(run, epoch, stage, mode, partition, accumulates=mode != "forward")


class Background:
    """A function in a thread; `result` waits for it and raises what it raised."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._outcome: list[Any] = []
        self._error: list[BaseException] = []
        self._thread = Network._thread(lambda: self._run(function))

    def _run(self, function: Callable[[], Any]) -> None:
        try:
            self._outcome.append(function())
        except BaseException as error:
            self._error.append(error)

    def result(self) -> Any:
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), "a call did not end within the deadline"
        if self._error:
            raise self._error[0]
        return self._outcome[0]


def started(transport: str, settings: Settings = QUICK, workers: int = 2) -> Iterator[Network]:
    """For fixtures."""
    network = Network(transport, settings)
    try:
        network.workers(workers)
        yield network
    finally:
        network.close()
