"""Models of several layers: those of `torch_geometric.nn`, with their arguments, defaults and parameter names.

x = dropout(act(norm(conv(x)))), layer after layer; the last one plain, unless all are joined ("jumping knowledge")
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lotan.arguments import require_count, require_number, wrong
from lotan.errors import ConfigurationError
from lotan.nn.edge_index import Graph
from lotan.nn.gat_conv import GATConv
from lotan.nn.gcn_conv import GCNConv
from lotan.nn.gin_conv import GINConv
from lotan.nn.linear import require_width
from lotan.nn.message_passing import MessagePassing
from lotan.nn.mlp import MLP
from lotan.nn.resolver import Function, resolve_activation, resolve_norm
from lotan.nn.sage_conv import SAGEConv

_JUMPS = (None, "last", "cat", "max")


class JumpingKnowledge(torch.nn.Module):
    """All layers' rows joined: `torch_geometric.nn.JumpingKnowledge`.

    Xu et al., "Representation Learning on Graphs with Jumping Knowledge Networks" (2018), https://arxiv.org/abs/1806.03536.

    Args:
        mode: "cat", which concatenates, or "max", elementwise.

    Raises:
        ConfigurationError: another mode.
    """

    def __init__(self, mode: str) -> None:
        super().__init__()
        if mode not in ("cat", "max"):
            raise wrong("JumpingKnowledge", "mode", mode, "'cat' or 'max' (others are not supported)")
        self.mode = mode

    def forward(self, xs: list[Tensor]) -> Tensor:
        """num_layers times [num_vertices, width] -> [num_vertices, num_layers * width] or [num_vertices, width]"""
        if self.mode == "cat":
            return torch.cat(xs, dim=-1)
        return torch.stack(xs, dim=-1).max(dim=-1)[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mode})"


class BasicGNN(torch.nn.Module):
    """The base of the models: arguments, defaults and parameters of torch_geometric's.

    Args:
        in_channels: width of the features.
        hidden_channels: width of the hidden layers.
        num_layers: number of layers.
        out_channels: width of the output; None for hidden_channels, the last layer then being like the others.
        dropout: probability, after every layer but a plain last one.
        act: activation, by name or as a callable.
        act_first: whether the activation comes before the normalisation.
        act_kwargs: arguments of the activation named by `act`.
        norm: None, "layer_norm", or a module (copied for each layer).
        norm_kwargs: arguments of the normalisation named by `norm`: for "layer_norm", {"mode": "node"}.
        jk: None, or how all layers are joined before a last linear map: "last", "cat" or "max".
        **kwargs: arguments of the layers.

    Raises:
        ConfigurationError: an argument that is not supported.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        dropout: float = 0.0,
        act: str | Function | None = "relu",
        act_first: bool = False,
        act_kwargs: Mapping[str, Any] | None = None,
        norm: str | Function | None = None,
        norm_kwargs: Mapping[str, Any] | None = None,
        jk: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if jk not in _JUMPS:
            raise wrong(name, "jk", jk, "None, 'last', 'cat' or 'max' (others are not supported)")
        require_number(name, "dropout", dropout, 0.0, 1.0)
        self.in_channels = require_width(name, in_channels)
        self.hidden_channels = hidden_channels = require_count(name, "hidden_channels", hidden_channels)
        self.num_layers = num_layers = require_count(name, "num_layers", num_layers)
        self.out_channels = (
            hidden_channels if out_channels is None else require_count(name, "out_channels", out_channels)
        )
        self.dropout = torch.nn.Dropout(p=dropout)
        self.act = resolve_activation(act, act_kwargs)
        self.act_first = act_first
        self.norm = norm if isinstance(norm, str) else None
        self.norm_kwargs = norm_kwargs
        self.jk_mode = jk
        self._last_is_output = out_channels is not None and jk is None
        self.convs = torch.nn.ModuleList(self._convs(kwargs))
        self.norms = torch.nn.ModuleList(self._norms(norm))
        if jk in ("cat", "max"):
            self.jk = JumpingKnowledge(jk)
        if jk is not None:
            joined = num_layers * hidden_channels if jk == "cat" else hidden_channels
            self.lin = torch.nn.Linear(joined, self.out_channels)

    def init_conv(self, in_channels: int, out_channels: int, is_output: bool, **kwargs: Any) -> MessagePassing:
        """One layer; `is_output` if its rows are the model's output."""
        raise ConfigurationError("BasicGNN has no layers of its own; use GCN, GraphSAGE, GIN or GAT")

    def reset_parameters(self) -> None:
        """Draw new parameters."""
        last = [self.lin] if hasattr(self, "lin") else []
        for module in (*self.convs, *self.norms, *last):
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """[num_vertices, in_channels] -> [num_vertices, out_channels]"""
        layers = []
        for index, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = conv(x, graph)
            if index < self.num_layers - 1 or self.jk_mode is not None:
                x = self.dropout(self._activate(x, norm))
                layers.append(x)
        if hasattr(self, "jk"):
            x = self.jk(layers)
        return self.lin(x) if hasattr(self, "lin") else x

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, num_layers={self.num_layers})"

    def _activate(self, x: Tensor, norm: torch.nn.Module) -> Tensor:
        if self.act is not None and self.act_first:
            x = self.act(x)
        x = norm(x)
        return self.act(x) if self.act is not None and not self.act_first else x

    def _convs(self, kwargs: dict[str, Any]) -> list[MessagePassing]:
        widths = [self.in_channels] + [self.hidden_channels] * (self.num_layers - 1)
        convs = []
        for index, width in enumerate(widths):
            is_output = self._last_is_output and index == self.num_layers - 1
            made = self.out_channels if is_output else self.hidden_channels
            convs.append(self.init_conv(width, made, is_output, **kwargs))
        return convs

    def _norms(self, norm: str | Function | None) -> list[torch.nn.Module]:
        layer = resolve_norm(type(self).__name__, norm, self.hidden_channels, self.norm_kwargs)
        layer = torch.nn.Identity() if layer is None else layer
        norms = [copy.deepcopy(layer) for _ in range(self.num_layers - 1)]
        return [*norms, torch.nn.Identity() if self.jk_mode is None else copy.deepcopy(layer)]


class GCN(BasicGNN):
    """Layers: `GCNConv`. Arguments: `BasicGNN`'s, and `GCNConv`'s."""

    def init_conv(self, in_channels: int, out_channels: int, is_output: bool, **kwargs: Any) -> MessagePassing:
        """One `GCNConv`."""
        return GCNConv(in_channels, out_channels, **kwargs)


class GraphSAGE(BasicGNN):
    """Layers: `SAGEConv`. Arguments: `BasicGNN`'s, and `SAGEConv`'s."""

    def init_conv(self, in_channels: int, out_channels: int, is_output: bool, **kwargs: Any) -> MessagePassing:
        """One `SAGEConv`."""
        return SAGEConv(in_channels, out_channels, **kwargs)


class GIN(BasicGNN):
    """Layers: `GINConv` of an `MLP` of two linear maps. Arguments: `BasicGNN`'s, and `GINConv`'s."""

    def init_conv(self, in_channels: int, out_channels: int, is_output: bool, **kwargs: Any) -> MessagePassing:
        """One `GINConv`."""
        mlp = MLP(
            [in_channels, out_channels, out_channels],
            act=self.act,
            act_first=self.act_first,
            norm=self.norm,
            norm_kwargs=self.norm_kwargs,
        )
        return GINConv(mlp, **kwargs)


class GAT(BasicGNN):
    """Layers: `GATConv`. Arguments: `BasicGNN`'s, and `GATConv`'s; heads are averaged in a last layer that is the output."""

    def init_conv(self, in_channels: int, out_channels: int, is_output: bool, **kwargs: Any) -> MessagePassing:
        """One `GATConv`; its heads share out_channels if they are concatenated."""
        if kwargs.pop("v2", False):
            raise ConfigurationError("GAT got v2=True, which is not supported: leave it out")
        heads = require_count("GAT", "heads", kwargs.pop("heads", 1))
        concat = kwargs.pop("concat", True) and not is_output
        if concat and out_channels % heads:
            raise ConfigurationError(
                f"GAT got heads={heads} for a layer of width {out_channels}; expected a width that is a multiple of the heads"
            )
        width = out_channels // heads if concat else out_channels
        return GATConv(in_channels, width, heads=heads, concat=concat, dropout=self.dropout.p, **kwargs)
