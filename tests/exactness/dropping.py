"""Models with dropout, on rows and on edges. No independent truth has our random numbers; all plans and engines share them."""

from __future__ import annotations

from functools import cache, partial

import torch
from torch.nn import functional

from lotan import nn
from lotan.tracing.trace import trace_modes
from planner.spec import Spec
from tests.exactness.cases import OUT, WIDTH


class Between(nn.MessagePassing):
    """A parameter between both ends of an edge: neighbours are collected on every engine."""

    def __init__(self, given: int, width: int) -> None:
        super().__init__("sum")
        self.lin = torch.nn.Linear(given, width)

    def forward(self, x, graph):
        return self.propagate(graph, x)

    def message(self, x_j, x_i):
        return torch.tanh(self.lin(x_j - x_i))


class Halves(torch.nn.Module):
    """One stage makes a column that is collected, alike in evaluation, and one that is dropped from."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = Between(WIDTH, 6), Between(6, OUT), torch.nn.Linear(6, OUT)

    def forward(self, x, graph):
        hidden = self.first(x, graph)
        dropped = functional.dropout(hidden, 0.5, self.training)
        return self.second(torch.relu(hidden), graph) + self.last(dropped)


class Masked(nn.MessagePassing):
    """A layer that leaves out edges at random while it trains, and does not scale the others."""

    def message(self, x_j, edge_weight):
        keep = torch.bernoulli(torch.ones_like(edge_weight), 0.8) if self.training else torch.ones_like(edge_weight)
        return x_j * keep.unsqueeze(-1)

    def forward(self, x, graph):
        return self.propagate(graph, x)


class Noisy(torch.nn.Module):
    """Random numbers of each distribution, on rows of vertices and of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.mask, self.last = torch.nn.Linear(WIDTH, 6), Masked("mean"), torch.nn.Linear(6, OUT)

    def forward(self, x, graph):
        hidden = torch.tanh(self.first(x))
        if self.training:
            hidden = hidden + 0.1 * torch.randn_like(hidden) * (torch.rand(x.size(0), 1) < 0.5)
            hidden = hidden * torch.bernoulli(0.5 + 0.5 * torch.sigmoid(hidden)) - torch.rand_like(hidden)
        return self.last(self.mask(hidden, graph))


DROPPING = {
    "GCN": partial(nn.GCN, WIDTH, 6, 2, OUT, dropout=0.5),
    "GAT": partial(nn.GAT, WIDTH, 6, 2, OUT, dropout=0.5, heads=2),
    "GAT, four heads": partial(nn.GAT, WIDTH, 8, 2, OUT, dropout=0.5, heads=4),
    "collected, half of it dropped": Halves,
    "noise": Noisy,
}


@cache
def dropping(name: str) -> tuple[Spec, Spec]:
    """The traced model in training and in evaluation mode."""
    return trace_modes(DROPPING[name](), WIDTH)
