"""A training process killed with SIGKILL at any point, and resumed, equals the straight run bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import psutil
import pytest
import torch
from pyspark.sql import SparkSession

import lotan
from lotan.engines import action
from lotan.stages import StageProgram
from tests.engines.faults import Fault, inject
from tests.test_trainer import assert_same_checkpoint

ROOT = Path(__file__).resolve().parents[1]
EPOCHS = 12
EPOCHS_ON_ROWS = 2
MARK = "LOTAN_TEST_MARK"

TRAIN = """
import sys
from tests.test_killed import train_and_die
train_and_die(sys.argv[1], sys.argv[2:])
"""

DISTURBED = """
import sys
from tests.test_killed import train_disturbed
train_disturbed(sys.argv[1])
"""


def train(directory: str | Path, engine: str = "local", **options: Any) -> None:
    """A run with dropout, weight decay and early stopping's state, all of which a checkpoint must hold."""
    generator = np.random.default_rng(0)
    graph = lotan.Graph.from_arrays(
        generator.normal(size=(50, 8)),
        generator.integers(0, 50, size=200),
        generator.integers(0, 50, size=200),
        label=generator.integers(0, 3, size=50),
        split=generator.integers(0, 3, size=50),
    )
    torch.manual_seed(0)
    model = lotan.nn.GCN(in_channels=8, hidden_channels=16, num_layers=2, out_channels=3, dropout=0.5)
    settings = {"epochs": EPOCHS, "patience": EPOCHS, "checkpoint_dir": directory, "progress": False, **options}
    lotan.Trainer(model, graph, optimizer=lotan.AdamW(lr=0.01), engine=engine, **settings).fit()


def train_on_rows(directory: str | Path, **options: Any) -> None:
    """The same on Spark, in fewer epochs."""
    settings = {"epochs": EPOCHS_ON_ROWS, "partitions": 3, "chunk_rows": 8, "workers": 2, **options}
    train(directory, "rows", **settings)


def die(name: str, call: int) -> None:
    """Let this process kill itself at the given call of a function on the way through an epoch and to the disk."""
    place, attribute = {
        "forward": (StageProgram, "forward"),
        "backward": (StageProgram, "backward"),
        "step": (torch.optim.AdamW, "step"),
        "write": (torch, "save"),
        "fsync": (os, "fsync"),
        "rename": (os, "replace"),
        "link": (os, "link"),
    }[name]
    original, calls = getattr(place, attribute), 0

    def deadly(*arguments: object, **keywords: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call:
            if name == "write":  # half a file
                arguments[1].write(b"PK\x03\x04 half a checkpoint")  # type: ignore[attr-defined]
                arguments[1].flush()  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **keywords)

    setattr(place, attribute, deadly)


def train_and_die(directory: str, kills: list[str]) -> None:
    """Go on with the run in one process after the other, each killed at its place; prints how they ended."""
    for kill in kills:
        name, call = kill.split()
        if (child := os.fork()) == 0:  # all that takes long to import is there already
            try:
                die(name, int(call))
                train(directory, resume=True)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


@pytest.mark.slow
@pytest.mark.chaos
def test_resumed_run_equals_the_straight_one(tmp_path: Path) -> None:
    generator = np.random.default_rng()
    places = ("write", "forward", "step", "fsync", "backward", "rename", "link")
    kills = [(name, int(generator.integers(1, 4))) for name in places]
    print("killed at", kills)  # shown where the test fails
    done = run(TRAIN, str(tmp_path / "killed"), *(f"{name} {call}" for name, call in kills))
    # a run that ended before its call came is no kill, but resuming goes on from it all the same
    ends = {str(-signal.SIGKILL), "0"}
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= ends, done.stderr
    assert str(-signal.SIGKILL) in done.stdout
    train(tmp_path / "killed", resume=True)
    train(tmp_path / "straight")
    assert_same_checkpoint(tmp_path / "killed" / "last.pt", tmp_path / "straight" / "last.pt")
    assert_same_checkpoint(tmp_path / "killed" / "best.pt", tmp_path / "straight" / "best.pt")


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A script in a Python of its own."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


# -- on Spark --------------------------------------------------------------------------------------------------------


def train_disturbed(folder: str) -> None:
    """Two runs on a Spark that tries tasks again: in the first, tasks fail once; in the second, this process is killed."""
    marks, patch = Path(folder), pytest.MonkeyPatch()
    # nothing but Spark's own retries may help
    once = lambda context, run, what, _, stall: action.force(context, run, what, 1, stall)  # noqa: E731
    patch.setattr("lotan.engines.rows.engine.force", once)
    patch.setattr("lotan.trainer.PASS_ATTEMPTS", 1)
    failures = [Fault("raise", *place, marks) for place in (("train.0", "forward"), ("train.1", "backward"))]
    with patch.context() as during:
        inject(during, failures)
        train_on_rows(marks / "failed", master="local[2,4]")
    assert all(fault.happened for fault in failures)
    # of the second epoch's training: each epoch has one pass to train and one to evaluate
    inject(patch, [Fault("kill", "train.1", "backward", marks, (os.getpid(),), a_pass=3)])
    train_on_rows(marks / "killed", master="local[2,4]")


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which `train_disturbed` was killed."""
    folder, mark = tmp_path_factory.mktemp("disturbed"), uuid4().hex
    done = run(DISTURBED, str(folder), TMPDIR=str(folder), **{MARK: mark})
    assert done.returncode == -signal.SIGKILL, done.stderr
    _, alive = psutil.wait_procs(marked(mark), timeout=20)
    assert alive == [], "Spark, the Router and the workers end with a driver that was killed"
    return folder


def marked(mark: str) -> list[psutil.Process]:
    """Processes whose environment has the mark, wherever they hang in the tree."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture(scope="module")
def straight(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of an undisturbed run on Spark."""
    folder = tmp_path_factory.mktemp("straight")
    train_on_rows(folder)
    return folder / "last.pt"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.chaos
def test_tasks_that_spark_tries_again_change_no_bit(disturbed: Path, straight: Path) -> None:
    assert_same_checkpoint(disturbed / "failed" / "last.pt", straight)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.chaos
def test_a_driver_killed_inside_backward_resumes_to_the_same_bits(
    disturbed: Path, straight: Path, spark: SparkSession
) -> None:
    last = disturbed / "killed" / "last.pt"
    assert torch.load(last, weights_only=True)["epoch"] == 1
    train_on_rows(last.parent, resume=True, workers=1)
    assert_same_checkpoint(last, straight)
