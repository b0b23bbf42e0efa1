"""Models as users write them, for tests of tracing: skips, branches, shared layers, own layers, many operators."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lotan.nn import EdgeIndex, GCNConv, MessagePassing, SAGEConv
from tests.nn.own_layers import Moments, SoftmaxPool, Weighted


class Residual(torch.nn.Module):
    """Skips, and all layers concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = torch.nn.Linear(6, 8)
        self.convs = torch.nn.ModuleList(GCNConv(8, 8) for _ in range(3))
        self.norm = torch.nn.LayerNorm(8)
        self.leave = torch.nn.Linear(24, 3)

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        x, layers = self.enter(x), []
        for conv in self.convs:
            x = x + F.dropout(F.gelu(self.norm(conv(x, graph))), 0.3, self.training)
            layers.append(x)
        return self.leave(torch.cat(layers, dim=-1))


class Branches(torch.nn.Module):
    """Two branches over the same rows, one of them through the same layer twice; parameters shared by two names."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = SAGEConv(6, 6, aggr="max")
        self.once = Weighted()
        self.left, self.right = torch.nn.Linear(6, 4), torch.nn.Linear(6, 4)
        self.right.weight = self.left.weight
        self.gate = torch.nn.Parameter(torch.tensor([0.3]))

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        first = self.twice(torch.tanh(self.twice(x, graph)), graph)
        gate = torch.sigmoid(self.gate)
        return gate * self.left(first) + (1 - gate) * self.right(self.once(x, graph))


class Pools(torch.nn.Module):
    """Layers with an `aggregate` of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.moments, self.pool = Moments(), SoftmaxPool()
        self.leave = torch.nn.Linear(18, 3)

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self.leave(self.pool(self.moments(x, graph), graph))


class Gated(MessagePassing):
    """A gate computed from both ends and the weight, and a recurrent cell as update (several rounds, same parameters)."""

    def __init__(self, width: int, rounds: int) -> None:
        super().__init__("mean")
        self.rounds = rounds
        self.gate = torch.nn.Bilinear(width, width, 1)
        self.cell = torch.nn.GRUCell(width, width)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        for _ in range(self.rounds):
            x = self.propagate(graph, x)
        return x

    def message(self, x_j: Tensor, x_i: Tensor, edge_weight: Tensor) -> Tensor:  # type: ignore[override]
        return torch.sigmoid(self.gate(x_i, x_j)) * x_j * (edge_weight * self.scale)[:, None]

    def update(self, aggregated: Tensor, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.cell(aggregated, x)


class ManyOperators(torch.nn.Module):
    """Operators of every group of the table, in spellings that tracing brings into one form."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(0)))
        self.prelu = torch.nn.PReLU(6)
        self.act = torch.nn.ReLU(inplace=True)
        self.group = torch.nn.GroupNorm(2, 6)

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        x = self.group(self.prelu(x)) + self.act(x * 1.0)
        heads = x.view(x.shape[0], 3, -1)  # [num_vertices, 3, 2]
        mixed = torch.einsum("nhi,hij->nhj", heads, self.weight)
        scores = torch.softmax(heads @ mixed.transpose(1, 2), dim=-1)  # [num_vertices, 3, 3]
        heads = (scores @ mixed + F.normalize(heads, dim=-1)).contiguous()
        first, second, third = heads.unbind(1)
        left, right = heads.flatten(1).split([2, 4], dim=-1)
        greatest, position = torch.stack([first, second, third], dim=-1).max(dim=-1)
        gated = torch.where(position == 1, greatest, first.clamp(min=-1).detach())
        mask = (x[:, :2] > 0).float().masked_fill(second < 0, 0.25)
        ones = x.new_ones(x.shape[0], 1).expand(-1, 2)
        parts = [left, right.square().mean(-1, keepdim=True), gated, mask, ones, third.logsumexp(1)[:, None]]
        out = torch.cat(parts, 1) * torch.tensor(0.5)
        out += 0.25
        out = out.clone().mul_(2.0).sub_(0.5)
        out = out / out.std(-1, keepdim=True)
        return out.squeeze().chunk(2, dim=1)[0] - F.glu(right).sum((1,), keepdim=True)
