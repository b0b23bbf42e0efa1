"""Optimizers that change only the rows that a mini-batch has read, for parameters with a row for each vertex.

Such a parameter has a sparse gradient in a mini-batch: the rows that the batch has read, and their gradients. torch's SGD
and Adagrad take sparse gradients as they are. `LazyAdam` does it for Adam.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from lotan.errors import ConfigurationError

FORMS: Mapping[str, str] = {"Adam": "lazy Adam", "Adagrad": "sparse Adagrad", "SGD": "SGD"}
"""The optimizers that have a form for rows, by the names of their classes, each with the name of that form."""

ZERO = ("weight_decay", "momentum", "amsgrad")
"""The arguments that would change rows without a gradient, or need all rows. They must be 0 for learned rows."""

ROW_STATES: Mapping[str, tuple[str, ...]] = {"Adam": ("exp_avg", "exp_avg_sq"), "Adagrad": ("sum",), "SGD": ()}
"""The state that each of them has for a row, by torch's names. It is as wide as the row."""


def begin_row_state(optimizer: torch.optim.Optimizer, rows: Tensor, name: str) -> tuple[Tensor, ...]:
    """Give an optimizer the state of rows before their first step, and return its parts, in the order of `ROW_STATES`.

    State that is there already stays, such as the number of steps of a checkpoint.

    Args:
        optimizer: The optimizer.
        rows: The parameter.
        name: The name of the optimizer's class among `FORMS`.
    """
    state = optimizer.state[rows]
    group = next(one for one in optimizer.param_groups if any(rows is parameter for parameter in one["params"]))
    first = float(group.get("initial_accumulator_value", 0.0))
    if name != "SGD":
        state.setdefault("step", torch.tensor(0.0))
    for part in ROW_STATES[name]:
        if part not in state:
            state[part] = torch.full_like(rows, first, requires_grad=False)
    return tuple(state[part] for part in ROW_STATES[name])


class LazyAdam(torch.optim.Adam):
    """Adam that leaves rows without a gradient as they are, as `torch.optim.SparseAdam` does.

    The moments of a row decay only in steps in which the row has a gradient, and only then it moves. Adam itself moves every
    row in every step. The correction of the bias counts all steps. Parameters with dense gradients take Adam's own step.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Take a step, see `torch.optim.Adam.step`."""
        sparse = [
            (parameter, parameter.grad, group)
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None and parameter.grad.is_sparse
        ]
        for parameter, _, _ in sparse:
            parameter.grad = None
        result = super().step(closure)
        for parameter, gradient, group in sparse:
            self._step_rows(parameter, gradient.coalesce(), group)
            parameter.grad = gradient
        return result

    def begin(self, parameter: Tensor) -> dict[str, Any]:
        """Return the state of a parameter with sparse gradients, which is zeros before its first step."""
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return state

    def _step_rows(self, parameter: Tensor, gradient: Tensor, group: Mapping[str, Any]) -> None:
        """Move the rows of one parameter that have a gradient. Source: Kingma and Ba, ICLR 2015, algorithm 1, by rows."""
        state = self.begin(parameter)
        state["step"] += 1
        rows, values = gradient.indices()[0], gradient.values()
        beta1, beta2 = group["betas"]
        mean, square = state["exp_avg"].index_select(0, rows), state["exp_avg_sq"].index_select(0, rows)
        mean.lerp_(values, 1 - beta1)
        square.lerp_(values.square(), 1 - beta2)
        state["exp_avg"].index_copy_(0, rows, mean)
        state["exp_avg_sq"].index_copy_(0, rows, square)
        steps = int(state["step"])
        size = float(group["lr"]) * sqrt(1 - beta2**steps) / (1 - beta1**steps)
        parameter.index_add_(0, rows, mean / square.sqrt_().add_(group["eps"]), alpha=-size)


STATE: Mapping[type[torch.optim.Optimizer], tuple[str, ...]] = {
    LazyAdam: ("exp_avg", "exp_avg_sq"),
    torch.optim.Adagrad: ("sum",),
}
"""The names of the state that an optimizer has for each row. SGD has none."""


def state_by_row(optimizer: torch.optim.Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """Return the state that an optimizer has for each row of a parameter, by its names, each of the parameter's shape."""
    if isinstance(optimizer, LazyAdam):
        optimizer.begin(parameter)
    names = STATE.get(type(optimizer), ())
    return {name: optimizer.state[parameter][name] for name in names}


def check_row_wise(name: str, rows: str, arguments: Mapping[str, Any]) -> None:
    """Check that an optimizer has a form for rows, with arguments that it can follow there.

    Args:
        name: The name of the optimizer's class.
        rows: The name of the parameter.
        arguments: The optimizer's arguments for it.

    Raises:
        ConfigurationError: If it has not.
    """
    if name not in FORMS:
        raise ConfigurationError(
            f"{name} has no form for the learned rows {rows!r} in mini-batches, where only rows of a batch change; use "
            f"{', '.join(FORMS)}, or train on the full batch with regime=lotan.FullBatch()"
        )
    given = next((one for one in ZERO if arguments.get(one)), None)
    if given is not None:
        group, zero = rows.rpartition(".")[0] or rows, type(arguments[given])(0)
        raise ConfigurationError(
            f"{name}({given}={arguments[given]!r}) changes rows that have no gradient, and in mini-batches only rows of a batch "
            f"change; set it to 0, or for the learned rows alone, groups={{{group!r}: {{{given!r}: {zero!r}}}}}"
        )


def clip_norm(parameters: Iterable[Tensor], most: float, elsewhere: Sequence[float] = ()) -> float:
    """Scale gradients so that the norm of all together is at most `most`, as `torch.nn.utils.clip_grad_norm_` does.

    Gradients of rows are sparse, and the others dense.

    Args:
        parameters: The parameters, of which some may have no gradient.
        most: The greatest norm.
        elsewhere: The norms of further gradients, which the caller scales.

    Returns:
        The factor of all gradients.
    """
    found = [parameter.grad for parameter in parameters if parameter.grad is not None]
    gradients = [gradient.coalesce().values() if gradient.is_sparse else gradient for gradient in found]
    norms = [*(torch.linalg.vector_norm(one) for one in gradients), *map(torch.tensor, elsewhere)]
    if not norms:
        return 1.0
    norm = torch.linalg.vector_norm(torch.stack(norms))
    factor = torch.clamp(most / (norm + 1e-6), max=1.0)  # 1e-6 as in torch
    for gradient in gradients:
        gradient.mul_(factor)
    return factor.item()
