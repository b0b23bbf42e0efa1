"""Models that read attributes and types of edges: as `lotan.nn.MessagePassing` layers, and as PyG's layers or plain torch.

The two forms have parameters of the same names and shapes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.utils import add_remaining_self_loops, softmax

from lotan import nn

WIDTH, ATTRIBUTES, TYPES, OUT = 5, 3, 4, 3


class GINE(nn.MessagePassing):
    """GINEConv: mlp((1 + eps) x_i + sum of relu(x_j + W e))."""

    def __init__(self) -> None:
        super().__init__("sum")
        self.lin = torch.nn.Linear(ATTRIBUTES, WIDTH)
        self.nn = torch.nn.Sequential(torch.nn.Linear(WIDTH, 6), torch.nn.ReLU(), torch.nn.Linear(6, OUT))

    def forward(self, x, graph):
        return self.propagate(graph, x)

    def message(self, x_j, edge_attr):
        return (x_j + self.lin(edge_attr)).relu()

    def update(self, aggregated, x):
        return self.nn(aggregated + 1.25 * x)


class PlainGINE(pyg.GINEConv):
    def __init__(self) -> None:
        mlp = torch.nn.Sequential(torch.nn.Linear(WIDTH, 6), torch.nn.ReLU(), torch.nn.Linear(6, OUT))
        super().__init__(mlp, eps=0.25, edge_dim=ATTRIBUTES)
        del self.eps  # a buffer
        self.eps = 0.25

    def forward(self, x, edge_index, weight, attributes, types):
        return super().forward(x, edge_index, attributes)


class Relational(nn.MessagePassing):
    """RGCNConv with aggr="sum": x_i root + bias + sum of x_j weight[type]."""

    def __init__(self, aggr: str = "sum") -> None:
        super().__init__(aggr)
        self.weight = torch.nn.Parameter(torch.empty(TYPES, WIDTH, OUT))
        self.root = torch.nn.Parameter(torch.empty(WIDTH, OUT))
        self.bias = torch.nn.Parameter(torch.zeros(OUT))
        torch.nn.init.xavier_uniform_(self.weight)
        torch.nn.init.xavier_uniform_(self.root)

    def forward(self, x, graph):
        return self.propagate(graph, x)

    def message(self, x_j, edge_type):
        return torch.bmm(x_j.unsqueeze(1), self.weight[edge_type]).squeeze(1)

    def update(self, aggregated, x):
        return aggregated + x @ self.root + self.bias


class PlainRelational(pyg.RGCNConv):
    def __init__(self, aggr: str = "sum") -> None:
        super().__init__(WIDTH, OUT, TYPES, aggr=aggr)

    def forward(self, x, edge_index, weight, attributes, types):
        return super().forward(x, edge_index, types)


class RelationalMean(Relational):
    """RGCNConv with its own aggr="mean": a mean for each relation, by masks."""

    def message(self, x_j, edge_type):
        of_type = torch.stack([(edge_type == r).to(x_j.dtype) for r in range(TYPES)], dim=-1)  # [edges, types]
        rows = of_type.unsqueeze(-1) * x_j.unsqueeze(1)  # [edges, types, WIDTH]
        return torch.cat([rows, of_type.unsqueeze(-1)], dim=-1)

    def update(self, aggregated, x):
        means = aggregated[..., :WIDTH] / aggregated[..., WIDTH:].clamp(min=1)
        return torch.einsum("vrf,rfo->vo", means, self.weight) + x @ self.root + self.bias


class EdgeConditioned(nn.MessagePassing):
    """NNConv: the mean of x_j Theta(e), weighted, with the weights of both kinds and an embedding of the type."""

    def __init__(self) -> None:
        super().__init__("mean")
        self.net = torch.nn.Linear(ATTRIBUTES, WIDTH * OUT)
        self.kinds = torch.nn.Embedding(TYPES, OUT)

    def forward(self, x, graph):
        return self.propagate(graph, x)

    def message(self, x_j, x_i, edge_weight, edge_attr, edge_type):
        return conditioned(self, x_j, x_i, edge_weight, edge_attr, edge_type)


def conditioned(layer, x_j, x_i, weight, attributes, types):
    theta = layer.net(attributes).view(-1, WIDTH, OUT)
    messages = torch.matmul((x_j - x_i).unsqueeze(1), theta).squeeze(1) + layer.kinds(types)
    return torch.tanh(messages) * weight.unsqueeze(-1)


class PlainEdgeConditioned(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(ATTRIBUTES, WIDTH * OUT)
        self.kinds = torch.nn.Embedding(TYPES, OUT)

    def forward(self, x, edge_index, weight, attributes, types):
        src, dst = edge_index
        messages = conditioned(self, x[src], x[dst], weight, attributes, types)
        count = torch.bincount(dst, minlength=len(x)).clamp(min=1).unsqueeze(-1)
        return x.new_zeros(len(x), OUT).index_add(0, dst, messages) / count


class Looped(nn.MessagePassing):
    """Attention over x_j and attributes, with a self-loop at every vertex whose attributes are filled in."""

    def __init__(self, fill: float | str = 1.0, loop_type: int = 1) -> None:
        super().__init__("sum")
        self.fill, self.loop_type = fill, loop_type
        self.lin = torch.nn.Linear(WIDTH, OUT)
        self.lin_edge = torch.nn.Linear(ATTRIBUTES, OUT)
        self.att = torch.nn.Parameter(torch.randn(TYPES, OUT))

    def forward(self, x, graph):
        return self.propagate(graph, self.lin(x), "self_loops", fill_value=self.fill, loop_type=self.loop_type)

    def message(self, x_j, x_i, edge_weight, edge_attr, edge_type):
        rows = torch.nn.functional.leaky_relu(x_j + x_i + self.lin_edge(edge_attr), 0.2)
        scores = (rows * self.att[edge_type]).sum(-1) * edge_weight
        return self.softmax(scores).unsqueeze(-1) * x_j


class PlainLooped(torch.nn.Module):
    def __init__(self, fill: float | str = 1.0, loop_type: int = 1) -> None:
        super().__init__()
        self.fill, self.loop_type = fill, loop_type
        self.lin = torch.nn.Linear(WIDTH, OUT)
        self.lin_edge = torch.nn.Linear(ATTRIBUTES, OUT)
        self.att = torch.nn.Parameter(torch.randn(TYPES, OUT))

    def forward(self, x, edge_index, weight, attributes, types):
        count = len(x)
        index, attributes = add_remaining_self_loops(edge_index, attributes, self.fill, count)
        _, weight = add_remaining_self_loops(edge_index, weight, 1.0, count)
        _, types = add_remaining_self_loops(edge_index, types, self.loop_type, count)
        x = self.lin(x)
        src, dst = index
        rows = torch.nn.functional.leaky_relu(x[src] + x[dst] + self.lin_edge(attributes), 0.2)
        scores = (rows * self.att[types]).sum(-1) * weight
        messages = softmax(scores, dst, num_nodes=count).unsqueeze(-1) * x[src]
        return x.new_zeros(count, OUT).index_add(0, dst, messages)


class Deep(torch.nn.Module):
    """Two layers, of which the second reads the first's rows and the same edges."""

    def __init__(self, first: torch.nn.Module, second: torch.nn.Module) -> None:
        super().__init__()
        self.first, self.between, self.second = first, torch.nn.Linear(OUT, WIDTH), second

    def forward(self, x: Tensor, *graph: Tensor) -> Tensor:
        return self.second(torch.tanh(self.between(self.first(x, *graph))), *graph)


PAIRS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[], torch.nn.Module]]] = {
    "GINE": (GINE, PlainGINE),
    "RGCN sum": (Relational, PlainRelational),
    "RGCN mean": (RelationalMean, lambda: PlainRelational("mean")),
    "edge-conditioned": (EdgeConditioned, PlainEdgeConditioned),
    "loops": (Looped, PlainLooped),
    "loops mean": (lambda: Looped("mean", 0), lambda: PlainLooped("mean", 0)),
    "loops add": (lambda: Looped("add"), lambda: PlainLooped("add")),
    "loops max": (lambda: Looped("max"), lambda: PlainLooped("max")),
    "loops min": (lambda: Looped("min"), lambda: PlainLooped("min")),
    "deep": (lambda: Deep(GINE(), EdgeConditioned()), lambda: Deep(PlainGINE(), PlainEdgeConditioned())),
}
