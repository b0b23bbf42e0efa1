"""The driver's side: it gives workers stages and parameters, and enters the partitions' commits in the ledger."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from messenger.endpoint import Endpoint
from messenger.errors import ConflictError, DeadlineError, FrameError, MessengerError, RemoteError, StaleEpochError
from messenger.fields import Kind
from messenger.frames import Message, decode, encode
from messenger.jobs import PipeJob
from messenger.joining import COORDINATOR_ROLE
from messenger.ledger import Commit, Ledger, Totals
from messenger.pump import Failed, Forgotten, Incoming, Pump
from messenger.settings import Settings
from messenger.sockets import connect as connect_socket
from messenger.transport import ROUTER, Connect

T = TypeVar("T")
Begun = tuple[dict[str, np.ndarray], dict[str, Any]]
"""A pass's parameters and settings."""

TICK_SECONDS = 0.25  # the thread checks this often whether the link was closed


class CoordinatorLink:
    """The one coordinator of a Router. A thread answers workers and Dealers. Any thread may call the methods.

    Args:
        endpoint: the Router's address and the coordinator's keys.
        settings: deadlines and limits (default: `Settings()`).
        connect: opens the link (default: a ZeroMQ socket).
        name: a name for messages to people (default: "driver").

    Raises:
        MessengerError: the Router cannot be reached, or refuses the coordinator.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        settings: Settings | None = None,
        connect: Connect = connect_socket,
        name: str = "driver",
    ) -> None:
        self._settings = settings or Settings()
        self._pump = Pump(endpoint, COORDINATOR_ROLE, name, self._settings, connect)
        self._changed = threading.Condition()  # guards the attributes below
        self._ledger = Ledger()
        self._programs: dict[tuple[str, str], dict[str, Any]] = {}
        self._parameters: dict[str, Begun] = {}
        self._promised: dict[str, int] = {}  # by run: the last pass that will be begun without anybody asking for it
        self._early: dict[tuple[str, int], list[bytes]] = {}  # by run and pass: the workers that wait for it to begin
        self._workers: list[str] = []
        self._failure: Exception | None = None
        self._closing = False
        self._pump.start()
        self._thread = threading.Thread(target=self._serve, name="lotan-coordinator", daemon=True)
        self._thread.start()

    # -- the driver's methods ----------------------------------------------------------------------------------------

    def publish(self, run: str, name: str, program: dict[str, Any]) -> None:
        """Make a stage's program available to workers.

        Args:
            run: the run's name.
            name: the stage's name.
            program: plain data that msgpack can carry, with text keys.

        Raises:
            MessengerError: the stage was published with another program; use another run.
            FrameError: the program is no plain data, or exceeds a limit.
        """
        encode(_program(run, name, program), self._settings.limits)  # an error is raised here, not when a worker asks
        with self._changed:
            if self._programs.setdefault((run, name), program) != program:
                raise MessengerError(
                    f"stage {name!r} of run {run!r} has another program already: a changed plan needs a new run"
                )

    def begin(
        self,
        run: str,
        pass_number: int,
        parameters: Mapping[str, np.ndarray],
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Open a pass: from now on, work for this pass of the run is accepted, and for no other.

        Beginning the same pass a second time drops its commits, so that it can be run again.

        Args:
            run: the run's name, any text that is unique among the runs of this Router.
            pass_number: a number greater than the last pass's; or the same, if parameters and settings are the same.
            parameters: float arrays by name, which are copied.
            settings: plain data for the handler, such as the seed (default: none).

        Raises:
            MessengerError: the pass was begun with other parameters, or is over.
        """
        copied = {name: np.array(tensor) for name, tensor in parameters.items()}
        encode(_values(run, pass_number, (copied, dict(settings or {}))), self._settings.limits)
        with self._changed:
            current = self._ledger.pass_number(run)
            new = (copied, dict(settings or {}))
            if pass_number < current or (pass_number == current and not _equal(new, self._parameters[run])):
                raise MessengerError(
                    f"cannot begin epoch {pass_number} of run {run!r}: epoch {current} was begun with other parameters, and"
                    " workers may hold them; number every set of parameters anew"
                )
            self._parameters[run] = new
            self._ledger.begin(run, pass_number)
            waiting = self._early.pop((run, pass_number), [])
        for worker in waiting:
            self._pump.send(worker, _values(run, pass_number, new))

    def promise(self, run: str, last: int) -> None:
        """Have workers wait for passes of a run that are still to begin, up to a number. Other passes are refused.

        Chunks of such a pass may be sent to workers before it begins. They run once it has begun.

        Args:
            run: the run's name.
            last: the number of the last pass that will be begun, unless the run is forgotten.
        """
        with self._changed:
            self._promised[run] = last

    def wait(self, jobs: Iterable[PipeJob], seconds: float | None = None) -> Totals:
        """Wait until all these partitions have committed, and return the sum of their commits.

        Stages are summed in the order in which they first appear in `jobs`, and within a stage partitions are summed
        in the order of their numbers.

        Args:
            jobs: the partitions, in any order.
            seconds: how long to wait (default: `commit_seconds`). After a Spark action nothing is left to wait for.

        Raises:
            ConflictError: two attempts of a partition had different results.
            DeadlineError: a partition, which the error names, did not commit in time.
            MessengerError: the Router is lost.
        """
        jobs = _in_order(jobs)
        seconds = self._settings.commit_seconds if seconds is None else seconds

        def totals() -> Totals | None:
            for run in {job.run for job in jobs}:
                self._ledger.check(run)
            return None if self._ledger.missing(jobs) else self._ledger.totals(jobs)

        def late() -> str:
            missing = self._ledger.missing(jobs)
            return f"{len(missing)} of {len(jobs)} partitions did not commit within {seconds} s, such as {missing[0]}"

        return self._wait(totals, late, seconds)

    def wait_for_workers(self, count: int, seconds: float | None = None) -> list[str]:
        """Wait until a number of workers are connected to the Router.

        Args:
            count: the number of workers.
            seconds: how long to wait (default: `worker_seconds`).

        Returns:
            The names of all workers that are connected.

        Raises:
            DeadlineError: fewer workers were connected in time.
        """
        seconds = self._settings.worker_seconds if seconds is None else seconds

        def enough() -> list[str] | None:
            return list(self._workers) if len(self._workers) >= count else None

        def late() -> str:
            return (
                f"{len(self._workers)} of {count} workers were connected to the Router within {seconds} s:"
                f" {', '.join(self._workers) or 'none'}"
            )

        return self._wait(enough, late, seconds)

    def lost(self, worker: str, reason: str) -> None:
        """Tell the Router that a worker's process has ended, which is quicker than waiting for missed heartbeats."""
        self._pump.send(ROUTER, Message(Kind.LOST, {"name": worker, "text": reason[:1000]}))

    def forget(self, run: str) -> None:
        """Drop all data of a run, here, in the Router and in the workers."""
        with self._changed:
            self._programs = {key: program for key, program in self._programs.items() if key[0] != run}
            self._parameters.pop(run, None)
            self._promised.pop(run, None)
            self._early = {key: workers for key, workers in self._early.items() if key[0] != run}
            self._ledger.forget(run)
        self._pump.send(ROUTER, Message(Kind.FORGET, {"run": run}))

    def stop_router(self) -> None:
        """Tell the Router to end, and with it all its workers."""
        self._pump.send(ROUTER, Message(Kind.STOP))

    def close(self) -> None:
        """Disconnect. A second call does nothing."""
        self._closing = True
        self._pump.close()
        self._thread.join(self._settings.linger_seconds + 1)

    # -- the thread --------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._closing:
            event = self._pump.next(TICK_SECONDS)
            if isinstance(event, Failed):
                self._fail(event.error)
                return
            if isinstance(event, Forgotten):
                self._pump.rejoin()
            elif isinstance(event, Incoming):
                try:
                    self._take(event.sender, decode(event.frames, self._settings.limits))
                except FrameError as error:
                    self._error(event.sender, "frame", f"the coordinator got {error}")
                except Exception as error:  # a bug; the driver must not wait for ever
                    self._fail(error)
                    raise

    def _take(self, sender: bytes, message: Message) -> None:
        match message.kind:
            case Kind.FETCH:
                self._fetch(sender, message.header)
            case Kind.COMMIT:
                self._commit(sender, message)
            case Kind.PONG:
                with self._changed:
                    self._workers = message.header.get("workers", [])
                    self._changed.notify_all()

    def _fetch(self, worker: bytes, header: dict[str, Any]) -> None:
        try:
            answer = self._stage(header) if header["what"] == "stage" else self._epoch(worker, header)
        except RemoteError as error:
            code = "stale" if isinstance(error, StaleEpochError) else "unknown"
            self._error(worker, code, str(error), header)
        else:
            self._pump.send(worker, answer)

    def _stage(self, header: dict[str, Any]) -> Message:
        run, name = header["run"], header.get("name", "")
        with self._changed:
            program = self._programs.get((run, name))
        if program is None:
            raise RemoteError(f"the coordinator has no stage {name!r} of run {run!r}", stage=name)
        return _program(run, name, program)

    def _epoch(self, worker: bytes, header: dict[str, Any]) -> Message:
        run, number = header["run"], header.get("epoch", -1)
        with self._changed:
            current = self._ledger.pass_number(run)
            if current < number <= self._promised.get(run, -1):
                self._early.setdefault((run, number), []).append(worker)
                return Message(Kind.DATA, {"what": "later", "run": run, "epoch": number})
            if number != current:
                raise StaleEpochError(f"epoch {number} of run {run!r} is not open, epoch {current} is (-1: none)")
            return _values(run, number, self._parameters[run])

    def _commit(self, dealer: bytes, message: Message) -> None:
        header = message.header
        job = PipeJob(*(header[name] for name in ("run", "epoch", "stage", "mode", "partition")))
        names = ("count", "rows", "checksum", "bytes_sent", "bytes_received")
        values = {name: header[name] for name in names}
        commit = Commit(job, message.tensors, **values, bytes_shared=header.get("bytes_shared", 0))
        try:
            with self._changed:
                first = self._ledger.commit(commit)
        except RemoteError as error:
            code = "conflict" if isinstance(error, ConflictError) else "stale"
            self._error(dealer, code, str(error), {"ticket": header["ticket"]})
        else:
            self._pump.send(dealer, Message(Kind.COMMITTED, {"ticket": header["ticket"], "first": first}))
        with self._changed:
            self._changed.notify_all()

    def _error(self, to: bytes, code: str, text: str, about: Mapping[str, Any] | None = None) -> None:
        self._pump.send(to, Message(Kind.ERROR, {"code": code, "text": text, **(about or {})}))

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _wait(self, ready: Callable[[], T | None], late: Callable[[], str], seconds: float) -> T:
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                value = ready()
                if value is not None:
                    return value
                if self._failure is not None:
                    raise MessengerError(f"the coordinator's connection failed: {self._failure}") from self._failure
                left = deadline - time.monotonic()
                if left <= 0:
                    raise DeadlineError(late())
                self._changed.wait(left)


def _in_order(jobs: Iterable[PipeJob]) -> list[PipeJob]:
    jobs = list(dict.fromkeys(jobs))
    stages = {(job.run, job.stage, job.mode): place for place, job in reversed(list(enumerate(jobs)))}
    return sorted(jobs, key=lambda job: (stages[job.run, job.stage, job.mode], job.partition))


def _program(run: str, name: str, program: dict[str, Any]) -> Message:
    return Message(Kind.DATA, {"what": "stage", "run": run, "name": name, "program": program})


def _values(run: str, pass_number: int, begun: Begun) -> Message:
    return Message(Kind.DATA, {"what": "parameters", "run": run, "epoch": pass_number, "settings": begun[1]}, begun[0])


def _equal(one: Begun, other: Begun) -> bool:
    if one[1] != other[1] or one[0].keys() != other[0].keys():
        return False
    return all(
        np.array_equal(tensor, other[0][name], equal_nan=tensor.dtype.kind == "f") for name, tensor in one[0].items()
    )
