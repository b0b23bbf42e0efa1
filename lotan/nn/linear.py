"""The linear map that the layers use."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, Literal

import torch
from torch import Tensor

from lotan.arguments import require_count, require_flag, wrong


class Linear(torch.nn.Module):
    """The linear map of each row, with the initial values of `torch_geometric.nn.Linear`.

        x' = x W^T + b

    Args:
        in_channels: width of the input rows.
        out_channels: width of the output rows.
        bias: if True, the bias b is learned and added (default: True).
        weight_initializer: "glorot" for Glorot's uniform distribution, None for that of `torch.nn.Linear` (default: None).

    Shapes:
        x: rows [*, in_channels].
        output: rows [*, out_channels].

    Raises:
        ConfigurationError: a width is not a positive whole number, or the initializer is not supported.

    Example:
        >>> Linear(8, 4)(torch.ones(3, 8)).shape
        torch.Size([3, 4])
    """

    bias: torch.nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        bias: bool = True,
        weight_initializer: Literal["glorot"] | None = None,
    ) -> None:
        super().__init__()
        require_flag(type(self).__name__, "bias", bias)
        self.in_channels = require_width(type(self).__name__, in_channels)
        self.out_channels = require_count(type(self).__name__, "out_channels", out_channels)
        if weight_initializer not in ("glorot", None):
            expected = "'glorot' or None (others are not supported)"
            raise wrong(type(self).__name__, "weight_initializer", weight_initializer, expected)
        self.weight_initializer = weight_initializer
        self.weight = torch.nn.Parameter(torch.empty(self.out_channels, self.in_channels))
        self.register_parameter("bias", torch.nn.Parameter(torch.empty(self.out_channels)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters."""
        if self.weight_initializer == "glorot":
            glorot(self.weight)
        else:  # kaiming uniform with a = sqrt(5)
            bound = math.sqrt(6 / (6 * self.in_channels))
            self.weight.data.uniform_(-bound, bound)
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_channels)
            self.bias.data.uniform_(-bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Map rows [*, in_channels] to [*, out_channels]."""
        return torch.nn.functional.linear(x, self.weight, self.bias)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, bias={self.bias is not None})"


def glorot(parameter: Tensor) -> None:
    """Draw values uniformly from +-sqrt(6 / (sum of the last two sizes)), as Glorot and Bengio (2010) do."""
    bound = math.sqrt(6.0 / (parameter.size(-2) + parameter.size(-1)))
    parameter.data.uniform_(-bound, bound)


def require_width(layer: str, in_channels: Any) -> int:
    """Return in_channels as an int.

    Raises:
        ConfigurationError: in_channels is not a positive whole number. Lazy and bipartite layers are not supported.
    """
    if isinstance(in_channels, bool) or not isinstance(in_channels, Integral) or in_channels < 1:
        raise wrong(
            layer,
            "in_channels",
            in_channels,
            "the width of its input as a positive number (lazy initialisation with -1 and bipartite pairs are not "
            "supported)",
        )
    return int(in_channels)
