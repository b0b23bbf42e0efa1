"""A training process killed with SIGKILL at any point, and resumed, equals the straight run bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import lotan
from tests.test_trainer import assert_same_checkpoint

ROOT = Path(__file__).resolve().parents[1]
EPOCHS = 12

TRAIN = """
import sys
from tests.test_killed import die, train
die(sys.argv[2], int(sys.argv[3]))
train(sys.argv[1], resume=True)
"""


def train(directory: str | Path, resume: bool = False) -> None:
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
    lotan.Trainer(
        model,
        graph,
        optimizer=lotan.AdamW(lr=0.01),
        epochs=EPOCHS,
        patience=EPOCHS,
        engine="local",
        checkpoint_dir=directory,
        resume=resume,
        progress=False,
    ).fit()


def die(name: str, call: int) -> None:
    """Let this process kill itself at the given call of a function on the way of a checkpoint to the disk."""
    place, attribute = {
        "start": (torch.optim.AdamW, "step"),
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


@pytest.mark.slow
@pytest.mark.chaos
def test_resumed_run_equals_the_straight_one(tmp_path: Path) -> None:
    generator = np.random.default_rng()
    kills = [(name, int(generator.integers(1, 4))) for name in ("write", "start", "fsync", "rename", "link")]
    print("killed at", kills)  # shown where the test fails
    for name, call in kills:
        done = subprocess.run(
            [sys.executable, "-c", TRAIN, str(tmp_path / "killed"), name, str(call)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        # a run that ended before its call came is no kill, but resuming goes on from it all the same
        assert done.returncode in (-signal.SIGKILL, 0), done.stderr
    train(tmp_path / "killed", resume=True)
    train(tmp_path / "straight")
    assert_same_checkpoint(tmp_path / "killed" / "last.pt", tmp_path / "straight" / "last.pt")
    assert_same_checkpoint(tmp_path / "killed" / "best.pt", tmp_path / "straight" / "best.pt")
