"""Activations and normalisations by the names that the models' arguments `act` and `norm` accept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules import activation as activations

from lotan.arguments import described
from lotan.errors import ConfigurationError

Function = Callable[[Tensor], Tensor]

_MIXING = ("batch", "instance", "graph", "graphsize", "pair", "diffgroup", "meansubtraction", "msg")


class LayerNorm(torch.nn.Module):
    """The normalisation of each row, as `torch_geometric.nn.LayerNorm(in_channels, mode="node")` does it.

        x' = (x - mean of x) / sqrt(variance of x + eps) * weight + bias

    The paper is Ba, Kiros and Hinton, "Layer Normalization" (2016), https://arxiv.org/abs/1607.06450.

    Args:
        in_channels: width of the rows.
        eps: number that is added to the variance (default: 1e-5).
        affine: if True, weight and bias are learned; if False, they are left out (default: True).
        mode: must be "node". The default, "graph", is that of torch_geometric. It normalises over all vertices at once
            and is not supported.

    Shapes:
        x: rows [num_vertices, in_channels].
        output: rows [num_vertices, in_channels].

    Raises:
        ConfigurationError: `mode` is not "node".

    Example:
        >>> LayerNorm(2, mode="node")(torch.tensor([[1.0, 3.0]]))
        tensor([[-1.0000,  1.0000]], grad_fn=<NativeLayerNormBackward0>)
    """

    weight: torch.nn.Parameter | None
    bias: torch.nn.Parameter | None

    def __init__(self, in_channels: int, eps: float = 1e-5, affine: bool = True, mode: str = "graph") -> None:
        super().__init__()
        if mode != "node":
            raise ConfigurationError(
                f"LayerNorm got mode={mode!r}, which normalises over all vertices at once; pass mode='node' "
                "(to a model: norm='layer_norm', norm_kwargs={'mode': 'node'}) to normalise within each row"
            )
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
        return torch.nn.functional.layer_norm(x, (self.in_channels,), self.weight, self.bias, self.eps)

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
        ConfigurationError: the normalisation mixes rows or is unknown, or `norm` is neither a name nor a callable.
    """
    if not isinstance(norm, str):
        _require_callable("norm", norm)
        return norm
    wanted = _plain(norm).removesuffix("norm")
    if wanted == "layer":
        return _made("norm", norm, partial(LayerNorm, width), arguments)
    advice = "pass norm=None, or norm='layer_norm' with norm_kwargs={'mode': 'node'}"
    if wanted in _MIXING:
        raise ConfigurationError(
            f"{model} got norm={norm!r}, which mixes the rows of all vertices, so is not supported: {advice}"
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
