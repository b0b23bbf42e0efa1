"""A training process killed with SIGKILL at any point, and resumed, equals the straight run bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from contextlib import closing
from dataclasses import dataclass, replace
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
from lotan.hosts.jar import JAR
from lotan.hosts.spark_session import SparkSettings, open_spark
from lotan.memory.limit import MemoryLimit
from lotan.stages.program import StageProgram
from tests.engines.blocks.faults import FailingTasks, Place, at_commit
from tests.engines.faults import Fault, inject
from tests.training.test_trainer import assert_same_checkpoint

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
EPOCHS = 12
EPOCHS_ON_SPARK = 2
MARK = "LOTAN_TEST_MARK"

TRAIN = """
import sys
from tests.training.test_killed import train_and_die
train_and_die(sys.argv[1], sys.argv[2:])
"""

DISTURBED = """
import sys
from tests.training import test_killed
getattr(test_killed, sys.argv[1])(sys.argv[2])
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


def train_on_spark(directory: str | Path, engine: str, **options: Any) -> None:
    """The same on Spark, in fewer epochs, with passes of evaluation: they are counted."""
    passes = {"disable": ["reuse_evaluation"]}
    settings = {"epochs": EPOCHS_ON_SPARK, "partitions": 3, "chunk_rows": 8, "workers": 2, **passes, **options}
    train(directory, engine, **settings)


def die(name: str, call: int) -> None:
    """Let this process kill itself at the given call of a function on the way through an epoch and to the disk."""
    place, attribute = {
        "forward": (StageProgram, "run"),
        "backward": (StageProgram, "run"),
        "step": (torch.optim.AdamW, "step"),
        "write": (torch, "save"),
        "fsync": (os, "fsync"),
        "rename": (os, "replace"),
        "link": (os, "link"),
    }[name]
    original, calls = getattr(place, attribute), 0

    def deadly(*arguments: object, **keywords: object) -> object:
        nonlocal calls
        calls += attribute != "run" or arguments[1].mode == name  # type: ignore[attr-defined]
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
    # a run links a file each time that it is better than before, of which only the first is sure to come
    calls = {name: 1 if name == "link" else int(generator.integers(1, 4)) for name in places}
    kills = [(name, calls[name]) for name in generator.permutation(places)[:4]]
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


PLACES = Place("train.0", "forward"), Place("train.0", "backward")
LAST = 4  # the pass that trains the second epoch: each has one to train and one to evaluate, after one that prepares
RETRYING = "local[2,4]"  # a Spark that tries a task up to four times


def only_spark_tries_again(patch: pytest.MonkeyPatch) -> None:
    once = lambda context, run, what, _, stall: action.force(context, run, what, 1, stall)  # noqa: E731
    for engine in ("rows", "blocks"):
        patch.setattr(f"lotan.engines.{engine}.engine.force", once)
    for module in ("lotan.training.passes", "lotan.engines.base"):
        patch.setattr(f"{module}.PASS_ATTEMPTS", 1)


def train_rows_disturbed(folder: str) -> None:
    """Two runs: in the first, tasks fail once; in the second, this process is killed."""
    marks, patch = Path(folder), pytest.MonkeyPatch()
    only_spark_tries_again(patch)
    failures = [Fault("raise", place.stage, place.mode, marks) for place in PLACES]
    with closing(open_spark(SparkSettings(RETRYING))):
        with patch.context() as during:
            inject(during, failures)
            train_on_spark(marks / "failed", "rows")
        assert all(fault.happened for fault in failures)
        inject(patch, [Fault("kill", "train.0", "backward", marks, (os.getpid(),), a_pass=LAST)])
        train_on_spark(marks / "killed", "rows")


def train_blocks_disturbed(folder: str) -> None:
    """As `train_rows_disturbed`, on blocks."""
    marks, patch = Path(folder), pytest.MonkeyPatch()
    only_spark_tries_again(patch)
    with closing(open_spark(SparkSettings(RETRYING))) as opened:
        failing = FailingTasks(opened.session, PLACES, marks)
        with patch.context() as during:
            during.setattr("lotan.engines.blocks.engine.facade", lambda _: failing)
            train_on_spark(marks / "failed", "blocks")
        assert failing.happened
        at_commit(patch, PLACES[1], lambda: os.kill(os.getpid(), signal.SIGKILL), number=LAST)
        train_on_spark(marks / "killed", "blocks")


def train_in_turn(folder: str, resume: bool = False) -> None:
    """A run on blocks within a limit, whose sums read one partition after the other from files."""
    needs, settings = MemoryLimit.needs, {"memory_limit": "3g", "resume": resume}
    with pytest.MonkeyPatch.context() as patch:  # so small a graph would fit as a whole
        patch.setattr(MemoryLimit, "needs", lambda *given: replace(needs(*given), in_turn=True))
        train_on_spark(folder, "blocks", **settings)


def train_in_turn_and_die(folder: str) -> None:
    """The same, killed in the backward pass of the second epoch."""
    with pytest.MonkeyPatch.context() as patch:
        at_commit(patch, PLACES[1], lambda: os.kill(os.getpid(), signal.SIGKILL), number=LAST)
        train_in_turn(folder)


def resume_in_turn(folder: str) -> None:
    train_in_turn(folder, resume=True)


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")
def test_a_driver_killed_within_a_limit_on_blocks_leaves_no_file_after_the_next_run(tmp_path: Path) -> None:
    killed, straight, temporary = (tmp_path / name for name in ("killed", "straight", "temporary"))
    temporary.mkdir()
    done = run(DISTURBED, "train_in_turn_and_die", str(killed), TMPDIR=str(temporary))
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert any(temporary.rglob("temp_local_*")), "columns that sums read in turn lie in files"
    for name, folder in (("resume_in_turn", killed), ("train_in_turn", straight)):
        done = run(DISTURBED, name, str(folder), TMPDIR=str(temporary))
        assert done.returncode == 0, done.stderr
    assert [left.name for left in temporary.iterdir()] == []
    assert_same_checkpoint(killed / "last.pt", straight / "last.pt")


@dataclass(frozen=True)
class Disturbed:
    """Where the checkpoints are of runs on an engine that tasks failed in, and that was killed; and of an undisturbed one."""

    engine: str
    folder: Path
    straight: Path


@pytest.fixture(scope="module", params=[pytest.param("rows", marks=pytest.mark.nightly), "blocks"])
def disturbed(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Disturbed:
    """What `train_..._disturbed` left when it was killed."""
    engine = request.param
    if engine == "blocks" and not JAR.is_file():
        pytest.skip("the jar has not been built: make jar")
    folder, straight = tmp_path_factory.mktemp("disturbed"), tmp_path_factory.mktemp("straight")
    mark = uuid4().hex
    done = run(DISTURBED, f"train_{engine}_disturbed", str(folder), TMPDIR=str(folder), **{MARK: mark})
    assert done.returncode == -signal.SIGKILL, done.stderr
    _, alive = psutil.wait_procs(marked(mark), timeout=20)
    assert alive == [], "Spark, the Router and the workers end with a driver that was killed"
    train_on_spark(straight, engine)
    return Disturbed(engine, folder, straight / "last.pt")


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


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.chaos
def test_tasks_that_spark_tries_again_change_no_bit(disturbed: Disturbed) -> None:
    assert_same_checkpoint(disturbed.folder / "failed" / "last.pt", disturbed.straight)


@pytest.mark.nightly  # by day on local
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.chaos
def test_a_driver_killed_inside_backward_resumes_to_the_same_bits(disturbed: Disturbed) -> None:
    last = disturbed.folder / "killed" / "last.pt"
    assert torch.load(last, weights_only=True)["epoch"] == 1
    train_on_spark(last.parent, disturbed.engine, resume=True, workers=1)
    assert_same_checkpoint(last, disturbed.straight)
