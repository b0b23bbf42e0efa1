"""Models of several layers, with the arguments, defaults and parameter names of those in `torch_geometric.nn`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lotan.arguments import require_count, require_flag, require_number, wrong
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

_JUMPS = (None, "last", "cat", "max", "lstm")


class JumpingKnowledge(torch.nn.Module):
    """The rows of all layers joined into one, as `torch_geometric.nn.JumpingKnowledge` joins them.

        x'_i = [x_i of layer 1, ..., x_i of layer L]            mode "cat"
        x'_i = max(x_i of layer 1, ..., x_i of layer L)         mode "max", elementwise
        x'_i = sum of a_l x_i of layer l over all layers        mode "lstm", where a is the softmax over l of w·h_l + b, and
                                                                h = LSTM(x_i of layer 1, ..., x_i of layer L), both ways

    The paper is Xu et al., "Representation Learning on Graphs with Jumping Knowledge Networks" (2018),
    https://arxiv.org/abs/1806.03536.

    Args:
        mode: "cat", "max" or "lstm".
        channels: width of the rows, which only "lstm" needs (default: None).
        num_layers: number of layers, which only "lstm" needs (default: None).

    Shapes:
        xs: a list of num_layers tensors [num_vertices, width].
        output: [num_vertices, num_layers * width] for "cat", [num_vertices, width] for "max" and "lstm".

    Raises:
        ConfigurationError: `mode` has another value, or "lstm" comes without a width or a number of layers.
    """

    def __init__(self, mode: str, channels: int | None = None, num_layers: int | None = None) -> None:
        super().__init__()
        name = type(self).__name__
        if mode not in ("cat", "max", "lstm"):
            raise wrong(name, "mode", mode, "'cat', 'max' or 'lstm'")
        self.mode, self.channels, self.num_layers = mode, channels, num_layers
        if mode == "lstm":
            width, layers = (
                require_count(name, what, number)
                for what, number in (("channels", channels), ("num_layers", num_layers))
            )
            half = layers * width // 2
            self.lstm = torch.nn.LSTM(width, half, bidirectional=True, batch_first=True)
            self.att = torch.nn.Linear(2 * half, 1)
            self.reset_parameters()  # again, as PyG does it, so that the same seed gives the same parameters

    def reset_parameters(self) -> None:
        """Draw new parameters."""
        if self.mode == "lstm":
            self.lstm.reset_parameters()
            self.att.reset_parameters()

    def forward(self, xs: list[Tensor]) -> Tensor:
        """Join num_layers tensors [num_vertices, width] into one."""
        if self.mode == "cat":
            return torch.cat(xs, dim=-1)
        if self.mode == "max":
            return torch.stack(xs, dim=-1).max(dim=-1)[0]
        x = torch.stack(xs, dim=1)  # [num_vertices, num_layers, channels]
        share = torch.softmax(self.att(self.lstm(x)[0]).squeeze(-1), dim=-1)
        return (x * share.unsqueeze(-1)).sum(dim=1)

    def __repr__(self) -> str:
        sizes = f", channels={self.channels}, layers={self.num_layers}" if self.mode == "lstm" else ""
        return f"{type(self).__name__}({self.mode}{sizes})"


class BasicGNN(torch.nn.Module):
    """The base class of `GCN`, `GraphSAGE`, `GIN` and `GAT`.

        x' = dropout(act(norm(conv(x, graph))))     layer after layer

    The last layer is conv(x, graph) alone. With `jk`, every layer is as above, and a linear map of all layers' rows,
    joined ("jumping knowledge"), follows. The arguments, defaults and parameter names are those of torch_geometric.

    Args:
        in_channels: width of the features.
        hidden_channels: width of the hidden layers.
        num_layers: number of layers.
        out_channels: width of the output; None for hidden_channels, with a last layer like the others (default: None).
        dropout: probability with which a value is dropped in training (default: 0).
        act: activation, as a name or a callable (default: "relu").
        act_first: if True, the activation comes before the normalisation (default: False).
        act_kwargs: arguments of the activation that `act` names (default: None).
        norm: None, "batch_norm", "layer_norm", or a module, which is copied for each layer (default: None).
        norm_kwargs: arguments of the normalisation that `norm` names (default: None).
        jk: how all layers' rows are joined: "last" (the last layer's alone), "cat", "max" or "lstm"; None for a model without
            the linear map (default: None).
        **kwargs: further arguments of the layers.

    Shapes:
        x: features [num_vertices, in_channels].
        graph: int64 [2, num_edges], sources above destinations, or an `EdgeIndex`.
        output: rows [num_vertices, out_channels].

    Raises:
        ConfigurationError: an argument has a wrong value or is not supported.
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
            raise wrong(name, "jk", jk, "None, 'last', 'cat', 'max' or 'lstm'")
        require_number(name, "dropout", dropout, 0.0, 1.0)
        require_flag(name, "act_first", act_first)
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
        if jk is not None and jk != "last":
            self.jk = JumpingKnowledge(jk, hidden_channels, num_layers)
        if jk is not None:
            joined = num_layers * hidden_channels if jk == "cat" else hidden_channels
            self.lin = torch.nn.Linear(joined, self.out_channels)

    def init_conv(self, in_channels: int, out_channels: int, is_output: bool, **kwargs: Any) -> MessagePassing:
        """Return one layer. `is_output` is True if its rows are the model's output."""
        raise ConfigurationError("BasicGNN has no layers of its own; use GCN, GraphSAGE, GIN or GAT")

    def reset_parameters(self) -> None:
        """Draw new parameters."""
        last = [getattr(self, name) for name in ("jk", "lin") if hasattr(self, name)]
        for module in (*self.convs, *self.norms, *last):
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """Map features [num_vertices, in_channels] to rows [num_vertices, out_channels]."""
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
    """The graph convolutional network of Kipf and Welling: a model of `GCNConv` layers.

        x' = dropout(act(norm(GCNConv(x, graph))))      layer after layer; the last layer is GCNConv alone

    The paper is "Semi-Supervised Classification with Graph Convolutional Networks" (2017),
    https://arxiv.org/abs/1609.02907.

    Args:
        in_channels: width of the features.
        hidden_channels: width of the hidden layers.
        num_layers: number of layers.
        out_channels: width of the output (default: None, for hidden_channels).
        dropout: probability with which a value is dropped in training (default: 0).
        **kwargs: further arguments of `BasicGNN` (`act`, `norm`, `jk` ...) and of `GCNConv` (`normalize`, `bias` ...).

    Shapes:
        x: features [num_vertices, in_channels].
        graph: int64 [2, num_edges], sources above destinations, or an `EdgeIndex` with weights [num_edges].
        output: rows [num_vertices, out_channels].

    Example:
        >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> GCN(8, 16, num_layers=2, out_channels=4)(torch.ones(3, 8), ring).shape
        torch.Size([3, 4])
    """

    def init_conv(self, in_channels: int, out_channels: int, is_output: bool, **kwargs: Any) -> MessagePassing:
        """Return one `GCNConv`."""
        return GCNConv(in_channels, out_channels, **kwargs)


class GraphSAGE(BasicGNN):
    """The model of Hamilton, Ying and Leskovec, made of `SAGEConv` layers.

        x' = dropout(act(norm(SAGEConv(x, graph))))     layer after layer; the last layer is SAGEConv alone

    The paper is "Inductive Representation Learning on Large Graphs" (2017), https://arxiv.org/abs/1706.02216.

    Args:
        in_channels: width of the features.
        hidden_channels: width of the hidden layers.
        num_layers: number of layers.
        out_channels: width of the output (default: None, for hidden_channels).
        dropout: probability with which a value is dropped in training (default: 0).
        **kwargs: further arguments of `BasicGNN` (`act`, `norm`, `jk` ...) and of `SAGEConv` (`aggr`, `project` ...).

    Shapes:
        x: features [num_vertices, in_channels].
        graph: int64 [2, num_edges], sources above destinations, or an `EdgeIndex`.
        output: rows [num_vertices, out_channels].

    Example:
        >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> GraphSAGE(8, 16, num_layers=2, out_channels=4, aggr="max")(torch.ones(3, 8), ring).shape
        torch.Size([3, 4])
    """

    def init_conv(self, in_channels: int, out_channels: int, is_output: bool, **kwargs: Any) -> MessagePassing:
        """Return one `SAGEConv`."""
        return SAGEConv(in_channels, out_channels, **kwargs)


class GIN(BasicGNN):
    """The graph isomorphism network of Xu, Hu, Leskovec and Jegelka: a model of `GINConv` layers.

        x' = dropout(act(norm(GINConv(x, graph))))      layer after layer; the last layer is GINConv alone

    The network inside each `GINConv` is an `MLP` of two linear maps. The paper is "How Powerful are Graph Neural
    Networks?" (2019), https://arxiv.org/abs/1810.00826.

    Args:
        in_channels: width of the features.
        hidden_channels: width of the hidden layers.
        num_layers: number of layers.
        out_channels: width of the output (default: None, for hidden_channels).
        dropout: probability with which a value is dropped in training (default: 0).
        **kwargs: further arguments of `BasicGNN` (`act`, `norm`, `jk` ...) and of `GINConv` (`eps`, `train_eps` ...).

    Shapes:
        x: features [num_vertices, in_channels].
        graph: int64 [2, num_edges], sources above destinations, or an `EdgeIndex`.
        output: rows [num_vertices, out_channels].

    Example:
        >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> GIN(8, 16, num_layers=2, out_channels=4)(torch.ones(3, 8), ring).shape
        torch.Size([3, 4])
    """

    def init_conv(self, in_channels: int, out_channels: int, is_output: bool, **kwargs: Any) -> MessagePassing:
        """Return one `GINConv` with an `MLP` of two linear maps."""
        mlp = MLP(
            [in_channels, out_channels, out_channels],
            act=self.act,
            act_first=self.act_first,
            norm=self.norm,
            norm_kwargs=self.norm_kwargs,
        )
        return GINConv(mlp, **kwargs)


class GAT(BasicGNN):
    """The graph attention network of Veličković et al.: a model of `GATConv` layers.

        x' = dropout(act(norm(GATConv(x, graph))))      layer after layer; the last layer is GATConv alone

    The heads of a layer are concatenated and share its width. In a last layer that is the output they are averaged, and
    each has the whole width. The paper is "Graph Attention Networks" (2018), https://arxiv.org/abs/1710.10903.

    Args:
        in_channels: width of the features.
        hidden_channels: width of the hidden layers, a multiple of `heads`.
        num_layers: number of layers.
        out_channels: width of the output (default: None, for hidden_channels).
        dropout: probability with which a value or an attention coefficient is dropped in training (default: 0).
        **kwargs: further arguments of `BasicGNN` (`act`, `norm`, `jk` ...) and of `GATConv` (`heads`, `concat` ...).

    Shapes:
        x: features [num_vertices, in_channels].
        graph: int64 [2, num_edges], sources above destinations, or an `EdgeIndex`.
        output: rows [num_vertices, out_channels].

    Example:
        >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> GAT(8, 16, num_layers=2, out_channels=4, heads=2)(torch.ones(3, 8), ring).shape
        torch.Size([3, 4])
    """

    def init_conv(self, in_channels: int, out_channels: int, is_output: bool, **kwargs: Any) -> MessagePassing:
        """Return one `GATConv`. Heads that are concatenated share out_channels."""
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
