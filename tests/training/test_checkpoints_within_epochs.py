"""Checkpoints between mini-batches: a run that dies within an epoch goes on after its last checkpoint, to the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyspark.sql import SparkSession

import lotan
from lotan.engines.base import Outcome
from lotan.errors import ConfigurationError
from lotan.hosts.jar import JAR
from lotan.training.checkpoint import BEST, LAST, CheckpointError
from lotan.training.learner import Learner
from tests.exactness.cases import OUT, WIDTH, sample
from tests.training.test_mini_batches import figures
from tests.training.test_mini_batches_on_blocks import in_spark, tables

REGIME = lotan.MiniBatch(2, (2, 2))
EVERY, EPOCHS = 2, 3
LINKS = lotan.LinkPrediction(decoder="dot", negatives=3, loss="bce", fractions=(0.1, 0.1))


class Killed(BaseException):
    """The end of a process, in place of a signal."""


@contextmanager
def dying_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> Iterator[None]:
    """Ends training after so many steps of the optimizer, through all epochs and models."""
    taken, step = 0, Learner.step

    def counted(self: Learner, outcome: Outcome, *further: Any) -> None:
        nonlocal taken
        if taken == steps:
            raise Killed
        taken += 1
        step(self, outcome, *further)

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "step", counted)
        with pytest.raises(Killed):
            yield


def graph(links: bool = False) -> lotan.Graph:
    if not links:
        return sample(seed=5, vertices=40, edges=200).graph
    random = np.random.default_rng(0)
    src, dst = random.integers(0, 40, (2, 60))
    return lotan.Graph.from_arrays(random.normal(size=(40, WIDTH)), src, dst)


def model(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return lotan.nn.GraphSAGE(WIDTH, 8, 2, OUT, dropout=0.5)


def fit(given: lotan.Graph, epochs: int = EPOCHS, **options: Any) -> Any:
    settings = {"regime": REGIME, "optimizer": lotan.Adam(lr=0.01), "progress": False, "epochs": epochs, **options}
    return lotan.Trainer(model(), given, **settings).fit()


def assert_same(resumed: Any, whole: Any) -> None:
    assert figures(resumed) == figures(whole)
    assert resumed.best_epoch == whole.best_epoch
    for name, tensor in whole.model.weights.items():
        assert torch.equal(tensor, resumed.model.weights[name]), name


def written(directory: Path) -> list[tuple[int, int]]:
    """The finished epochs, and the mini-batches of the next one, in the last and the best checkpoint."""
    found = [torch.load(directory / name, weights_only=True) for name in (LAST, BEST) if (directory / name).exists()]
    return [(one["epoch"], one["part"].get("batches", 0)) for one in found]


@pytest.mark.parametrize(
    ("task", "steps"), [(None, 3), (None, 10), (LINKS, 5)], ids=["vertices, epoch 1", "vertices, epoch 2", "links"]
)
def test_a_run_goes_on_within_an_epoch_to_the_same_bits(task: Any, steps: int, tmp_path: Path, monkeypatch) -> None:
    given = graph(links=task is not None)
    whole = fit(given, task=task)
    options = {"task": task, "checkpoint_dir": tmp_path, "checkpoint_batches": EVERY}
    with dying_after(monkeypatch, steps):
        fit(given, **options)
    before = written(tmp_path)
    assert before[0][1] > 0  # else the run was not killed within an epoch
    assert all(part == 0 for _, part in before[1:])
    assert_same(fit(given, **options, resume=True), whole)


def test_a_batch_that_was_done_is_not_done_again(tmp_path: Path, monkeypatch) -> None:
    options = {"checkpoint_dir": tmp_path, "checkpoint_batches": 1}
    with dying_after(monkeypatch, 2):
        fit(graph(), 1, **options)
    assert written(tmp_path) == [(0, 2)]
    batches = fit(graph(), 1).report["mini_batches"]["batches"]
    assert fit(graph(), 1, **options, resume=True).report["mini_batches"]["batches"] == batches - 2


def test_the_best_checkpoint_stays_that_of_its_epoch(tmp_path: Path, monkeypatch) -> None:
    """The process dies in the epoch after the best one, and again right after it has gone on."""
    options = {"checkpoint_dir": tmp_path, "checkpoint_batches": 1}
    for steps in (9, 1):
        with dying_after(monkeypatch, steps):
            fit(graph(), **options, resume=steps == 1)
    last, best = written(tmp_path)
    assert last[1] > 0
    assert best[1] == 0


def test_models_that_died_at_different_batches_come_together_again(tmp_path: Path, monkeypatch) -> None:
    def trained(**options: Any) -> list[Any]:
        members = [lotan.Member(model(seed), lotan.Adam(lr=0.01), seed=seed, epochs=EPOCHS) for seed in range(3)]
        with lotan.ModelBatch(graph(), members, regime=REGIME, progress=False, **options) as batch:
            batch.train()
            return list(batch.runs().values())

    whole, options = trained(), {"checkpoint_dir": tmp_path, "checkpoint_batches": EVERY}
    with dying_after(monkeypatch, 3 * EVERY - 1):  # before the step of the last model, whose checkpoint is then missing
        trained(**options)
    assert len(list(tmp_path.glob(f"*/{LAST}"))) == 2
    for found, expected in zip(trained(**options, resume=True), whole, strict=True):
        assert_same(found, expected)


def test_fewer_epochs_than_were_begun_are_refused(tmp_path: Path, monkeypatch) -> None:
    options = {"checkpoint_dir": tmp_path, "checkpoint_batches": 1}
    with dying_after(monkeypatch, 9):
        fit(graph(), **options)
    ((epoch, _), *_) = written(tmp_path)
    with pytest.raises(CheckpointError, match=rf"within epoch {epoch + 1}, but epochs is {epoch}"):
        fit(graph(), epoch, **options, resume=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"checkpoint_dir": None}, "checkpoint_batches needs checkpoint_dir"),
        ({"regime": lotan.FullBatch()}, "counts mini-batches"),
        ({"tables": 1}, "learned rows in row tables"),
        ({"checkpoint_batches": 0}, "checkpoint_batches is 0"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(options: dict, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=said):
        fit(graph(), **{"checkpoint_dir": tmp_path, "checkpoint_batches": 1, **options})


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")
def test_so_it_is_on_blocks(spark: SparkSession, tmp_path: Path, monkeypatch) -> None:
    given = in_spark(spark, tables())

    def trained(**options: Any) -> Any:
        torch.manual_seed(0)
        settings = {"regime": lotan.MiniBatch(7, (3, 2), seed=4), "engine": "blocks", "epochs": 2, "progress": False}
        return lotan.Trainer(lotan.nn.GraphSAGE(6, 4, 2, 3, dropout=0.5), given, **settings, **options).fit()

    whole, options = trained(), {"checkpoint_dir": tmp_path, "checkpoint_batches": EVERY}
    with dying_after(monkeypatch, 3):
        trained(**options)
    assert written(tmp_path)[0] == (0, 2)
    assert_same(trained(**options, resume=True), whole)
