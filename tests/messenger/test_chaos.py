"""Real processes, killed and stopped in the middle of their work: the same bits, or a clear error in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash

from messenger.coordinator import CoordinatorLink
from messenger.dealer import Dealer
from messenger.endpoint import Endpoint
from messenger.errors import DeadlineError, MessengerError, RefusedError, UnsafeBindError
from messenger.keys import CurveKeys, create_keys, keyed_endpoint
from messenger.router_process import main as router_main
from messenger.router_process import serve
from tests.messenger.network import QUICK, Background, job
from tests.messenger.numpy_handler import DEADLINE, chunks, rows_checksum, truth, wait_until, weight, who_holds

pytestmark = pytest.mark.chaos

COUNT = 20  # chunks of a partition
HELD = 10  # where workers hold: in the middle of the third group
SETTINGS = {
    "credits": QUICK.credits,
    "group_chunks": QUICK.group_chunks,
    "heartbeat_seconds": QUICK.heartbeat_seconds,
    "missed_heartbeats": QUICK.missed_heartbeats,
}
ROUTER = f"""
from messenger.router_process import serve
from messenger.settings import Settings
serve("tcp://127.0.0.1:*", exit_with_parent=True, settings=Settings(**{SETTINGS}))
"""


class Cluster:
    """A Router, workers and Dealers as processes; the test is the driver."""

    def __init__(self) -> None:
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.router = self.start("router", "-c", ROUTER)
        self.endpoint = Endpoint(self.line("router"))
        self.link = CoordinatorLink(self.endpoint, QUICK)
        self.link.publish("run", "s", {})
        self._dealers: list[Dealer] = []

    def start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.processes[name] = subprocess.Popen([sys.executable, *arguments], text=True, **pipes)  # type: ignore[call-overload]
        return self.processes[name]

    def workers(self, *names: str) -> None:
        for name in names:
            self.start(name, "-m", "tests.messenger.worker_process", self.endpoint.address, name)
        wait_until(lambda: set(names) <= set(self.link.wait_for_workers(len(names), DEADLINE)))

    def task(self, name: str, partition: int) -> None:
        """Start a Dealer's task."""
        module = "tests.messenger.dealer_process"
        self.start(name, "-m", module, self.endpoint.address, str(partition), str(COUNT))

    def dealer(self) -> Dealer:
        self._dealers.append(Dealer(self.endpoint, QUICK))
        return self._dealers[-1]

    def line(self, name: str) -> str:
        """The next line that a process prints."""
        stdout = self.processes[name].stdout
        assert stdout is not None
        return str(Background(stdout.readline).result()).strip()

    def done(self, name: str) -> str:
        """The last line of a process that ends well."""
        out, err = self.processes[name].communicate(timeout=DEADLINE)
        assert self.processes[name].returncode == 0, err
        return str(out).strip().splitlines()[-1]

    def error(self, name: str) -> str:
        """What a process that fails says; it ends by itself."""
        _, err = self.processes[name].communicate(timeout=DEADLINE)
        assert self.processes[name].returncode == 1, err
        return str(err)

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait(DEADLINE)

    def close(self) -> None:
        for dealer in self._dealers:
            dealer.close()
        self.link.close()
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(DEADLINE)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    try:
        yield cluster
    finally:
        cluster.close()


def expected(*partitions: int) -> bytes:
    return truth([chunks(partition, COUNT) for partition in partitions], QUICK.group_chunks).tobytes()


def expected_rows(partition: int, epoch: int = 0) -> str:
    rows = [chunk.tensors["x"] @ weight(epoch) for chunk in chunks(partition, COUNT)]
    return xxhash.xxh64_hexdigest(b"".join(one.tobytes() for one in rows))


def sums(cluster: Cluster, *partitions: int, epoch: int = 0) -> bytes:
    totals = cluster.link.wait([job(partition, epoch) for partition in partitions], DEADLINE)
    assert totals.chunks == COUNT * len(partitions), "counted once"
    assert totals.bytes_shared >= COUNT * len(partitions) * 2 * 8 * 4 * 4, "all rows went through shared memory"
    return totals.tensors["gradient/w"].tobytes()


def maps(process: subprocess.Popen[str]) -> str:
    """What a process has mapped."""
    return Path(f"/proc/{process.pid}/maps").read_text()


def test_a_worker_killed_in_the_middle_of_a_group(cluster: Cluster, tmp_path: Path):
    """Nobody tells the Router: the end of the connection does."""
    cluster.workers("w0", "w1")
    cluster.link.begin("run", 0, {"w": weight(0)}, {"hold": str(tmp_path), "chunk": HELD})
    rows = Background(lambda: list(cluster.dealer().pipe(job(0), chunks(0, COUNT))))
    cluster.kill(who_holds(tmp_path))
    assert rows_checksum(rows.result()) == expected_rows(0)
    assert sums(cluster, 0) == expected(0)


def test_the_only_worker_killed_and_another_started(cluster: Cluster, tmp_path: Path):
    cluster.workers("w0")
    cluster.link.begin("run", 0, {"w": weight(0)}, {"hold": str(tmp_path), "chunk": HELD})
    rows = Background(lambda: list(cluster.dealer().pipe(job(0), chunks(0, COUNT))))
    cluster.kill(who_holds(tmp_path))
    cluster.link.lost("w0", "killed by signal 9")
    cluster.workers("w1")
    assert rows_checksum(rows.result()) == expected_rows(0)
    assert sums(cluster, 0) == expected(0)


def test_a_dealer_killed_and_its_task_repeated(cluster: Cluster, tmp_path: Path):
    cluster.workers("w0", "w1")
    cluster.link.begin("run", 0, {"w": weight(0)}, {"hold": str(tmp_path), "chunk": HELD})
    cluster.task("attempt 0", 0)
    worker = cluster.processes[who_holds(tmp_path)]
    assert "/dev/shm" in maps(worker)
    cluster.kill("attempt 0")
    cluster.task("attempt 1", 0)
    (tmp_path / "release").touch()
    assert cluster.done("attempt 1") == f"done {expected_rows(0)}"
    assert sums(cluster, 0) == expected(0)
    wait_until(lambda: "/dev/shm" not in maps(worker))


def test_two_attempts_at_the_same_time(cluster: Cluster):
    cluster.workers("w0", "w1")
    cluster.link.begin("run", 0, {"w": weight(0)})
    for name in ("a", "b"):
        cluster.task(name, 0)
    cluster.task("other", 1)
    assert {cluster.done("a"), cluster.done("b")} == {f"done {expected_rows(0)}"}
    assert cluster.done("other") == f"done {expected_rows(1)}"
    assert sums(cluster, 0, 1) == expected(0, 1)


def test_a_task_of_an_epoch_that_is_over(cluster: Cluster, tmp_path: Path):
    cluster.workers("w0")
    cluster.link.begin("run", 0, {"w": weight(0)}, {"hold": str(tmp_path), "chunk": HELD})
    cluster.task("zombie", 0)
    who_holds(tmp_path)
    cluster.link.begin("run", 1, {"w": weight(1)})
    (tmp_path / "release").touch()
    list(cluster.dealer().pipe(job(0, 1), chunks(0, COUNT)))
    assert "StaleEpochError" in cluster.error("zombie")
    assert sums(cluster, 0, epoch=1) == expected(0)


def test_a_worker_stopped_for_a_while_is_waited_for(cluster: Cluster, tmp_path: Path):
    cluster.workers("w0")
    cluster.link.begin("run", 0, {"w": weight(0)}, {"hold": str(tmp_path), "chunk": HELD})
    rows = Background(lambda: list(cluster.dealer().pipe(job(0), chunks(0, COUNT))))
    who_holds(tmp_path)
    process = cluster.processes["w0"]
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "T")
    (tmp_path / "release").touch()
    process.send_signal(signal.SIGCONT)
    assert rows_checksum(rows.result()) == expected_rows(0)
    assert sums(cluster, 0) == expected(0)


def test_a_worker_stopped_for_long_is_replaced_and_comes_back(cluster: Cluster, tmp_path: Path):
    """What it sends when it wakes is of a ticket that is over; it joins again as if new."""
    cluster.workers("w0", "w1")
    cluster.link.begin("run", 0, {"w": weight(0)}, {"hold": str(tmp_path), "chunk": HELD})
    rows = Background(lambda: list(cluster.dealer().pipe(job(0), chunks(0, COUNT))))
    stopped = who_holds(tmp_path)
    cluster.processes[stopped].send_signal(signal.SIGSTOP)
    assert rows_checksum(rows.result()) == expected_rows(0)
    (tmp_path / "release").touch()
    cluster.processes[stopped].send_signal(signal.SIGCONT)
    wait_until(lambda: cluster.link.wait_for_workers(2, DEADLINE) == ["w0", "w1"])
    for partition in (1, 2, 3):
        list(cluster.dealer().pipe(job(partition), chunks(partition, COUNT)))
    assert sums(cluster, 0, 1, 2, 3) == expected(0, 1, 2, 3)


def test_the_router_killed(cluster: Cluster, tmp_path: Path):
    cluster.workers("w0")
    cluster.link.begin("run", 0, {"w": weight(0)}, {"hold": str(tmp_path), "chunk": HELD})
    cluster.task("task", 0)
    who_holds(tmp_path)
    cluster.kill("router")
    (tmp_path / "release").touch()
    for name in ("task", "w0"):
        assert f"RouterLostError: the Router at {cluster.endpoint.address} has been silent" in cluster.error(name)
    with pytest.raises(MessengerError, match="silent"):
        cluster.link.wait([job(0)], DEADLINE)


def test_a_driver_that_ends_takes_the_router_along(cluster: Cluster):
    cluster.workers("w0")
    assert cluster.router.stdin is not None
    cluster.router.stdin.close()  # as the death of the driver would
    cluster.router.wait(DEADLINE)
    cluster.processes["w0"].wait(DEADLINE)
    assert cluster.processes["w0"].returncode == 0, "told to stop"


def test_a_router_told_to_end(cluster: Cluster):
    cluster.workers("w0")
    cluster.link.stop_router()
    for name in ("router", "w0"):
        assert cluster.processes[name].wait(DEADLINE) == 0


def test_keys_let_in_whom_they_should(tmp_path: Path):
    """A Router beyond loopback: a worker with a key works, all others are refused in time and told why."""
    keys = tmp_path / "keys"
    create_keys(keys)
    create_keys(tmp_path / "strangers")
    command = ["-m", "messenger.router_process", "--bind", "tcp://0.0.0.0:*", "--keys", str(keys), "--exit-with-parent"]
    file = tmp_path / "address"
    cluster = Cluster()
    try:
        cluster.start("keyed", *command, "--address-file", str(file))
        wait_until(file.exists)
        address = file.read_text().strip().replace("0.0.0.0", "127.0.0.1")
        _check_refusals(address, keys, tmp_path / "strangers")
        link = CoordinatorLink(keyed_endpoint(address, keys), QUICK)
        cluster.start("w0", "-m", "tests.messenger.worker_process", address, "w0", str(keys))
        assert link.wait_for_workers(1, DEADLINE) == ["w0"]
        link.publish("run", "s", {})
        link.begin("run", 0, {"w": weight(0)})
        dealer = Dealer(keyed_endpoint(address, keys), QUICK)
        assert rows_checksum(list(dealer.pipe(job(0), chunks(0, COUNT)))) == expected_rows(0)
        dealer.close()
        link.stop_router()
        link.close()
        assert cluster.processes["keyed"].wait(DEADLINE) == 0
    finally:
        cluster.close()


def _check_refusals(address: str, keys: Path, strangers: Path) -> None:
    server, own, foreign = (
        CurveKeys.load(keys, "router"),
        CurveKeys.load(keys, "client"),
        CurveKeys.load(strangers, "client"),
    )
    wrong = {
        "a client key that is not allowed": Endpoint(address, server.public, foreign.public, foreign.secret),
        "another Router's key": Endpoint(address, foreign.public, own.public, own.secret),
        "no keys": Endpoint(address),
    }
    for what, endpoint in wrong.items():
        dealer = Dealer(endpoint, QUICK)
        with pytest.raises((RefusedError, DeadlineError), match=r"refused the dealer .* keys|did not answer") as caught:
            list(dealer.pipe(job(0), []))
        assert isinstance(caught.value, RefusedError) or what == "another Router's key", what


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]):
    assert router_main(["--bind", "tcp://0.0.0.0:0"]) == 1
    assert "without keys" in capsys.readouterr().err
    assert router_main(["--bind", "tcp://127.0.0.1:0", "--keys", "/nowhere"]) == 1
    assert "cannot read the key /nowhere/router.public" in capsys.readouterr().err
    with pytest.raises(UnsafeBindError):
        serve("tcp://*:1")


def test_a_dealer_survives_a_fork(cluster: Cluster):
    """A child has a connection of its own, and leaves its parent's alone."""
    cluster.workers("w0")
    cluster.link.begin("run", 0, {"w": weight(0)})
    dealer = cluster.dealer()
    list(dealer.pipe(job(0), chunks(0, COUNT)))
    child = os.fork()
    if child == 0:  # no exception may leave this branch
        try:
            list(dealer.pipe(job(1), chunks(1, COUNT)))
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(Background(lambda: os.waitpid(child, 0)).result()[1]) == 0
    list(dealer.pipe(job(2), chunks(2, COUNT)))
    assert sums(cluster, 0, 1, 2) == expected(0, 1, 2)
