"""The settings that a run may change when it goes on from a checkpoint: patience, and numbers of the optimizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from lotan.arguments import described
from lotan.errors import ConfigurationError

if TYPE_CHECKING:
    from lotan.settings.config import TrainerConfig
    from lotan.settings.optimizers import Optimizer

PATIENCE = "patience"


def numbers_of(optimizer: Optimizer) -> tuple[str, ...]:
    """Return the arguments of an optimizer that are numbers.

    >>> from lotan.settings.optimizers import SGD
    >>> numbers_of(SGD())
    ('lr', 'momentum', 'dampening', 'weight_decay')
    """
    return tuple(item.name for item in dataclasses.fields(optimizer) if item.type == "float")


def check_changes(config: TrainerConfig) -> None:
    """Refuse changes of settings that cannot be made when a run goes on.

    Raises:
        ConfigurationError: a name or a value cannot be used, or the run does not go on from a checkpoint.
    """
    changes: Any = config.resume_with
    if not changes:
        return
    if not isinstance(changes, Mapping):
        raise ConfigurationError(f'resume_with is {described(changes)}; expected a mapping such as {{"lr": 0.001}}')
    if not config.resume:
        raise ConfigurationError("resume_with changes settings of a run that goes on; set resume=True as well")
    numbers = numbers_of(config.optimizer)
    for name in changes:
        if name not in (PATIENCE, *numbers):
            raise ConfigurationError(
                f"resume_with has {described(name)}, which identifies a run; it may change {', '.join((PATIENCE, *numbers))}"
            )
    if "lr" in changes and config.lr_scheduler is not None:
        raise ConfigurationError("resume_with changes lr, which lr_scheduler sets in each epoch; leave lr out")
    patience = changes.get(PATIENCE)
    if patience is not None and (not isinstance(patience, int) or isinstance(patience, bool) or patience < 1):
        raise ConfigurationError(
            f"resume_with has patience {described(patience)}; expected an integer of at least 1, or None"
        )
    if patience is not None and config.eval_every == 0:
        raise ConfigurationError("patience needs evaluations; leave it out of resume_with, because eval_every is 0")
    changed_optimizer(config)


def changed_optimizer(config: TrainerConfig) -> Optimizer:
    """Return the optimizer of a run with the numbers that it goes on with.

    Raises:
        ConfigurationError: torch does not take a number.
    """
    changes = config.resume_with or {}
    return dataclasses.replace(config.optimizer, **{name: value for name, value in changes.items() if name != PATIENCE})


def copy_numbers(source: torch.optim.Optimizer, target: torch.optim.Optimizer, names: Mapping[str, Any]) -> None:
    """Copy named numbers from the parameter groups of one optimizer to those of another."""
    for given, group in zip(source.param_groups, target.param_groups, strict=True):
        group.update({name: given[name] for name in names if name in given})
