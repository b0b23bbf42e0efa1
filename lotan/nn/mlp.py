"""The multi-layer perceptron, a layer's inner network or a model that needs no edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lotan.arguments import require_count, require_flags, require_number, wrong
from lotan.errors import ConfigurationError
from lotan.nn.edge_index import Graph
from lotan.nn.linear import Linear, require_width
from lotan.nn.message_passing import refuse_arguments
from lotan.nn.resolver import Function, resolve_activation, resolve_norm


class MLP(torch.nn.Module):
    """The multi-layer perceptron.

        x' = dropout(act(norm(W x + b)))        layer after layer; the last layer is W x + b alone

    The arguments, defaults and parameter names are those of `torch_geometric.nn.MLP`. Used as a model, it ignores the
    edges.

    Args:
        channel_list: widths of the input, the hidden layers and the output. It takes the place of the next four arguments.
        in_channels: width of the input rows.
        hidden_channels: width of every hidden layer.
        out_channels: width of the output rows.
        num_layers: number of linear maps.
        dropout: probability with which a value is dropped in training, or one for each layer (default: 0).
        act: activation, as a name or a callable (default: "relu").
        act_first: if True, the activation comes before the normalisation (default: False).
        act_kwargs: arguments of the activation that `act` names (default: None).
        norm: None, "batch_norm", "layer_norm" or a module (default: "batch_norm").
        norm_kwargs: arguments of the normalisation that `norm` names (default: None).
        plain_last: if True, the last layer has no activation, normalisation or dropout (default: True).
        bias: if True, biases are learned and added; one value, or one for each layer (default: True).

    Shapes:
        x: rows [num_vertices, in_channels].
        output: rows [num_vertices, out_channels].

    Raises:
        ConfigurationError: an argument is missing, has a wrong value or is not supported.

    Example:
        >>> MLP([8, 16, 4], norm=None)(torch.ones(3, 8)).shape
        torch.Size([3, 4])
    """

    def __init__(
        self,
        channel_list: Sequence[int] | int | None = None,
        *,
        in_channels: int | None = None,
        hidden_channels: int | None = None,
        out_channels: int | None = None,
        num_layers: int | None = None,
        dropout: float | Sequence[float] = 0.0,
        act: str | Function | None = "relu",
        act_first: bool = False,
        act_kwargs: Mapping[str, Any] | None = None,
        norm: str | Function | None = "batch_norm",
        norm_kwargs: Mapping[str, Any] | None = None,
        plain_last: bool = True,
        bias: bool | Sequence[bool] = True,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        refuse_arguments("MLP", kwargs)
        require_flags("MLP", act_first=act_first, plain_last=plain_last)
        if isinstance(channel_list, Integral):
            in_channels = int(channel_list)
        if in_channels is not None:
            channel_list = _channels(in_channels, hidden_channels, out_channels, num_layers)
        if not isinstance(channel_list, Sequence) or len(channel_list) < 2:
            raise wrong("MLP", "channel_list", channel_list, "at least the widths of input and output")
        self.channel_list = [require_count("MLP", "channel_list", width) for width in channel_list]
        self.act = resolve_activation(act, act_kwargs)
        self.act_first = act_first
        self.plain_last = plain_last
        self.dropout = self._each("dropout", dropout)
        for probability in self.dropout:
            require_number("MLP", "dropout", probability, 0.0, 1.0)
        if plain_last and not isinstance(dropout, Sequence):
            self.dropout[-1] = 0.0
        pairs = zip(self.channel_list[:-1], self.channel_list[1:], self._each("bias", bias), strict=True)
        self.lins = torch.nn.ModuleList(Linear(given, made, bias=has_bias) for given, made, has_bias in pairs)
        normed = self.channel_list[1:-1] if plain_last else self.channel_list[1:]
        norms = [resolve_norm("MLP", norm, width, norm_kwargs) for width in normed]
        self.norms = torch.nn.ModuleList(torch.nn.Identity() if one is None else one for one in norms)
        self.reset_parameters()

    @property
    def in_channels(self) -> int:
        """The width of the input rows."""
        return self.channel_list[0]

    @property
    def out_channels(self) -> int:
        """The width of the output rows."""
        return self.channel_list[-1]

    @property
    def num_layers(self) -> int:
        """The number of linear maps."""
        return len(self.channel_list) - 1

    def reset_parameters(self) -> None:
        """Draw new parameters."""
        for module in (*self.lins, *self.norms):
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def forward(self, x: Tensor, graph: Graph | None = None) -> Tensor:
        """Map rows [num_vertices, in_channels] to [num_vertices, out_channels]. The graph is ignored."""
        for lin, norm, dropout in zip(self.lins, self.norms, self.dropout, strict=False):
            x = lin(x)
            if self.act is not None and self.act_first:
                x = self.act(x)
            x = norm(x)
            if self.act is not None and not self.act_first:
                x = self.act(x)
            x = F.dropout(x, dropout, self.training)
        if self.plain_last:
            x = F.dropout(self.lins[-1](x), self.dropout[-1], self.training)
        return x

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.channel_list)[1:-1]})"

    def _each(self, name: str, value: Any) -> list[Any]:
        """Return a list with one value for each layer."""
        values = list(value) if isinstance(value, Sequence) else [value] * self.num_layers
        if len(values) != self.num_layers:
            raise ConfigurationError(
                f"MLP got {len(values)} values of {name} for {self.num_layers} layers; expected one a layer"
            )
        return values


def _channels(
    in_channels: int, hidden_channels: int | None, out_channels: int | None, num_layers: int | None
) -> list[int]:
    if num_layers is None or out_channels is None or (num_layers != 1 and hidden_channels is None):
        raise ConfigurationError(
            f"MLP got in_channels={in_channels}, hidden_channels={hidden_channels}, out_channels={out_channels}, "
            f"num_layers={num_layers}; expected all of them"
        )
    count = require_count("MLP", "num_layers", num_layers)
    hidden = [] if count == 1 else [require_count("MLP", "hidden_channels", hidden_channels)] * (count - 1)
    return [require_width("MLP", in_channels), *hidden, require_count("MLP", "out_channels", out_channels)]
