"""The linear map of the layers, initialised as `torch_geometric.nn.Linear` is.

x' = x W^T + b      [*, in_channels] -> [*, out_channels]
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, Literal

import torch
from torch import Tensor

from lotan.arguments import require_count, wrong


class Linear(torch.nn.Module):
    """A linear map.

    Args:
        in_channels: width of the input.
        out_channels: width of the output.
        bias: whether a bias is added.
        weight_initializer: "glorot", or None for that of `torch.nn.Linear`.

    Raises:
        ConfigurationError: a width that is none, or another initializer.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        bias: bool = True,
        weight_initializer: Literal["glorot"] | None = None,
    ) -> None:
        super().__init__()
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
        """[*, in_channels] -> [*, out_channels]"""
        return torch.nn.functional.linear(x, self.weight, self.bias)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, bias={self.bias is not None})"


def glorot(parameter: Tensor) -> None:
    """Draw uniformly from +-sqrt(6 / (sum of the last two sizes)) (Glorot and Bengio, 2010)."""
    bound = math.sqrt(6.0 / (parameter.size(-2) + parameter.size(-1)))
    parameter.data.uniform_(-bound, bound)


def require_width(layer: str, in_channels: Any) -> int:
    """in_channels, if it is a positive whole number; else a ConfigurationError: no lazy and no bipartite layers."""
    if isinstance(in_channels, bool) or not isinstance(in_channels, Integral) or in_channels < 1:
        raise wrong(
            layer,
            "in_channels",
            in_channels,
            "the width of its input as a positive number (lazy initialisation with -1 and bipartite pairs are not "
            "supported)",
        )
    return int(in_channels)
