"""TensorBoard's own reader finds in its files what the run's history has."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lotan.tracking import Start, tensorboard
from tests.tracking.runs import train, trainer


def points(folder: Path, name: str) -> list[tuple[int, float]]:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = event_accumulator.EventAccumulator(str(folder))
    events.Reload()
    return [(point.step, point.value) for point in events.Scalars(name)]


def test_each_figure_is_a_chart(tmp_path: Path) -> None:
    run = train(log_dir=tmp_path)
    assert points(tmp_path, "loss/step") == [(e["epoch"], pytest.approx(e["loss"])) for e in run.history]
    expected = [(e["epoch"], pytest.approx(e["metrics"]["val"]["accuracy"])) for e in run.history]
    assert points(tmp_path, "accuracy/val") == expected


def test_epochs_beyond_the_checkpoint_of_a_killed_run_count_once(tmp_path: Path) -> None:
    """The second file of events says from where on the first one no longer holds."""
    places = {"log_dir": tmp_path / "run", "checkpoint_dir": tmp_path / "checkpoints"}
    first = train(epochs=2, **places)
    beyond = tensorboard.TensorBoard(places["log_dir"])
    beyond.begin(Start({}, history=first.history))
    beyond.epoch(first.history[-1] | {"epoch": 3, "loss": 99.0})
    beyond.close()
    run = trainer(epochs=4, resume=True, **places).fit()
    assert points(tmp_path / "run", "loss/step") == [(e["epoch"], pytest.approx(e["loss"])) for e in run.history]


def test_without_tensorboard_there_is_all_else_and_a_line_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda _: None)
    with caplog.at_level(logging.WARNING):
        train(log_dir=tmp_path)
    assert [record.getMessage() for record in caplog.records] == [
        "no TensorBoard events are written: tensorboard is not installed. pip install 'lotan[tensorboard]'"
    ]
    assert (tmp_path / "report.json").exists()
    assert not list(tmp_path.glob("events*"))
