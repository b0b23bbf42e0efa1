"""GAT: a sum over in-edges, weighted by learned attention.

The message is written for each edge, as in the paper. W x_j and the two products with a_src and a_dst depend on one end
of the edge only. The Planner's rule lift_message finds that and computes them once for each vertex.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from lotan.arguments import require_count, require_flags, require_number
from lotan.nn.edge_index import Graph
from lotan.nn.linear import Linear, glorot, require_width
from lotan.nn.message_passing import MessagePassing, refuse_arguments
from planner.spec import EdgeSet


class GATConv(MessagePassing):
    """The attention layer of Veličković et al.

        x'_i = b + sum over in-edges (j, i) of alpha_ji * W x_j
        alpha_ji = softmax over the in-edges of i of LeakyReLU(a_src . W x_j + a_dst . W x_i)

    The paper is "Graph Attention Networks" (2018), https://arxiv.org/abs/1710.10903. Each head has its own W, a_src and
    a_dst; the rows of all heads are concatenated or averaged. The sum also runs over one self-loop for each vertex.

    The arguments, defaults and parameter names are those of `torch_geometric.nn.GATConv`. Edge weights are ignored.

    Args:
        in_channels: width of the input rows.
        out_channels: width of the output rows of one head.
        heads: number of heads (default: 1).
        concat: if True, the heads' rows are concatenated; if False, they are averaged (default: True).
        negative_slope: slope of the LeakyReLU below zero (default: 0.2).
        dropout: probability with which an alpha_ji is dropped in training (default: 0).
        add_self_loops: if True, every vertex gets exactly one self-loop (default: True).
        edge_dim: not supported, because edges carry no features (default: None).
        fill_value: not supported, because it is about edge features (default: "mean").
        bias: if True, the bias b is learned and added (default: True).
        residual: if True, a linear map of the vertex's own row is added (default: False).

    Shapes:
        x: vertex rows [num_vertices, in_channels].
        graph: int64 [2, num_edges], sources above destinations, or an `EdgeIndex`.
        output: vertex rows [num_vertices, heads * out_channels], or [num_vertices, out_channels] if `concat` is False.

    Raises:
        ConfigurationError: an argument has a wrong value or is not supported.

    Example:
        >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> GATConv(8, 4, heads=2)(torch.ones(3, 8), ring).shape
        torch.Size([3, 8])
    """

    bias: torch.nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        residual: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(kwargs.pop("aggr", "add"))
        self._refuse(edge_dim, fill_value, kwargs)
        require_flags("GATConv", concat=concat, add_self_loops=add_self_loops, bias=bias, residual=residual)
        require_number("GATConv", "negative_slope", negative_slope)
        require_number("GATConv", "dropout", dropout, 0.0, 1.0)
        self.in_channels = in_channels = require_width("GATConv", in_channels)
        self.out_channels = out_channels = require_count("GATConv", "out_channels", out_channels)
        self.heads = heads = require_count("GATConv", "heads", heads)
        self.concat = concat
        self.negative_slope = negative_slope
        self.dropout = dropout
        self.add_self_loops = add_self_loops
        self.residual = residual
        total = out_channels * (heads if concat else 1)
        self.lin = Linear(in_channels, heads * out_channels, bias=False, weight_initializer="glorot")
        self.att_src = torch.nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = torch.nn.Parameter(torch.empty(1, heads, out_channels))
        if residual:
            self.res = Linear(in_channels, total, bias=False, weight_initializer="glorot")
        self.register_parameter("bias", torch.nn.Parameter(torch.empty(total)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters."""
        self.lin.reset_parameters()
        if self.residual:
            self.res.reset_parameters()
        glorot(self.att_src)
        glorot(self.att_dst)
        if self.bias is not None:
            self.bias.data.zero_()

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """Map rows [num_vertices, in_channels] to [num_vertices, heads * out_channels], or out_channels without `concat`."""
        edges: EdgeSet = "self_loops" if self.add_self_loops else "graph"
        out = self.propagate(graph, x, edges)  # [num_vertices, heads, out_channels]
        out = out.flatten(1) if self.concat else out.mean(dim=1)
        if self.residual:
            out = out + self.res(x)
        return out if self.bias is None else out + self.bias

    def message(self, x_j: Tensor, x_i: Tensor) -> Tensor:
        """Return alpha_ji * W x_j for each edge and head, [num_edges, heads, out_channels]."""
        projected_j = self.lin(x_j).view(-1, self.heads, self.out_channels)
        projected_i = self.lin(x_i).view(-1, self.heads, self.out_channels)
        score_j = (projected_j * self.att_src).sum(dim=-1)  # [num_edges, heads]
        score_i = (projected_i * self.att_dst).sum(dim=-1)
        attention = self.softmax(F.leaky_relu(score_j + score_i, self.negative_slope))
        attention = F.dropout(attention, self.dropout, self.training)
        return cast(Tensor, projected_j * attention.unsqueeze(-1))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"

    @staticmethod
    def _refuse(edge_dim: int | None, fill_value: object, others: dict[str, Any]) -> None:
        given = dict(others)
        if edge_dim is not None:
            given["edge_dim"] = edge_dim
        if not (isinstance(fill_value, str) and fill_value == "mean"):
            given["fill_value"] = fill_value
        edges = "edges carry a weight at most, no features; leave it out"
        refuse_arguments("GATConv", given, {"edge_dim": edges, "fill_value": edges})
