"""The members of a model batch: what each is, and what has become of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from lotan.errors import ConfigurationError
from lotan.settings.optimizers import Adam, Optimizer
from lotan.training.learner import Learner

MemberOutcome = Literal["waiting", "training", "done", "stopped early", "diverged", "stopped"]
OWN = ("optimizer", "seed", "epochs", "patience")
"""The settings that each member has of its own."""


@dataclass(frozen=True)
class Member:
    """One model of a batch, and what is its own."""

    model: torch.nn.Module  # trained in place: in the end it holds its best weights
    optimizer: Optimizer = field(default_factory=lambda: Adam(lr=0.01))  # see lotan.settings.optimizers
    seed: int = 0  # of dropout; the model's initial weights are as the model comes
    epochs: int = 200  # at most
    patience: int | None = None  # evaluations without improvement after which to stop; None: never
    name: str = ""  # for people; empty: its number


def folder_of(directory: str | Path, number: int) -> Path:
    """A member's own folder in one that all have.

    >>> folder_of("runs", 3).as_posix()
    'runs/model-0003'
    """
    return Path(directory) / f"model-{number:04}"


def check_own(member: Member, others: Sequence[Member]) -> None:
    """Refuse a model that has weights of another member's: two optimizers would step them.

    Raises:
        ConfigurationError: naming the weight, and the other member.
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
    """What has become of a member so far."""

    number: int
    name: str
    state: MemberOutcome = "waiting"
    reason: str = ""  # why it ended, where it did not reach its last epoch
    learner: Learner | None = field(default=None, repr=False)  # once it trains

    @property
    def ended(self) -> bool:
        """Whether it trains no further."""
        return self.state not in ("waiting", "training")

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return 0 if self.learner is None else self.learner.state.epoch

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry an epoch, as a `Run` has them; seconds are those of the whole batch."""
        return [] if self.learner is None else self.learner.state.history

    @property
    def best_epoch(self) -> int | None:
        """Of the evaluations so far; None before the first."""
        return None if self.learner is None else self.learner.state.stopping.best_epoch or None

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Of the best epoch, by split and name; empty before the first evaluation."""
        return self.history[self.best_epoch - 1]["metrics"] if self.best_epoch else {}
