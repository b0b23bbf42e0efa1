"""Workers are forks of one process: they start, end, are killed and are replaced like processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lotan.errors import EngineError
from lotan.hosts import fork_server
from lotan.hosts.session import Session, SessionSettings, child_environment
from tests.waiting import wait_for

pytestmark = pytest.mark.processes


def environment() -> dict[str, str]:
    """What it is now: libraries that other tests load add variables."""
    return child_environment(SessionSettings().threads)


@pytest.fixture(scope="module", autouse=True)
def loaded() -> Iterator[fork_server.ForkServer]:
    """One server for the tests of this file that do not harm it."""
    server = fork_server.shared(environment())
    yield server
    fork_server.free(server)


def test_a_worker_reports_its_start_and_its_end(
    loaded: fork_server.ForkServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its error goes to the standard error of the process that asked, whenever the server was started."""
    worker = loaded.start(["--router", "tcp://127.0.0.1:9", "--keys", "/nowhere"], environment())
    assert worker.wait(30) == 1
    assert worker.returncode == worker.poll() == 1
    assert "/nowhere" in capfd.readouterr().err
    worker.stdin.close()


def test_a_worker_has_the_folder_and_the_variables_of_who_asks(
    loaded: fork_server.ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Session(SessionSettings(workers=1)) as session:
        (number,) = session.worker_processes.values()
        assert psutil.Process(number).cwd() == str(tmp_path)
        assert psutil.Process(number).ppid() == loaded.process.pid


def test_a_worker_ends_with_its_standard_input_or_by_a_signal(loaded: fork_server.ForkServer) -> None:
    with Session(SessionSettings(workers=1, respawns=0)) as session:
        words = ["--router", session.endpoint.address, "--exit-with-parent"]
        left, killed = loaded.start(words, environment()), loaded.start(words, environment())
        with pytest.raises(subprocess.TimeoutExpired):
            left.wait(0.01)
        left.stdin.close()
        assert left.wait(30) == 0
        killed.kill()
        assert killed.wait(30) == -signal.SIGKILL
        killed.stdin.close()


def test_sessions_share_a_server_unless_libraries_read_other_variables(loaded: fork_server.ForkServer) -> None:
    same, other = (
        fork_server.shared({**environment(), "ANY": "thing"}),
        fork_server.shared(child_environment(threads=2)),
    )
    assert same is loaded
    assert other is not loaded
    fork_server.free(same)
    fork_server.free(other)
    assert loaded.runs
    assert not other.runs


def test_a_server_that_is_killed_is_replaced_with_its_workers() -> None:
    with Session(SessionSettings(workers=2, capped=True)) as session:
        before = session.worker_processes
        server = session._fork_server
        server.process.kill()
        wait_for(lambda: len(session.worker_processes) == 2 and not set(session.worker_processes) & set(before))
        session.wait()
        assert session._fork_server is not server
        wait_for(lambda: not any(map(psutil.pid_exists, before.values())))


def test_a_server_that_has_ended_is_named() -> None:
    server = fork_server.shared(child_environment(threads=3))
    server.process.kill()
    server.process.wait()
    with pytest.raises(EngineError, match="the process that starts the workers has ended"):
        server.start([], environment())
    fork_server.free(server)


def test_nothing_outlives_a_killed_process_that_had_workers() -> None:
    code = (
        "from lotan.hosts.session import Session, SessionSettings\n"
        "import time\n"
        "with Session(SessionSettings(workers=1)) as session:\n"
        "    print(*session.worker_processes.values(), session._fork_server.process.pid, flush=True)\n"
        "    time.sleep(100)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ})
    with parent, parent.stdout as printed:
        numbers = [int(word) for word in printed.readline().split()]
        parent.kill()
    assert len(numbers) == 2
    wait_for(lambda: not any(map(psutil.pid_exists, numbers)))
