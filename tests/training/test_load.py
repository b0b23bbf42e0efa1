"""A machine that others keep busy teaches nothing about costs; this run's own processes are no others."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

import lotan
from lotan.planning import cost_cache
from lotan.training import trainer
from lotan.training.load import MOST_LOAD, LoadWatch, Reading, load_between, read_machine

CORES = os.cpu_count() or 1


@pytest.mark.parametrize(
    ("others", "quiet"), [(0.0, True), (0.9 * MOST_LOAD, True), (1.1 * MOST_LOAD, False), (1.0, False)]
)
def test_a_machine_is_quiet_while_others_take_little_of_it(others, quiet):
    seconds = 10.0
    own, busy = 3.0, 3.0 + others * seconds * CORES
    readings = iter([Reading(5.0, 100.0, 50.0), Reading(5.0 + seconds, 100.0 + busy, 50.0 + own)])
    assert LoadWatch(lambda: next(readings)).quiet is quiet


def test_no_time_is_no_load():
    assert load_between(Reading(1.0, 1.0, 1.0), Reading(1.0, 2.0, 1.0), 2) == 0.0


SPIN = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
DETACHED = f"""
import subprocess, sys
nowhere = subprocess.DEVNULL  # a pipe of this process that it held open would keep the caller waiting for its end
print(subprocess.Popen([sys.executable, "-c", {SPIN!r}], stdout=nowhere, stderr=nowhere, start_new_session=True).pid)
"""


def test_own_children_are_no_load_and_other_processes_are():
    """The same loop, once as a child and once as a process that has lost its parent."""
    before = read_machine()
    with subprocess.Popen([sys.executable, "-c", SPIN]) as child:
        time.sleep(1.0)
        after = read_machine()
        child.kill()
    assert after.own > before.own  # the loop is this run's own
    stray = int(subprocess.run([sys.executable, "-c", DETACHED], capture_output=True, text=True, check=True).stdout)
    try:
        before = read_machine()
        time.sleep(1.0)
        after = read_machine()
    finally:
        os.kill(stray, 9)
    assert load_between(before, after, 1) > 0.05  # of one processor, however much the machine has to do besides


@pytest.mark.parametrize("quiet", [True, False])
def test_only_a_run_on_a_quiet_machine_is_remembered(quiet, tmp_path, monkeypatch):
    monkeypatch.setenv("LOTAN_COSTS", str(tmp_path))
    busy = 0.0 if quiet else 1e6
    readings = iter([Reading(0.0, 0.0, 0.0), Reading(1.0, busy, 0.0)])
    monkeypatch.setattr(trainer, "LoadWatch", lambda: LoadWatch(lambda: next(readings)))
    graph = lotan.datasets.generate(300, 900, width=8, classes=3)
    lotan.Trainer(lotan.nn.GCN(8, 4, 2, 3), graph, engine="local", epochs=4, progress=False).fit()
    assert bool(cost_cache.load().runs) is quiet
