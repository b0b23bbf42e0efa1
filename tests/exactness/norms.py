"""Models with layers that normalise over all vertices, and plain torch's training of them.

`lotan.nn`'s layers also run eagerly, on a whole graph as PyG's do. So the truth is a loop over the same module in torch,
in double precision, in which every norm runs its own code.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import norm

import lotan
from lotan.nn.edge_index import EdgeIndex

WIDTH, HIDDEN, CLASSES = 5, 6, 3
LR = 0.3


class Normalised(torch.nn.Module):
    """Two convolutions with a norm after each. The second one has a bias, which a norm over it takes off again."""

    def __init__(self, make: Callable[[int], torch.nn.Module], conv: type = lotan.nn.GCNConv) -> None:
        super().__init__()
        self.first, self.second = conv(WIDTH, HIDDEN), conv(HIDDEN, HIDDEN)
        self.norm, self.other = make(HIDDEN), make(HIDDEN)
        self.last = torch.nn.Linear(HIDDEN, CLASSES)
        torch.nn.init.constant_(self.second.bias, 3.0)

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        x = self.norm(self.first(x, graph)).relu()
        return self.last(self.other(self.second(x, graph)).tanh())


class Own(torch.nn.Module):
    """Statistics over all vertices in a forward of one's own."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last = lotan.nn.SAGEConv(WIDTH, HIDDEN), lotan.nn.GCNConv(HIDDEN, CLASSES)
        self.function = function

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        return self.last(self.function(self.first(x, graph)).tanh(), graph)


NORMS: dict[str, Callable[[int], torch.nn.Module]] = {
    "BatchNorm1d": torch.nn.BatchNorm1d,
    "BatchNorm1d, momentum 0.7": lambda width: torch.nn.BatchNorm1d(width, momentum=0.7),
    "BatchNorm1d, mean of all steps": lambda width: torch.nn.BatchNorm1d(width, momentum=None),
    "BatchNorm1d, no affine": lambda width: torch.nn.BatchNorm1d(width, affine=False),
    "BatchNorm1d, no running statistics": lambda width: torch.nn.BatchNorm1d(width, track_running_stats=False),
    "PyG BatchNorm": norm.BatchNorm,
    "InstanceNorm": norm.InstanceNorm,
    "InstanceNorm, tracked": lambda width: norm.InstanceNorm(width, affine=True, track_running_stats=True),
    "GraphNorm": norm.GraphNorm,
    "PairNorm": lambda width: norm.PairNorm(),
    "PairNorm, individually": lambda width: norm.PairNorm(scale_individually=True),
    "MeanSubtractionNorm": lambda width: norm.MeanSubtractionNorm(),
    "LayerNorm, graph": lambda width: norm.LayerNorm(width, mode="graph"),
    "DiffGroupNorm": lambda width: norm.DiffGroupNorm(width, groups=2),
}

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x - x.mean(0),
    "mean, kept": lambda x: x * torch.sigmoid(x.mean(dim=0, keepdim=True)),
    "sum": lambda x: x + 0.01 * torch.sum(x, 0),
    "variance": lambda x: x / (x.var(0) + 0.1),
    "biased variance": lambda x: x / (x.var(0, unbiased=False) + 0.1).sqrt(),
    "deviation of all": lambda x: (x - x.mean()) / (x.std(unbiased=False) + 0.1),
    "heads": lambda x: (x.view(-1, 2, 3) - x.view(-1, 2, 3).mean((0, 2))[:, None]).flatten(1),
    "of a statistic": lambda x: x * (x.mean(0) - x.mean(0).pow(2) + 1).unsqueeze(0).expand_as(x),
    "of rows of numbers": lambda x: x / (0.1 + x.pow(2).sum(-1).mean()).sqrt(),
    "products": lambda x: x.relu() @ (x.tanh().t() @ x) / 100,
    "products of parts": lambda x: (x[:, :2] @ (x[:, 2:4].transpose(0, 1) @ x)) / (1 + x.pow(2).mean(0)),
    "in place": lambda x: x.mul(2.0).sub_(x.mean(0)),
}


def model_of(name: str, seed: int = 0) -> torch.nn.Module:
    """A model by the name of its norm or of its function."""
    torch.manual_seed(seed)
    return Normalised(NORMS[name]) if name in NORMS else Own(FUNCTIONS[name])


@dataclass(frozen=True)
class Sample:
    """A random graph: with loops, doubled edges, weights if asked for, and vertices without edges."""

    x: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    label: np.ndarray
    split: np.ndarray
    weight: np.ndarray | None

    @property
    def graph(self) -> lotan.Graph:
        """The same as a graph to train on."""
        return lotan.Graph.from_arrays(self.x, self.src, self.dst, self.label, self.split, self.weight)


def sample(seed: int, vertices: int = 70, edges: int = 150, weighted: bool = True, share: float = 0.5) -> Sample:
    """A random graph, a share of whose vertices is trained on."""
    draw = np.random.default_rng(seed)
    src, dst = draw.integers(0, max(1, vertices - vertices // 8), (2, edges))
    src[: edges // 10] = dst[: edges // 10]  # loops
    src, dst = np.append(src, src[: edges // 5]), np.append(dst, dst[: edges // 5])  # doubled edges
    weight = np.where(src == dst, 1.5, draw.uniform(0.5, 2, len(src))).astype(np.float32)  # loops of a vertex are alike
    split = draw.choice(3, vertices, p=[share, (1 - share) / 2, (1 - share) / 2]).astype(np.int8)
    split[: min(3, vertices)] = np.arange(min(3, vertices))
    return Sample(
        x=(draw.normal(size=(vertices, WIDTH)) * 2 + 5).astype(np.float32),
        src=src,
        dst=dst,
        label=draw.integers(0, CLASSES, vertices),
        split=split,
        weight=weight if weighted else None,
    )


@dataclass(frozen=True)
class Truth:
    """What plain torch has after some epochs."""

    losses: list[float]  # before each step
    states: list[dict[str, Tensor]]  # after each step: parameters and buffers
    evaluations: list[dict[str, float]]  # after each step: the loss of each split, in evaluation mode

    @property
    def state(self) -> dict[str, Tensor]:
        """The last state."""
        return self.states[-1]


def truth(model: torch.nn.Module, drawn: Sample, epochs: int = 3, dtype: torch.dtype = torch.float64) -> Truth:
    """Train a copy of a model by SGD in plain torch."""
    model = deepcopy(model).to(dtype)
    x, label = torch.from_numpy(drawn.x).to(dtype), torch.from_numpy(drawn.label)
    weight = None if drawn.weight is None else torch.from_numpy(drawn.weight).to(dtype)
    index = torch.from_numpy(np.stack([drawn.src, drawn.dst]))
    graph = EdgeIndex(index, weight, num_vertices=len(x), dtype=dtype)
    rows = {name: torch.from_numpy(drawn.split == at) for at, name in enumerate(("train", "val", "test"))}
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    found = Truth([], [], [])
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x, graph)[rows["train"]], label[rows["train"]])
        loss.backward()
        optimizer.step()
        found.losses.append(loss.item())
        found.states.append({name: value.detach().clone() for name, value in model.state_dict().items()})
        model.eval()
        with torch.no_grad():
            logits = model(x, graph)
        entropy = torch.nn.functional.cross_entropy
        found.evaluations.append({name: entropy(logits[at], label[at]).item() for name, at in rows.items()})
    return found
