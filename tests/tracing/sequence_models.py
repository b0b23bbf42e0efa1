"""Models with recurrent layers over a row's own sequence, and with rows in another dimension than the first."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch_geometric.nn import GCNConv, MessagePassing
    from torch_geometric.utils import softmax

WIDTH, HIDDEN, CLASSES = 6, 8, 3


class Model(torch.nn.Module):
    """A convolution, a function of its rows [num_vertices, 8] and of the model, and a linear map of what that returns."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor], **parts: Any) -> None:
        super().__init__()
        self.conv, self.last = GCNConv(WIDTH, HIDDEN), torch.nn.Linear(HIDDEN, CLASSES)
        self.function = function
        for name, part in parts.items():
            setattr(self, name, torch.nn.Parameter(part) if isinstance(part, Tensor) else part)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.function(self, self.conv(x, edge_index)))


class Stacked(MessagePassing):
    """Message passing on rows [2, num_vertices, channels], with a softmax for each of the two."""

    def __init__(self) -> None:
        super().__init__(aggr="add", node_dim=-2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, edge_weight=edge_weight)

    def message(self, x_j: Tensor, x_i: Tensor, edge_weight: Tensor, index: Tensor, size_i: int) -> Tensor:
        share = softmax((x_j * x_i).sum(-1), index, num_nodes=size_i, dim=1)
        return share.unsqueeze(-1) * x_j * edge_weight.view(-1, 1)


class Stacks(torch.nn.Module):
    """Two stacks of channels that meet along edges: by PyG's layer, by index_select and index_add, and by scatter_add."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.layer = torch.nn.Parameter(torch.randn(2, WIDTH, 4)), Stacked()
        self.last = torch.nn.Linear(4, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        h = self.layer(x @ self.weight, edge_index, edge_weight).relu()
        row, col = edge_index
        out = torch.zeros_like(h).index_add_(1, col, h.index_select(1, row) * edge_weight[None, :, None])
        out = out + torch.zeros_like(h).scatter_add_(1, col.view(1, -1, 1).expand(2, -1, 4), h[:, row])
        return self.last(out.mean(0))


def beside(h: Tensor) -> list[Tensor]:
    """Return the steps of a sequence."""
    return [h, h.relu(), h.tanh()]


def lstm(**settings: Any) -> torch.nn.LSTM:
    """Return an LSTM of width 8."""
    return torch.nn.LSTM(HIDDEN, HIDDEN, **settings)


RECURRENT: dict[str, Callable[[], torch.nn.Module]] = {
    "LSTM, its last output": lambda: Model(
        lambda m, h: m.lstm(torch.stack(beside(h), 1))[0][:, -1], lstm=lstm(batch_first=True)
    ),
    "LSTM of two layers, its hidden state": lambda: Model(
        lambda m, h: m.lstm(torch.stack(beside(h), 1))[1][0][-1], lstm=lstm(num_layers=2, batch_first=True)
    ),
    "LSTM both ways, its cells": lambda: Model(
        lambda m, h: m.lstm(torch.stack(beside(h), 1))[1][1].sum(0),
        lstm=lstm(bidirectional=True, batch_first=True, bias=False),
    ),
    "LSTM with the steps first": lambda: Model(lambda m, h: m.lstm(torch.stack(beside(h)))[0][-1], lstm=lstm()),
    "LSTM from states": lambda: Model(
        lambda m, h: m.lstm(h[None], (torch.zeros(1, h.size(0), 8), h.tanh()[None]))[0][0], lstm=lstm(bias=False)
    ),
    "GRU both ways": lambda: Model(
        lambda m, h: m.gru(torch.stack(beside(h), 1))[0].mean(1),
        gru=torch.nn.GRU(HIDDEN, 4, num_layers=2, bidirectional=True, batch_first=True),
    ),
    "RNN from a state": lambda: Model(
        lambda m, h: m.rnn(torch.stack(beside(h), 1), h[None] + torch.zeros(1, h.size(0), 8))[0][:, 1],
        rnn=torch.nn.RNN(HIDDEN, HIDDEN, nonlinearity="relu", batch_first=True),
    ),
    "LSTMCell": lambda: Model(
        lambda m, h: m.cell(h, (h.relu(), m.cell(h)[1]))[0], cell=torch.nn.LSTMCell(HIDDEN, HIDDEN)
    ),
}

MOVED: dict[str, Callable[[], torch.nn.Module]] = {
    "mean of a stack": lambda: Model(lambda m, h: torch.stack(beside(h)).mean(0)),
    "greatest of a stack": lambda: Model(lambda m, h: torch.stack(beside(h)).max(0)[0]),
    "weighted sum": lambda: Model(
        lambda m, h: (torch.stack(beside(h)) * m.share.softmax(0).view(3, 1, 1)).sum(dim=0), share=torch.randn(3)
    ),
    "softmax over a stack": lambda: Model(
        lambda m, h: (torch.stack(beside(h)).softmax(0) * torch.stack(beside(h)[::-1])).sum(0)
    ),
    "stacks of products": lambda: Model(
        lambda m, h: torch.matmul((h @ m.first + m.bias).tanh(), m.second).mean(0),
        first=torch.randn(2, 8, 5),
        bias=torch.randn(2, 1, 5),
        second=torch.randn(2, 5, 8),
    ),
    "einsum": lambda: Model(
        lambda m, h: torch.einsum("knc,kcd->nd", h @ m.first, m.second),
        first=torch.randn(2, 8, 5),
        second=torch.randn(2, 5, 8),
    ),
    "permuted heads": lambda: Model(
        lambda m, h: h.view(-1, 2, 4).permute(1, 0, 2).softmax(0).permute(1, 2, 0).reshape(-1, 8)
    ),
    "products of heads": lambda: Model(
        lambda m, h: (lambda q: (q @ q.transpose(2, 3)).softmax(-1) @ q)(h.view(1, -1, 2, 4).relu())[0].flatten(1)
    ),
    "matrix on the left": lambda: Model(lambda m, h: (m.left @ h.t()).T, left=torch.randn(8, 8)),
    "layer norm": lambda: Model(lambda m, h: m.norm(torch.stack(beside(h))).sum(0), norm=torch.nn.LayerNorm(8)),
    "joined and split": lambda: Model(
        lambda m, h: torch.cat(torch.cat([h[None], h[None] * 2], 0).split(1, 0), -1)[0][:, 4:12]
    ),
    "reshaped": lambda: Model(lambda m, h: torch.stack(beside(h)).view(3, -1, 2, 4).flatten(2).unbind(0)[1]),
    "expanded": lambda: Model(lambda m, h: (h.unsqueeze(0).expand(3, -1, -1) * m.by).amax(0), by=torch.randn(3, 1, 8)),
    "chosen": lambda: Model(lambda m, h: torch.where(torch.stack(beside(h)) > 0, torch.stack([h] * 3), 0.1).sum(0)),
    "dropout": lambda: Model(lambda m, h: F.dropout(torch.stack(beside(h)), 0.5, m.training).mean(0)),
    "dropout between the layers of an LSTM": lambda: Model(
        lambda m, h: m.lstm(torch.stack(beside(h)))[0][-1], lstm=lstm(num_layers=2, dropout=0.5)
    ),
    "stacks along edges": Stacks,
}
