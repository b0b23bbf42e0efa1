"""Activations and normalisations by the names that the models' arguments `act` and `norm` accept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules import activation as activations

from lotan.arguments import described, require_flag
from lotan.errors import ConfigurationError

Function = Callable[[Tensor], Tensor]

_OTHERS = ("instance", "graph", "graphsize", "pair", "diffgroup", "meansubtraction", "msg")
"""The other norms of torch_geometric that have names. They mix rows."""


class BatchNorm(torch.nn.Module):
    """The normalisation of each channel over all vertices, as `torch_geometric.nn.BatchNorm` does it.

        x' = (x - mean of all rows) / sqrt(variance of all rows + eps) * weight + bias

    In evaluation, running statistics take the place of mean and variance. The paper is Ioffe and Szegedy, "Batch
    Normalization" (2015), https://arxiv.org/abs/1502.03167.

    Args:
        in_channels: width of the rows.
        eps: number that is added to the variance (default: 1e-5).
        momentum: weight of a step's statistics in the running ones; None: the mean of all steps (default: 0.1).
        affine: if True, weight and bias are learned; if False, they are left out (default: True).
        track_running_stats: if False, there are no running statistics, and evaluation normalises as training does
            (default: True).

    Shapes:
        x: rows [num_vertices, in_channels].
        output: rows [num_vertices, in_channels].

    Example:
        >>> BatchNorm(1)(torch.tensor([[1.0], [3.0]])).detach()
        tensor([[-1.0000],
                [ 1.0000]])
    """

    def __init__(
        self,
        in_channels: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.module = torch.nn.BatchNorm1d(in_channels, eps, momentum, affine, track_running_stats)

    def reset_parameters(self) -> None:
        """Set the weight to 1, the bias to 0, and forget the running statistics."""
        self.module.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Normalise rows [num_vertices, in_channels]."""
        normalised: Tensor = self.module(x)
        return normalised

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels})"


class LayerNorm(torch.nn.Module):
    """The normalisation of each row, or of all rows together, as `torch_geometric.nn.LayerNorm` does it.

        x' = (x - mean of x) / sqrt(variance of x + eps) * weight + bias                    mode "node", row by row
        x' = (x - mean of all x) / (standard deviation of all x + eps) * weight + bias      mode "graph"

    The paper is Ba, Kiros and Hinton, "Layer Normalization" (2016), https://arxiv.org/abs/1607.06450.

    Args:
        in_channels: width of the rows.
        eps: number that is added to the variance (default: 1e-5).
        affine: if True, weight and bias are learned; if False, they are left out (default: True).
        mode: "node" to normalise within each row, or "graph" over all vertices at once (default: "graph").

    Shapes:
        x: rows [num_vertices, in_channels].
        output: rows [num_vertices, in_channels].

    Raises:
        ConfigurationError: `mode` is neither "node" nor "graph".

    Example:
        >>> LayerNorm(2, mode="node")(torch.tensor([[1.0, 3.0]]))
        tensor([[-1.0000,  1.0000]], grad_fn=<NativeLayerNormBackward0>)
    """

    weight: torch.nn.Parameter | None
    bias: torch.nn.Parameter | None

    def __init__(self, in_channels: int, eps: float = 1e-5, affine: bool = True, mode: str = "graph") -> None:
        super().__init__()
        if mode not in ("node", "graph"):
            raise ConfigurationError(f"LayerNorm got mode={mode!r}; expected 'node' or 'graph'")
        require_flag("LayerNorm", "affine", affine)
        self.in_channels = in_channels
        self.eps = eps
        self.affine = affine
        self.mode = mode
        self.register_parameter("weight", torch.nn.Parameter(torch.empty(in_channels)) if affine else None)
        self.register_parameter("bias", torch.nn.Parameter(torch.empty(in_channels)) if affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 1 and the bias to 0."""
        if self.weight is not None:
            self.weight.data.fill_(1.0)
        if self.bias is not None:
            self.bias.data.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Normalise rows [num_vertices, in_channels]."""
        if self.mode == "node":
            return torch.nn.functional.layer_norm(x, (self.in_channels,), self.weight, self.bias, self.eps)
        x = x - x.mean()
        x = x / (x.std(unbiased=False) + self.eps)
        return x if self.weight is None or self.bias is None else x * self.weight + self.bias

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, affine={self.affine}, mode={self.mode})"


def swish(x: Tensor) -> Tensor:
    """Return x * sigmoid(x)."""
    return x * x.sigmoid()


def resolve_activation(act: str | Function | None, arguments: Mapping[str, Any] | None) -> Any:
    """Return the activation that a name such as "relu", "LeakyReLU" or "leaky_relu" stands for.

    None or a callable is returned unchanged.

    Raises:
        ConfigurationError: the name is unknown, or `act` is neither a name nor a callable.
    """
    if not isinstance(act, str):
        _require_callable("act", act)
        return act
    wanted = _plain(act)
    if wanted == "swish":
        return swish
    for name, kind in vars(activations).items():
        if isinstance(kind, type) and issubclass(kind, torch.nn.Module) and wanted == _plain(name):
            return _made("act", act, kind, arguments)
    raise ConfigurationError(
        f"act={act!r} is unknown; expected the name of an activation of torch.nn, such as relu, elu, gelu"
    )


def resolve_norm(model: str, norm: str | Function | None, width: int, arguments: Mapping[str, Any] | None) -> Any:
    """Return the normalisation that a name stands for. None or a callable is returned unchanged.

    Raises:
        ConfigurationError: there is no such normalisation here, or `norm` is neither a name nor a callable.
    """
    if not isinstance(norm, str):
        _require_callable("norm", norm)
        return norm
    wanted = _plain(norm).removesuffix("norm")
    if wanted == "layer":
        return _made("norm", norm, partial(LayerNorm, width), arguments)
    if wanted == "batch":
        return _made("norm", norm, partial(BatchNorm, width), arguments)
    advice = "pass norm=None, 'batch_norm' or 'layer_norm'"
    if wanted in _OTHERS:
        raise ConfigurationError(
            f"{model} got norm={norm!r}, which has no name here: {advice}, or the module itself, such as PyG's"
        )
    raise ConfigurationError(f"{model} got norm={norm!r}, which is unknown: {advice}")


def _require_callable(name: str, given: object) -> None:
    if given is not None and not callable(given):
        raise ConfigurationError(f"{name}={described(given)} is neither a name nor a module; expected one, or None")


def _made(name: str, given: str, kind: Callable[..., Any], arguments: Mapping[str, Any] | None) -> Any:
    try:
        return kind(**(arguments or {}))
    except TypeError as error:
        raise ConfigurationError(
            f"{name}={given!r} cannot take {name}_kwargs={described(arguments)}: {error}"
        ) from error


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")
