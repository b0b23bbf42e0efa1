"""Layers as users write them."""

from __future__ import annotations

import torch
from torch import Tensor

from lotan.nn import EdgeIndex, Edges, MessagePassing, aggregate, edge_softmax


class Weighted(MessagePassing):
    """x_i + sum of w_ji (x_j - x_i): every argument that there is."""

    def forward(self, x: Tensor, graph: EdgeIndex | Tensor) -> Tensor:
        return self.propagate(graph, x)

    def message(self, x_j: Tensor, x_i: Tensor, edge_weight: Tensor) -> Tensor:  # type: ignore[override]
        return (x_j - x_i) * edge_weight.unsqueeze(-1)

    def update(self, aggregated: Tensor, x: Tensor) -> Tensor:  # type: ignore[override]
        return x + aggregated


class Moments(MessagePassing):
    """Mean, standard deviation and maximum of the neighbours, side by side."""

    def forward(self, x: Tensor, graph: EdgeIndex | Tensor) -> Tensor:
        return self.propagate(graph, x)

    def aggregate(self, messages: Tensor, graph: Edges) -> Tensor:
        mean = aggregate(messages, graph, "mean")
        square = aggregate(messages * messages, graph, "mean")
        deviation = ((square - mean * mean).clamp(min=0) + 1e-5).sqrt()
        return torch.cat([mean, deviation, aggregate(messages, graph, "max")], dim=-1)


class SoftmaxPool(MessagePassing):
    """A sum weighted by a softmax of the messages themselves, with a learnt temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = torch.nn.Parameter(torch.tensor(0.7))

    def forward(self, x: Tensor, graph: EdgeIndex | Tensor) -> Tensor:
        return self.propagate(graph, x)

    def aggregate(self, messages: Tensor, graph: Edges) -> Tensor:
        return aggregate(messages * edge_softmax(messages * self.temperature, graph), graph, "sum")
