"""The steps of optimizers on learned rows that lie in Spark: their names there, their state, and the numbers of each step.

The numbers that are the same for all rows are computed here, in double precision and as torch computes them. What is done to
each row is in `RowUpdate.scala`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

from lotan.settings.optimizers import SGD, Adagrad, Adam, AdamW, Optimizer

NAMES: Mapping[type[Optimizer], str] = {SGD: "SGD", Adagrad: "Adagrad", Adam: "Adam", AdamW: "Adam"}
"""The optimizers that have such a step, each with the name of that step in Scala."""


def has_row_step(optimizer: Optimizer) -> bool:
    """Return True if an optimizer can update rows in Spark.

    >>> has_row_step(Adam()), has_row_step(Adam(amsgrad=True)), has_row_step(Adam(groups={"rows": {"amsgrad": True}}))
    (True, False, False)
    """
    if type(optimizer) not in NAMES:
        return False
    groups = getattr(optimizer, "groups", {})
    return not any(one.get("amsgrad") for one in (vars(optimizer), *groups.values()))


@dataclass(frozen=True)
class RowStep:
    """The steps of one optimizer on the rows of one parameter.

    Args:
        optimizer: The settings, of a kind that has such steps.
        group: The arguments of torch's optimizer for the parameter, as they are now.
    """

    optimizer: Optimizer
    group: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the step in Scala."""
        return NAMES[type(self.optimizer)]

    @property
    def states(self) -> tuple[str, ...]:
        """The parts of the state of a row, by torch's names. Each is as wide as the row."""
        if self.name == "SGD":
            return ("momentum_buffer",) * bool(self.group["momentum"])
        return ("sum",) if self.name == "Adagrad" else ("exp_avg", "exp_avg_sq")

    @property
    def first(self) -> float:
        """The number that the state of all rows has before their first step."""
        return float(self.group.get("initial_accumulator_value", 0.0))

    def numbers(self, step: int, scale: float) -> dict[str, float]:
        """Return the numbers of a step.

        Args:
            step: The number of the step, from 1.
            scale: The number that gradients are multiplied with, to clip them.
        """
        group, rate = self.group, float(self.group["lr"])
        decay = 0.0 if isinstance(self.optimizer, AdamW) else float(group["weight_decay"])
        found = {"scale": scale, "weight_decay": decay}
        if self.name == "SGD":
            share = 1.0 if step == 1 else 1 - group["dampening"]  # the first gradient is the buffer, as a whole
            return found | {
                "rate": rate,
                "momentum": float(group["momentum"]),
                "share": share,
                "nesterov": float(group["nesterov"]),
            }
        if self.name == "Adagrad":
            return found | {"rate": rate / (1 + (step - 1) * group["lr_decay"]), "eps": float(group["eps"])}
        beta1, beta2 = group["betas"]
        return found | {
            "rate": rate / (1 - beta1**step),
            "eps": float(group["eps"]),
            "shrink": 1 - rate * group["weight_decay"] if isinstance(self.optimizer, AdamW) else 1.0,
            "root": sqrt(1 - beta2**step),
            "new_mean": 1 - beta1,
            "old_square": float(beta2),
            "new_square": 1 - beta2,
        }
