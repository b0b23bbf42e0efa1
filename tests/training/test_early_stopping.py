from __future__ import annotations

import math

import pytest

from lotan.errors import ConfigurationError
from lotan.training.early_stopping import EarlyStopping, make_stopping
from planner.loss import Task


def _follow(stopping: EarlyStopping, values: list[float]) -> list[bool]:
    return [
        stopping.update(epoch, {"val": {"accuracy": value, "loss": value}}) for epoch, value in enumerate(values, 1)
    ]


def test_the_first_of_equal_epochs_is_best() -> None:
    stopping = EarlyStopping("accuracy")
    assert _follow(stopping, [0.5, 0.7, 0.7, 0.6]) == [True, True, False, False]
    assert (stopping.best, stopping.best_epoch, stopping.exhausted) == (0.7, 2, False)


def test_loss_is_to_fall() -> None:
    stopping = EarlyStopping("loss")
    assert _follow(stopping, [0.5, 0.7, 0.4]) == [True, False, True]


@pytest.mark.parametrize("monitor", ["loss", "accuracy"])
def test_any_number_is_better_than_none(monitor: str) -> None:
    stopping = EarlyStopping(monitor, patience=2)
    assert _follow(stopping, [math.nan, 0.5, math.nan, math.nan]) == [True, True, False, False]
    assert stopping.exhausted


def test_patience_counts_evaluations_since_the_best() -> None:
    stopping = EarlyStopping("accuracy", patience=2)
    _follow(stopping, [0.5, 0.4, 0.6, 0.5])
    assert not stopping.exhausted
    stopping = EarlyStopping(**stopping.state())
    stopping.update(5, {"val": {"accuracy": 0.6}})
    assert stopping.exhausted


def test_without_validation_vertices_the_last_epoch_is_best() -> None:
    stopping = EarlyStopping("accuracy")
    assert [stopping.update(epoch, {"train": {"accuracy": 1.0 / epoch}}) for epoch in (1, 2)] == [True, True]
    assert stopping.best_epoch == 2


def test_what_cannot_be_followed_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no labelled vertex is in split 'val'"):
        make_stopping(None, 3, "classification", validation_vertices=0)
    with pytest.raises(ConfigurationError, match="no link is in split 'val'"):
        make_stopping(None, 3, "link", validation_vertices=0)
    with pytest.raises(ConfigurationError, match=r"'f1'.*accuracy, macro_f1, roc_auc.*loss, f1_0"):
        make_stopping("f1", None, "classification", validation_vertices=1)


@pytest.mark.parametrize(("task", "monitor"), [("classification", "accuracy"), ("regression", "mse")])
def test_the_main_metric_is_followed_by_default(task: Task, monitor: str) -> None:
    assert make_stopping(None, None, task, validation_vertices=0) == EarlyStopping(monitor)
