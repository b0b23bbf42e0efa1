"""Ctrl-C ends a command within two seconds, also where Python cannot get a word in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from lotan.cli.interrupt import exit_soon_after_interrupt
from tests.conftest import needs_jar
from tests.waiting import wait_for

pytestmark = pytest.mark.processes

ON_SPARK = [
    pytest.param("rows", marks=[pytest.mark.spark, pytest.mark.nightly]),
    pytest.param("blocks", marks=[pytest.mark.spark, pytest.mark.nightly, needs_jar]),
]

# Handlers that do nothing stand for a call that does not come back.
STUBBORN = """
import signal, subprocess, sys, threading
from lotan.cli.interrupt import exit_soon_after_interrupt
with exit_soon_after_interrupt(130, grace=0.5):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait(60)"])
    print(child.pid, flush=True)
    threading.Event().wait()
"""
# An exit handler that takes longer than there is time: those before it, which would remove the folders, do not run.
SLOW_TO_EXIT = """
import atexit, signal, threading
from lotan.cli.interrupt import exit_soon_after_interrupt
from lotan.hosts.local_folder import LocalFolder
folders = [LocalFolder() for _ in range(2)]
for folder in folders:
    atexit.register(folder.close)
atexit.register(threading.Event().wait, 60)
with exit_soon_after_interrupt(130, grace=0.2):
    signal.signal(signal.SIGINT, lambda *_: None)
    print(*(folder.path for folder in folders), flush=True)
    threading.Event().wait()
"""
ORDERLY = """
import threading
from lotan.cli.interrupt import exit_soon_after_interrupt
try:
    with exit_soon_after_interrupt(130):
        print(0, flush=True)
        threading.Event().wait(60)
except KeyboardInterrupt:
    print("closed", flush=True)
"""
UNREAD = """
import sys, types
from lotan.cli import main
def run(options):
    print(0, flush=True)
    while True:
        print("epoch", file=sys.stderr, flush=True)
sys.modules["lotan.cli.datasets"] = types.SimpleNamespace(add_options=lambda _: None, run=run)
sys.argv = ["lotan", "datasets"]
main()
"""
# PySpark's handler calls into the JVM before it raises, and Py4J cannot where another call was cut off.
CUT_OFF = """
import signal, sys, threading, types
from lotan.cli import main
from py4j.protocol import Py4JError
def fail(*_):
    raise Py4JError("Gateway must be connected to send cancel cmd.")
def run(options):
    signal.signal(signal.SIGINT, fail)
    print(0, flush=True)
    threading.Event().wait(60)
sys.modules["lotan.cli.datasets"] = types.SimpleNamespace(add_options=lambda _: None, run=run)
sys.argv = ["lotan", "datasets"]
sys.exit(main())
"""
EARLY = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
from lotan.cli import main
sys.exit(main(["--version"]))
"""


@pytest.mark.parametrize("importing", ["lotan.cli.interrupt", "lotan.borders", "argparse"])
def test_an_interrupt_while_the_first_modules_are_imported_is_no_traceback(importing):
    done = subprocess.run(
        [sys.executable, "-c", EARLY, importing], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "lotan: interrupted\n")


@pytest.mark.parametrize("received", [signal.SIGINT, signal.SIGTERM])
def test_stubborn_command_and_its_children_are_ended(received):
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True) as command:
        child = psutil.Process(int(command.stdout.readline()))
        command.send_signal(received)
        assert command.wait(timeout=10) == 130
        assert psutil.wait_procs([child], timeout=5)[1] == []


def test_temporary_folders_are_removed_also_where_there_is_no_time_for_it():
    with subprocess.Popen([sys.executable, "-c", SLOW_TO_EXIT], stdout=subprocess.PIPE, text=True) as command:
        folders = [Path(word) for word in command.stdout.readline().split()]
        assert [folder.is_dir() for folder in folders] == [True, True]
        command.send_signal(signal.SIGINT)
        assert command.wait(timeout=10) == 130
    wait_for(lambda: not any(folder.exists() for folder in folders), seconds=10)


@pytest.mark.parametrize("received", [signal.SIGINT, signal.SIGTERM])
def test_orderly_command_ends_by_itself(received):
    with subprocess.Popen([sys.executable, "-c", ORDERLY], stdout=subprocess.PIPE, text=True) as command:
        command.stdout.readline()
        command.send_signal(received)
        assert command.communicate(timeout=10)[0] == "closed\n"


def test_a_call_that_an_interrupt_cuts_off_is_no_failure():
    with subprocess.Popen(
        [sys.executable, "-c", CUT_OFF], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as command:
        command.stdout.readline()
        command.send_signal(signal.SIGINT)
        assert (command.communicate(timeout=10)[1], command.returncode) == ("lotan: interrupted\n", 130)


@pytest.mark.parametrize("script", [STUBBORN, UNREAD], ids=["stubborn", "writing"])
def test_a_reader_that_does_not_read_keeps_nobody(script):
    """As `lotan train 2>&1 | less` with a screen that is full: what there is to say finds no room in the pipe."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while os.write(writing, bytes(65536)):
            pass
    os.set_blocking(writing, True)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=writing, text=True) as command:
        try:
            command.stdout.readline()
            command.send_signal(signal.SIGINT)
            assert command.wait(timeout=10) == 130
        finally:
            command.kill()
            os.close(reading)
            os.close(writing)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", *ON_SPARK])
def test_training_stops_within_two_seconds_and_leaves_nothing(engine, tmp_path):
    words = [sys.executable, "-m", "lotan", "train", "--graph", "digits", "--epochs", "100000", "--engine", engine]
    words += ["--eval-every", "0", "--master", "local[2]", "--hidden", "8"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as command:
        _wait_for_an_epoch(command)
        started = psutil.Process(command.pid).children(recursive=True)
        pressed = time.monotonic()
        os.kill(command.pid, signal.SIGINT)
        said = command.communicate(timeout=20)[1]
        assert command.returncode == 130, said
        assert time.monotonic() - pressed < 2.0 + 1.0  # one second for a loaded machine
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []


def _wait_for_an_epoch(command: subprocess.Popen) -> None:
    """Reads the plain progress lines; pytest's timeout is the deadline."""
    for line in command.stderr:
        if line.startswith("epoch 1/"):
            return
    pytest.fail("training ended before its first epoch was over")


def test_an_interrupt_in_a_callback_of_the_collector_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Py4J has such callbacks, and the signal may come while one runs."""

    class Freed:
        def __init__(self, error: type[BaseException]) -> None:
            self.error = error

        def __del__(self) -> None:
            raise self.error

    seen: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda given: seen.append(given.exc_type))
    with exit_soon_after_interrupt(130):
        for error in (KeyboardInterrupt, ValueError):
            Freed(error)
    Freed(KeyboardInterrupt)
    assert seen == [ValueError, KeyboardInterrupt]
