"""GCN: a sum over in-edges, normalised by the degrees of both ends."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lotan.arguments import require_count, require_flags
from lotan.errors import ConfigurationError
from lotan.nn.edge_index import Graph, as_edge_index
from lotan.nn.linear import Linear, require_width
from lotan.nn.message_passing import MessagePassing, refuse_arguments
from planner.spec import EdgeSet


class GCNConv(MessagePassing):
    """The graph convolution of Kipf and Welling.

        x'_i = b + s_i * sum over in-edges (j, i) of w_ji * s_j * W x_j        s = (weighted in-degree)^-1/2

    The paper is "Semi-Supervised Classification with Graph Convolutional Networks" (2017),
    https://arxiv.org/abs/1609.02907. The sum also runs over one self-loop of weight 1 for each vertex. The normalisation
    is a factor s for each vertex, before and after the sum, so that the edges carry a plain weighted sum.

    The arguments, defaults and parameter names are those of `torch_geometric.nn.GCNConv`.

    Args:
        in_channels: width of the input rows.
        out_channels: width of the output rows.
        improved: not supported, because self-loops always weigh 1 (default: False).
        cached: without effect, because Lotan always computes the normalisation once for each graph (default: False).
        add_self_loops: if True, every vertex gets exactly one self-loop (default: the value of `normalize`).
        normalize: if True, messages are scaled by s of both ends (default: True).
        bias: if True, the bias b is learned and added (default: True).

    Shapes:
        x: vertex rows [num_vertices, in_channels].
        graph: int64 [2, num_edges], sources above destinations, or an `EdgeIndex` with weights [num_edges].
        output: vertex rows [num_vertices, out_channels].

    Raises:
        ConfigurationError: an argument has a wrong value or is not supported.

    Example:
        >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> GCNConv(8, 4)(torch.ones(3, 8), ring).shape
        torch.Size([3, 4])
    """

    bias: torch.nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        improved: bool = False,
        cached: bool = False,
        add_self_loops: bool | None = None,
        normalize: bool = True,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        aggr = kwargs.pop("aggr", "add")
        super().__init__(aggr)
        self._refuse(improved, aggr, kwargs)
        require_flags("GCNConv", normalize=normalize, bias=bias)
        if add_self_loops is not None:
            require_flags("GCNConv", add_self_loops=add_self_loops)
        if add_self_loops and not normalize:
            raise ConfigurationError(
                "GCNConv got add_self_loops=True with normalize=False; expected one of them to change"
            )
        self.in_channels = in_channels = require_width("GCNConv", in_channels)
        self.out_channels = out_channels = require_count("GCNConv", "out_channels", out_channels)
        self.normalize = normalize
        self.add_self_loops = normalize if add_self_loops is None else add_self_loops
        self.lin = Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.register_parameter("bias", torch.nn.Parameter(torch.empty(out_channels)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters."""
        self.lin.reset_parameters()
        if self.bias is not None:
            self.bias.data.zero_()

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """Map rows [num_vertices, in_channels] to [num_vertices, out_channels]."""
        graph = as_edge_index(graph, x)
        edges: EdgeSet = "self_loops" if self.add_self_loops else "graph"
        x = self.lin(x)
        if self.normalize:
            scale = graph.column(f"gcn_scale@{edges}").unsqueeze(-1)  # [num_vertices, 1]
            x = self.propagate(graph, x * scale, edges) * scale
        else:
            x = self.propagate(graph, x, edges)
        return x if self.bias is None else x + self.bias

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        """Return the source's row times the edge's weight, [num_edges, out_channels]."""
        return x_j * edge_weight.unsqueeze(-1)

    @staticmethod
    def _refuse(improved: bool, aggr: str, others: dict[str, Any]) -> None:
        given = dict(others)
        if improved:
            given["improved"] = improved
        if aggr not in ("add", "sum"):
            given["aggr"] = aggr
        reasons = {
            "improved": "self-loops weigh 1; give the graph self-loops of weight 2 instead",
            "aggr": "a graph convolution is a sum; write a lotan.nn.MessagePassing of your own",
        }
        refuse_arguments("GCNConv", given, reasons)
