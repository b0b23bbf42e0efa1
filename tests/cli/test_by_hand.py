"""A Router, workers and a training started by hand, with keys, as on several hosts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

import lotan
from lotan.cli import main

SECONDS = 240  # for a training; far more than it takes


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, killed if the test fails before it has ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lotan", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def save_graph(directory: str) -> None:
    generator = np.random.default_rng(0)
    lotan.Graph.from_arrays(
        generator.normal(size=(40, 6)).astype(np.float32),
        *generator.integers(0, 40, size=(2, 150)),
        label=generator.integers(0, 3, size=40),
        split=generator.integers(0, 3, size=40),
    ).save(directory)


def train_words(graph: str, report: str, *more: str) -> list[str]:
    words = ["train", "--graph", graph, "--model", "gcn", "--hidden", "8", "--epochs", "1", "--quiet"]
    return [*words, "--report", report, *more]


def losses(report: str) -> list[float]:
    """Of the epoch, and of every split after its step."""
    with open(report) as file:
        content = json.load(file)
    return [epoch["loss"] for epoch in content["epochs"]] + [split["loss"] for split in content["metrics"].values()]


def stop(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Ctrl-C, after which each ends well and has nothing to complain about."""
    for process in processes:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=10)
        assert (process.returncode, errors) == (0, "")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly  # by day: tests/engines/test_submit.py
def test_router_workers_and_training_meet_over_keys(tmp_path):
    graph, keys, ours, theirs = (str(tmp_path / name) for name in ("graph", "keys", "rows.json", "local.json"))
    save_graph(graph)
    with ExitStack() as stack:
        router = stack.enter_context(started("router", "--bind", "tcp://127.0.0.1:*", "--keys", keys))
        assert router.stdout.readline().startswith("made keys")
        meet = ("--router", router.stdout.readline().strip(), "--keys", keys)
        workers = [stack.enter_context(started("worker", *meet, "--name", name)) for name in ("one", "two")]
        rows = ("--engine", "rows", "--master", "local[2]", "--partitions", "2", *meet)
        training = stack.enter_context(started(*train_words(graph, ours, *rows)))
        shown, errors = training.communicate(timeout=SECONDS)
        assert training.returncode == 0, errors
        assert shown == ""
        stop([*workers, router])
    assert main(train_words(graph, theirs, "--engine", "local")) == 0
    assert losses(ours) == pytest.approx(losses(theirs), rel=1e-4)
