"""Schedulers of the learning rate by name: the rates are torch's, and what makes no scheduler is refused."""

from __future__ import annotations

import functools
import io
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from lotan.errors import ConfigurationError
from lotan.settings.config import TrainerConfig
from lotan.settings.named_calls import words_of
from lotan.settings.optimizers import SGD, Adagrad, Adam
from lotan.settings.schedulers import NAMES, Schedule, check_scheduler

ARGUMENTS: dict[str, dict[str, Any]] = {
    "CosineAnnealingLR": {"T_max": 7},
    "CosineAnnealingWarmRestarts": {"T_0": 3, "T_mult": 2},
    "CyclicLR": {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 3},
    "ExponentialLR": {"gamma": 0.9},
    "MultiStepLR": {"milestones": [2, 5], "gamma": 0.5},
    "OneCycleLR": {"max_lr": 0.3, "total_steps": 12},
    "ReduceLROnPlateau": {"patience": 1, "factor": 0.5},
    "StepLR": {"step_size": 3},
}
METRIC = [0.5, 0.4, 0.45, 0.6, 0.61, 0.62, 0.3, 0.31, 0.32, 0.33, 0.34, 0.35]


def _rates(schedule: Any, optimizer: torch.optim.Optimizer, first: int, last: int) -> list[float]:
    found = []
    for value in METRIC[first:last]:
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if isinstance(schedule, Schedule):
            schedule.after_step()
            schedule.after_evaluation({"val": {"loss": value}})
        else:
            schedule.step(*[value] * isinstance(schedule, lr_scheduler.ReduceLROnPlateau))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_rates_are_those_of_torch_and_go_on_from_a_state(name: str) -> None:
    keywords = ARGUMENTS.get(name, {})
    text = f"{name}({', '.join(f'{key}={value!r}' for key, value in keywords.items())})"
    peer = SGD(lr=0.1, momentum=0.9).trial()
    expected = _rates(getattr(lr_scheduler, name)(peer, **keywords), peer, 0, 12)
    optimizer = SGD(lr=0.1, momentum=0.9).trial()
    schedule = Schedule(text, optimizer, "loss", falls=True)
    found = _rates(schedule, optimizer, 0, 5)
    content = io.BytesIO()  # as a checkpoint keeps it
    torch.save([optimizer.state_dict(), schedule.state()], content)
    content.seek(0)
    states = torch.load(content, weights_only=True)
    resumed = SGD(lr=0.1, momentum=0.9).trial()
    again = Schedule(text, resumed, "loss", falls=True)
    resumed.load_state_dict(states[0])
    again.load(states[1])
    found += _rates(again, resumed, 5, 12)
    assert found == expected
    assert len(set(expected)) > 1


def test_a_plateau_follows_the_direction_of_the_metric() -> None:
    for falls, expected in ((True, "min"), (False, "max")):
        schedule = Schedule("ReduceLROnPlateau", Adam().trial(), "loss", falls)
        assert schedule.state()["mode"] == expected


def test_a_function_makes_any_scheduler() -> None:
    def warm_up(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
        parts = [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3), lr_scheduler.ExponentialLR(optimizer, 0.9)]
        return lr_scheduler.SequentialLR(optimizer, parts, milestones=[3])

    ours, theirs = SGD(lr=0.1).trial(), SGD(lr=0.1).trial()
    assert _rates(Schedule(warm_up, ours, "loss", True), ours, 0, 12) == _rates(warm_up(theirs), theirs, 0, 12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("StepsLR(step_size=3)", "did you mean StepLR"),
        ("LambdaLR(lr_lambda=3)", r"takes functions .*=lambda optimizer: torch.optim.lr_scheduler.LambdaLR"),
        ("StepLR(30)", "an argument without a name"),
        ("StepLR(step_size=x)", "step_size is no plain value"),
        ("StepLR(", "no name with arguments"),
        ("os.system('x')", "no name with arguments"),
        ("StepLR", "missing 1 required positional argument: 'step_size'"),
        ("StepLR(size=3)", "unexpected keyword argument 'size'"),
        ("OneCycleLR(max_lr=1.0, total_steps=-1)", "total_steps"),
        (lr_scheduler.StepLR, "lambda optimizer: torch.optim.lr_scheduler.StepLR"),
        (7, "expected a text such as"),
    ],
)
def test_what_makes_no_scheduler_is_refused_at_once(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        TrainerConfig(lr_scheduler=given)


def test_a_scheduler_that_does_not_fit_the_optimizer_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="momentum"):
        check_scheduler("OneCycleLR(max_lr=1.0, total_steps=3)", Adagrad())
    check_scheduler("OneCycleLR(max_lr=1.0, total_steps=3)", Adam())


def test_a_plateau_without_evaluations_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="eval_every"):
        TrainerConfig(lr_scheduler="ReduceLROnPlateau", eval_every=0)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda optimizer: 3, "made 3; expected a scheduler"),
        (lambda optimizer: lr_scheduler.StepLR(SGD().trial(), 3), "of another optimizer"),
        (lambda optimizer: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_functions_that_make_no_scheduler_are_named(function: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Schedule(function, SGD().trial(), "loss", True)


def test_words_do_not_change_between_runs() -> None:
    given = functools.partial(lr_scheduler.StepLR, step_size=3)
    assert words_of(given) == "torch.optim.lr_scheduler:StepLR(step_size=3)"


@pytest.mark.parametrize("norm", [-1.0, float("nan"), "1", True])
def test_an_unusable_norm_is_refused(norm: Any) -> None:
    with pytest.raises(ConfigurationError, match="clip_grad_norm"):
        TrainerConfig(clip_grad_norm=norm)
