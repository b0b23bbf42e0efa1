"""A driver killed with SIGKILL amid mini-batches on blocks leaves nothing behind, and its run goes on to the same bits."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import psutil
import pytest
import torch
from pyspark.sql import SparkSession

import lotan
from lotan.hosts.jar import JAR
from lotan.stages.tensor_names import BATCH
from tests.engines.blocks.faults import Place, at_commit
from tests.leaks import SHARED_MEMORY
from tests.training.test_killed import MARK, marked, run
from tests.training.test_trainer import assert_same_checkpoint

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.chaos,
    pytest.mark.processes,
    pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar"),
]

VERTICES, WIDTH, CLASSES = 50, 8, 3
TRAINING, SIZE = 30, 4
BATCHES = -(-TRAINING // SIZE)  # of an epoch
EVERY, EPOCHS = 2, 2

DYING = """
import sys
from tests.training.test_killed_between_batches import train_and_die
train_and_die(*sys.argv[1:])
"""


class Embedded(torch.nn.Module):
    """Learned rows beside features, and dropout: a checkpoint must have what lazy Adam knows of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = lotan.nn.LearnedFeatures(4)
        self.encoder = lotan.nn.GraphSAGE(WIDTH + 4, 8, 2, CLASSES, dropout=0.5)

    def forward(self, x: torch.Tensor, graph: lotan.nn.EdgeIndex) -> torch.Tensor:
        return self.encoder(torch.cat([x, self.rows(graph)], dim=1), graph)


def train(directory: str | Path, order: str, **options: Any) -> None:
    """Train for some epochs with a checkpoint after every second mini-batch."""
    random = np.random.default_rng(0)
    graph = lotan.Graph.from_arrays(
        random.normal(size=(VERTICES, WIDTH)),
        *random.integers(0, VERTICES, (2, 250)),
        label=random.integers(0, CLASSES, VERTICES),
        split=np.repeat([0, 1, 2], [TRAINING, 10, VERTICES - TRAINING - 10]),
    )
    regime = lotan.MiniBatch(SIZE, (3, 2), order=order, seed=4)
    settings = {"epochs": EPOCHS, "workers": 2, "partitions": 3, "checkpoint_batches": EVERY, "progress": False}
    torch.manual_seed(0)
    given = {"regime": regime, "engine": "blocks", "checkpoint_dir": directory, **settings, **options}
    lotan.Trainer(Embedded(), graph, optimizer=lotan.Adam(lr=0.01), **given).fit()


def train_and_die(directory: str, order: str, place: str, number: str, resume: str = "") -> None:
    """Train, or go on, until this process kills itself at a place that it comes to for the time of that number."""
    patch, kill = pytest.MonkeyPatch(), lambda: os.kill(os.getpid(), signal.SIGKILL)
    if place == "commit":  # of the batch of that number through all epochs, while workers have those that follow
        at_commit(patch, Place(BATCH, BATCH), kill, number=BATCHES + int(number))
    else:
        halve_the_file(patch, kill, int(number))
    train(directory, order, resume=bool(resume))


def halve_the_file(patch: pytest.MonkeyPatch, kill: Callable[[], None], number: int) -> None:
    """Let this process die within the writing of a checkpoint, by its number among those of the process."""
    save, written = torch.save, 0

    def half(content: Any, stream: Any) -> None:
        nonlocal written
        written += 1
        if written == number:
            stream.write(b"PK\x03\x04 half a checkpoint")
            stream.flush()
            kill()
        save(content, stream)

    patch.setattr(torch, "save", half)


@contextmanager
def nothing_left(folder: Path) -> Iterator[dict[str, str]]:
    """Check that processes with an environment leave neither processes nor shared memory, and yield the environment.

    Files that they have in their temporary folder may stay until the next run there.
    """
    mark, before = uuid4().hex, set(SHARED_MEMORY.glob("lotan-*"))
    yield {MARK: mark, "TMPDIR": str(folder)}
    _, alive = psutil.wait_procs(marked(mark), timeout=20)
    assert alive == [], "Spark, the Router and the workers end with a driver that was killed"
    left = [path for path in set(SHARED_MEMORY.glob("lotan-*")) - before if not psutil.pid_exists(owner(path))]
    assert left == [], "memory that is shared is freed with the last process that has it"


def owner(path: Path) -> int:
    """Return the process that has made a file in shared memory."""
    return int(path.name.split("-")[1])


def done(directory: Path) -> tuple[int, int]:
    """Return the finished epochs, and the mini-batches of the next, that the last checkpoint has."""
    found = torch.load(directory / "last.pt", weights_only=True)
    return found["epoch"], found["part"].get("batches", 0)


@pytest.mark.parametrize("order", ["shuffled", "fixed until the elbow"])
def test_a_run_that_was_killed_twice_ends_with_the_same_bits(spark: SparkSession, order: str, tmp_path: Path) -> None:
    """First while workers compute batches of the first epoch, then within the writing of a checkpoint in the second."""
    folder, temporary = tmp_path / "killed", tmp_path / "temporary"
    temporary.mkdir()
    first, within = 5, 6  # the batch, and the checkpoint among those of the second process
    ends = [
        (0, 4),
        (1, 4),
    ]  # it writes two more of the first epoch, one at its end, and is killed in the third of the next
    for (place, number), expected in zip([("commit", first), ("write", within)], ends, strict=True):
        with nothing_left(temporary) as environment:
            resume = ["resume"] * (place == "write")
            died = run(DYING, str(folder), order, place, str(number), *resume, **environment)
        assert died.returncode == -signal.SIGKILL, died.stderr
        assert done(folder) == expected
    train(folder, order, resume=True)
    train(tmp_path / "straight", order)
    for name in ("last.pt", "best.pt"):
        assert_same_checkpoint(folder / name, tmp_path / "straight" / name)
    assert not list(folder.glob("*.unfinished"))
