"""GraphSAGE: a map of the aggregated neighbours plus a map of the vertex itself."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from lotan.arguments import require_count, require_flags
from lotan.errors import ConfigurationError
from lotan.nn.edge_index import Graph
from lotan.nn.linear import Linear, require_width
from lotan.nn.message_passing import MessagePassing, refuse_arguments


class SAGEConv(MessagePassing):
    """The GraphSAGE layer of Hamilton, Ying and Leskovec.

        x'_i = W_1 * (aggregate over in-edges (j, i) of x_j) + b + W_2 x_i

    The paper is "Inductive Representation Learning on Large Graphs" (2017), https://arxiv.org/abs/1706.02216. With
    `project`, ReLU(W_3 x_j + c) takes the place of x_j, as in the paper's equation 3.

    The arguments, defaults and parameter names are those of `torch_geometric.nn.SAGEConv`. Edge weights are ignored.

    Args:
        in_channels: width of the input rows.
        out_channels: width of the output rows.
        aggr: "mean", "max", "min", "sum" or "add", which is another name for "sum" (default: "mean").
        normalize: if True, output rows are scaled to length 1 (default: False).
        root_weight: if True, the term W_2 x_i is added (default: True).
        project: if True, source rows pass a linear map and ReLU before they are aggregated (default: False).
        bias: if True, the bias b is learned and added (default: True).

    Shapes:
        x: vertex rows [num_vertices, in_channels].
        graph: int64 [2, num_edges], sources above destinations, or an `EdgeIndex`.
        output: vertex rows [num_vertices, out_channels].

    Raises:
        ConfigurationError: an argument has a wrong value or is not supported.

    Example:
        >>> import torch
        >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> SAGEConv(8, 4)(torch.ones(3, 8), ring).shape
        torch.Size([3, 4])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        aggr: str = "mean",
        normalize: bool = False,
        root_weight: bool = True,
        project: bool = False,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        if not isinstance(aggr, str):
            raise ConfigurationError(
                f"SAGEConv got aggr={aggr!r}; expected one of mean, max, min, sum. For several at once, write `aggregate` in a "
                "lotan.nn.MessagePassing of your own"
            )
        super().__init__(aggr)
        refuse_arguments("SAGEConv", kwargs)
        require_flags("SAGEConv", normalize=normalize, root_weight=root_weight, project=project, bias=bias)
        self.in_channels = in_channels = require_width("SAGEConv", in_channels)
        self.out_channels = out_channels = require_count("SAGEConv", "out_channels", out_channels)
        self.normalize = normalize
        self.root_weight = root_weight
        self.project = project
        if project:
            self.lin = Linear(in_channels, in_channels)
        self.lin_l = Linear(in_channels, out_channels, bias=bias)
        if root_weight:
            self.lin_r = Linear(in_channels, out_channels, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters."""
        if self.project:
            self.lin.reset_parameters()
        self.lin_l.reset_parameters()
        if self.root_weight:
            self.lin_r.reset_parameters()

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """Map rows [num_vertices, in_channels] to [num_vertices, out_channels]."""
        sent = self.lin(x).relu() if self.project else x
        out = self.lin_l(self.propagate(graph, sent))
        if self.root_weight:
            out = out + self.lin_r(x)
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, aggr={self.aggr})"
