"""A term of the loss that depends on parameters alone, such as the squares of some of them.

The coordinator has all parameters, so it computes the term and its gradient itself, once for each step of the optimizer.
It is the same on every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from lotan.arguments import described
from lotan.errors import ConfigurationError, DivergedError
from lotan.settings.named_calls import words_of

Penalty = Callable[[Mapping[str, Tensor]], Tensor]
"""A function of the parameters by name that returns one number, which is added to the loss."""


class PenaltyTerm:
    """The penalty of one model.

    Args:
        function: The user's function, or None for no penalty.
        model: The model. Its parameters may change between calls.
        by_row: The names of parameters that a penalty cannot read, because only some of their rows have a gradient.

    Raises:
        ConfigurationError: The function fails on the model's parameters, or does not return one number of some of them.
    """

    def __init__(self, function: Penalty | None, model: torch.nn.Module, by_row: Sequence[str] = ()) -> None:
        self._function, self._parameters = function, dict(model.named_parameters())
        if function is None:
            return
        self._words = f"penalty {words_of(function)}"
        try:
            found = self._value(function)
        except Exception as error:  # of any type, for it is the user's code
            known = ", ".join(self._parameters)
            raise ConfigurationError(
                f"{self._words} fails: {type(error).__name__}: {error}. It is called with a mapping of the parameters, "
                f"which are {known}"
            ) from error
        if not isinstance(found, Tensor) or found.numel() != 1 or not found.is_floating_point():
            shown = f"{found.dtype} of shape {list(found.shape)}" if isinstance(found, Tensor) else described(found)
            raise ConfigurationError(f"{self._words} returns {shown}; expected a tensor of one number, such as a sum")
        if not found.requires_grad:
            raise ConfigurationError(
                f"{self._words} depends on no parameter that is trained, or only through operators without a gradient"
            )
        rows = {name: self._parameters[name] for name in by_row}
        if rows and any(one is not None for one in torch.autograd.grad(found, list(rows.values()), allow_unused=True)):
            raise ConfigurationError(
                f"{self._words} reads the rows of {', '.join(rows)}, and in mini-batches only the rows of a batch have a "
                "gradient; leave them out of the penalty, or train on the full batch with regime=lotan.FullBatch()"
            )

    def add_to(self, gradients: Mapping[str, Tensor], epoch: int) -> tuple[dict[str, Tensor], float]:
        """Return gradients with those of the penalty added, and the penalty.

        Args:
            gradients: The gradients by the names of parameters. A parameter that the loss does not reach has none.
            epoch: The number of the epoch, for the texts of errors.

        Raises:
            DivergedError: The penalty or its gradient is not finite.
        """
        if self._function is None:
            return dict(gradients), 0.0
        trained = {name: one for name, one in self._parameters.items() if one.requires_grad}
        value = self._value(self._function)
        found = torch.autograd.grad(value.reshape(()), list(trained.values()), allow_unused=True)
        if not bool(value.isfinite()) or not all(one is None or bool(one.isfinite().all()) for one in found):
            raise DivergedError(f"epoch {epoch}: {self._words} is {value.item()}, or its gradient is not finite")
        added = dict(gradients)
        for name, one in zip(trained, found, strict=True):
            if one is not None:
                added[name] = one if name not in added else added[name].to(one).view_as(one) + one
        return added, value.item()

    def _value(self, function: Penalty) -> Tensor:
        with torch.enable_grad():
            return function(dict(self._parameters))
