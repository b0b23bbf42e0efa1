"""The members of a model batch: their models and settings, and the state of their training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from lotan.errors import ConfigurationError
from lotan.nn.unwrapping import unwrapped
from lotan.settings.optimizers import Adam, Optimizer
from lotan.settings.regimes import Regime
from lotan.settings.schedulers import SchedulerSetting
from lotan.settings.tasks import LinkPrediction
from lotan.training.learner import Learner

MemberOutcome = Literal["waiting", "training", "done", "stopped early", "diverged", "stopped"]


@dataclass(frozen=True)
class Member:
    """One model of a batch, with the settings that are its own."""

    model: torch.nn.Module  # trained in place: at the end it holds its best weights
    # the optimizer and its arguments, see lotan.settings.optimizers
    optimizer: Optimizer = field(default_factory=lambda: Adam(lr=0.01))
    seed: int = 0  # seed of dropout; the model brings its own initial weights
    epochs: int = 200  # the largest number of epochs
    patience: int | None = None  # evaluations without improvement after which training stops; None: never
    name: str = ""  # a name to show; empty: "model" and the member's number
    # a scheduler of the learning rate, see lotan.settings.schedulers; each member has its own
    lr_scheduler: SchedulerSetting | None = None
    clip_grad_norm: float | None = None  # the largest norm of the gradients of all parameters; None: any
    regime: Regime | None = None  # the examples of a step; None: as the batch says
    task: LinkPrediction | None = None  # a link task; None: the batch's task

    def __post_init__(self) -> None:
        """Take the model out of what torch wraps around it."""
        object.__setattr__(self, "model", unwrapped(self.model))


def folder_of(directory: str | Path, number: int) -> Path:
    """Return the folder of one member in a directory that all members share.

    >>> folder_of("runs", 3).as_posix()
    'runs/model-0003'
    """
    return Path(directory) / f"model-{number:04}"


def check_own(member: Member, others: Sequence[Member]) -> None:
    """Refuse a model that shares a weight with another member: two optimizers would change it.

    Raises:
        ConfigurationError: If a weight is shared; the message has the weight and the other member.
    """
    owners = {
        id(parameter): (number, name)
        for number, other in enumerate(others)
        for name, parameter in other.model.named_parameters()
    }
    for name, parameter in member.model.named_parameters():
        if id(parameter) in owners:
            number, theirs = owners[id(parameter)]
            its, other = member.name or f"model {len(others)}", others[number].name or f"model {number}"
            raise ConfigurationError(
                f"{its}: its weight {name} is {theirs} of {other}, and members train weights of their own; give it a copy, "
                "such as copy.deepcopy(model)"
            )


@dataclass
class MemberState:
    """The state of a member's training."""

    number: int
    name: str
    state: MemberOutcome = "waiting"
    reason: str = ""  # the reason why training ended before the last epoch
    learner: Learner | None = field(default=None, repr=False)  # None before training begins

    @property
    def ended(self) -> bool:
        """True if the member will not be trained further."""
        return self.state not in ("waiting", "training")

    @property
    def epoch(self) -> int:
        """The number of finished epochs."""
        return 0 if self.learner is None else self.learner.state.epoch

    @property
    def place(self) -> tuple[int, int]:
        """The number of finished epochs, and of the mini-batches that the next one has done."""
        return (0, 0) if self.learner is None else (self.epoch, self.learner.state.part.batches)

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per epoch, as in a `Run`; seconds are those of the whole batch."""
        return [] if self.learner is None else self.learner.state.history

    @property
    def best_epoch(self) -> int | None:
        """The best epoch of all evaluations so far; None before the first evaluation."""
        return None if self.learner is None else self.learner.state.stopping.best_epoch or None

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """The metrics of the best epoch, by split and name; empty before the first evaluation."""
        return self.history[self.best_epoch - 1]["metrics"] if self.best_epoch else {}
