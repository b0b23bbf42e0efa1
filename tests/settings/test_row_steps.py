"""The steps of optimizers on learned rows in Spark: which optimizers have them, and the numbers of a step against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import lotan
from lotan.settings.optimizers import OPTIMIZERS, Optimizer
from lotan.settings.row_steps import RowStep, has_row_step

WITH_STEP = [
    lotan.SGD(lr=0.3),
    lotan.SGD(lr=0.3, momentum=0.9, dampening=0.2, weight_decay=0.01),
    lotan.SGD(lr=0.3, momentum=0.9, nesterov=True),
    lotan.Adagrad(lr=0.1, lr_decay=0.1, initial_accumulator_value=0.5, weight_decay=0.01),
    lotan.Adam(lr=0.02, weight_decay=0.01),
    lotan.Adam(lr=0.02, betas=(0.4, 0.9)),
    lotan.AdamW(lr=0.02, weight_decay=0.1),
]


def moved(
    step: RowStep, rows: Any, state: list[Any], gradient: Any, numbers: dict[str, float]
) -> tuple[Any, list[Any]]:
    """What `RowUpdate.scala` does, in double precision."""
    own = gradient * numbers["scale"] + numbers["weight_decay"] * rows
    if step.name == "SGD":
        if not state:
            return rows - numbers["rate"] * own, []
        buffer = state[0] * numbers["momentum"] + numbers["share"] * own
        along = own + numbers["momentum"] * buffer if numbers["nesterov"] else buffer
        return rows - numbers["rate"] * along, [buffer]
    if step.name == "Adagrad":
        total = state[0] + own * own
        return rows - numbers["rate"] * own / (np.sqrt(total) + numbers["eps"]), [total]
    mean = state[0] + numbers["new_mean"] * (own - state[0])
    square = state[1] * numbers["old_square"] + numbers["new_square"] * own * own
    root = np.sqrt(square) / numbers["root"] + numbers["eps"]
    return rows * numbers["shrink"] - numbers["rate"] * mean / root, [mean, square]


@pytest.mark.parametrize("optimizer", WITH_STEP, ids=str)
def test_steps_are_those_of_torch(optimizer: Optimizer) -> None:
    random = np.random.default_rng(0)
    parameter = torch.nn.Parameter(torch.from_numpy(random.normal(size=(5, 3))))
    of_torch = optimizer.build({"rows": parameter})
    step = RowStep(optimizer, of_torch.param_groups[0])
    rows = parameter.detach().numpy().copy()
    state: list[Any] = [np.full_like(rows, step.first) for _ in step.states]
    for number in range(1, 5):
        gradient, scale = random.normal(size=(5, 3)), 1.0 / number
        parameter.grad = torch.from_numpy(gradient * scale)
        of_torch.step()
        rows, state = moved(step, rows, state, gradient, step.numbers(number, scale))
        np.testing.assert_allclose(rows, parameter.detach().numpy(), rtol=1e-12)
        for name, part in zip(step.states, state, strict=True):
            np.testing.assert_allclose(part, of_torch.state[parameter][name].numpy(), rtol=1e-12)


def test_other_optimizers_have_none() -> None:
    assert {name for name, kind in OPTIMIZERS.items() if has_row_step(kind())} == {"sgd", "adagrad", "adam", "adamw"}
    assert not has_row_step(lotan.AdamW(amsgrad=True))
