"""Learning-rate schedulers of torch's, by name with arguments, or made by a user's function.

    lr_scheduler="CosineAnnealingLR(T_max=200)"
    lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.95**epoch)

A scheduler takes one step after each epoch. `ReduceLROnPlateau` takes one after each evaluation, by the monitored metric.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from lotan.arguments import described, nearest
from lotan.errors import ConfigurationError
from lotan.settings.named_calls import NamedCall, read_call, words_of
from lotan.settings.optimizers import Optimizer

SchedulerSetting = str | Callable[[torch.optim.Optimizer], LRScheduler]
"""A name with arguments, or a function that makes a scheduler of torch's optimizer."""

NAMES = (
    *("ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR", "LinearLR"),
    *("MultiStepLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "StepLR"),
)
"""The schedulers that plain arguments make. The others need functions or schedulers as arguments."""
EXAMPLE = "StepLR(step_size=30)"
_PLATEAU = "ReduceLROnPlateau"


def check_scheduler(given: Any, optimizer: Optimizer) -> None:
    """Refuse a setting that makes no scheduler. A function is not called.

    Raises:
        ConfigurationError: If the setting is neither a text nor a function, or if torch refuses the text's arguments.
    """
    if isinstance(given, str):
        make_scheduler(given, optimizer.trial(), falls=True)
    elif not callable(given) or (isinstance(given, type) and issubclass(given, LRScheduler)):
        name = given.__name__ if isinstance(given, type) else "StepLR"
        raise ConfigurationError(
            f"lr_scheduler is {described(given)}; expected a text such as {EXAMPLE!r}, or a function such as "
            f"lambda optimizer: torch.optim.lr_scheduler.{name}(optimizer, ...)"
        )


def needs_metric(given: SchedulerSetting | None) -> bool:
    """Return True if a setting names the scheduler that follows a metric."""
    return isinstance(given, str) and read_call("lr_scheduler", given, EXAMPLE).name == _PLATEAU


def make_scheduler(given: SchedulerSetting, optimizer: torch.optim.Optimizer, falls: bool) -> LRScheduler:
    """Return the scheduler of an optimizer.

    Args:
        given: The setting.
        optimizer: torch's optimizer, whose learning rate the scheduler sets to that of the first epoch.
        falls: True if the monitored metric should fall. `ReduceLROnPlateau` takes its `mode` from it, if none is given.

    Raises:
        ConfigurationError: If the name is unknown, torch refuses the arguments, or the function makes no scheduler.
    """
    made: Any
    try:
        if isinstance(given, str):
            call = read_call("lr_scheduler", given, EXAMPLE)
            keywords = _keywords(call, falls)
            made = getattr(lr_scheduler, call.name)(optimizer, **keywords)
        else:
            made = given(optimizer)
    except ConfigurationError:
        raise
    except Exception as error:  # torch's classes raise several kinds, and a user's function may raise any
        raise ConfigurationError(f"lr_scheduler {words_of(given)}: {type(error).__name__}: {error}") from error
    if not isinstance(made, LRScheduler):
        raise ConfigurationError(
            f"lr_scheduler {words_of(given)} made {described(made)}; expected a scheduler of torch.optim.lr_scheduler"
        )
    if made.optimizer is not optimizer:
        raise ConfigurationError(
            f"lr_scheduler {words_of(given)} made a scheduler of another optimizer; make it of the one that it is given"
        )
    return made


def _keywords(call: NamedCall, falls: bool) -> dict[str, Any]:
    if call.name not in NAMES:
        near = nearest(call.name, NAMES)
        meant = f"did you mean {near}? " if near else ""
        with_function = f"lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.{call.name}(optimizer, ...)"
        if isinstance(getattr(lr_scheduler, call.name, None), type):
            meant = f"it takes functions or schedulers, so give a function: {with_function}. "
        raise ConfigurationError(f"unknown lr_scheduler {call.name!r}; {meant}There are {', '.join(NAMES)}")
    mode = {"mode": "min" if falls else "max"} if call.name == _PLATEAU else {}
    # torch's MultiStepLR sorts its milestones, and others take lists of one number a group
    return {**mode, **{name: list(value) if isinstance(value, tuple) else value for name, value in call.arguments}}


class Schedule:
    """The learning rates of a run, epoch by epoch.

    Args:
        given: The setting; None: the learning rate stays.
        optimizer: torch's optimizer.
        monitor: The metric of the validation vertices that `ReduceLROnPlateau` follows.
        falls: True if that metric should fall.

    Raises:
        ConfigurationError: If the setting makes no scheduler.
    """

    def __init__(
        self, given: SchedulerSetting | None, optimizer: torch.optim.Optimizer, monitor: str, falls: bool
    ) -> None:
        self._given, self._monitor = given, monitor
        self._scheduler = None if given is None else make_scheduler(given, optimizer, falls)
        self._optimizer = optimizer

    @property
    def follows_metric(self) -> bool:
        """True if the learning rate depends on the monitored metric."""
        return isinstance(self._scheduler, ReduceLROnPlateau)

    @property
    def figures(self) -> dict[str, float]:
        """The learning rate of the first group of parameters, as a history entry has it; empty without a scheduler."""
        return {} if self._scheduler is None else {"lr": float(self._optimizer.param_groups[0]["lr"])}

    def after_step(self) -> None:
        """Go on to the learning rate of the next epoch.

        Raises:
            ConfigurationError: If the scheduler has no further steps, as `OneCycleLR` after its last one.
        """
        if self._scheduler is not None and not self.follows_metric:
            self._step()

    def after_evaluation(self, metrics: dict[str, dict[str, float]]) -> None:
        """Take in the metrics by split and name."""
        if self._scheduler is not None and self.follows_metric:
            self._step(metrics["val"][self._monitor])

    def _step(self, *metric: float) -> None:
        step: Callable[..., None] = getattr(self._scheduler, "step")  # noqa: B009 -- of a plateau, it takes the metric
        try:
            with warnings.catch_warnings():  # torch's own SequentialLR calls what torch deprecates
                warnings.filterwarnings("ignore", message="The epoch parameter in `scheduler.step")
                step(*metric)
        except ValueError as error:
            raise ConfigurationError(
                f"lr_scheduler {words_of(self._given)}: {error}. Give it as many steps as there are epochs"
            ) from error

    def state(self) -> dict[str, Any]:
        """Return the scheduler's `state_dict`; empty without a scheduler."""
        return {} if self._scheduler is None else self._scheduler.state_dict()

    def load(self, state: dict[str, Any]) -> None:
        """Go on from the state of a checkpoint."""
        if self._scheduler is not None:
            self._scheduler.load_state_dict(state)
