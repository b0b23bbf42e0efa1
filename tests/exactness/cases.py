"""Models of `lotan.nn` beside an independent form of each, and random graphs on which both must agree.

The independent form is torch_geometric's model with the same weights, or for models of one's own the same formula in
plain torch over an edge list; either is one process, one autograd graph, no planner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import functional

from lotan import nn
from lotan.graph.graph import Graph
from lotan.tracing.trace import trace_modes
from planner.spec import Spec

WIDTH, HIDDEN, OUT = 5, 6, 3


class Residual(torch.nn.Module):
    """A skip around the middle layer."""

    def __init__(self, layers=nn) -> None:
        super().__init__()
        self.first, self.second = layers.GCNConv(WIDTH, HIDDEN), layers.GCNConv(HIDDEN, HIDDEN)
        self.last = layers.SAGEConv(HIDDEN, OUT)

    def forward(self, x, graph):
        h = self.first(x, graph).relu()
        h = h + self.second(h, graph).relu()
        return self.last(h, graph)


class Twins(torch.nn.Module):
    """Two layers side by side that sum the same rows, for which parameters before them want gradients."""

    def __init__(self, layers=nn) -> None:
        super().__init__()
        self.before = torch.nn.Linear(WIDTH, HIDDEN)
        self.left = layers.SAGEConv(HIDDEN, OUT, aggr="sum")
        self.right = layers.SAGEConv(HIDDEN, OUT)

    def forward(self, x, graph):
        hidden = torch.relu(self.before(x))
        return self.left(hidden, graph) + torch.tanh(self.right(hidden, graph))


class Branches(torch.nn.Module):
    """Two branches of different layers over one input, joined with it (jumping knowledge), under LayerNorm."""

    def __init__(self, layers=nn) -> None:
        super().__init__()
        self.left, self.right = layers.SAGEConv(WIDTH, HIDDEN, aggr="max"), layers.GATConv(WIDTH, 2, heads=3)
        self.norm = torch.nn.LayerNorm(WIDTH + 2 * HIDDEN)
        self.last = torch.nn.Linear(WIDTH + 2 * HIDDEN, OUT)

    def forward(self, x, graph):
        left, right = torch.tanh(self.left(x, graph)), functional.elu(self.right(x, graph))
        return self.last(self.norm(torch.cat([x, left, right], dim=-1)))


class Shared(torch.nn.Module):
    """One layer used three times."""

    def __init__(self, layers=nn) -> None:
        super().__init__()
        self.enter, self.middle = torch.nn.Linear(WIDTH, HIDDEN), layers.GCNConv(HIDDEN, HIDDEN)
        self.leave = torch.nn.Linear(HIDDEN, OUT)

    def forward(self, x, graph):
        h = self.enter(x)
        for _ in range(3):
            h = torch.tanh(self.middle(h, graph))
        return self.leave(h)


class Difference(nn.MessagePassing):
    """A message of both ends with a parameter: sum of theta (x_j - x_i), then a gate by the vertex's own row."""

    def __init__(self) -> None:
        super().__init__("mean")
        self.theta = torch.nn.Linear(WIDTH, OUT)

    def forward(self, x, graph):
        return self.propagate(graph, x)

    def message(self, x_j, x_i, edge_weight):
        return torch.tanh(self.theta(x_j - x_i)) * edge_weight.unsqueeze(-1)

    def update(self, aggregated, x):
        return aggregated * torch.sigmoid(x[:, :OUT])


class PlainDifference(torch.nn.Module):
    """`Difference` in plain torch."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = torch.nn.Linear(WIDTH, OUT)

    def forward(self, x, edge_index, weight):
        src, dst = edge_index
        messages = torch.tanh(self.theta(x[src] - x[dst])) * weight.unsqueeze(-1)
        total = x.new_zeros(len(x), OUT).index_add(0, dst, messages)
        count = torch.bincount(dst, minlength=len(x)).clamp(min=1).unsqueeze(-1)
        return total / count * torch.sigmoid(x[:, :OUT])


class Kernel(nn.MessagePassing):
    """Arithmetic of both ends without parameters: the mean of W x_j times a function of place_j - place_i and the weight."""

    def __init__(self) -> None:
        super().__init__("mean")
        self.project, self.place = torch.nn.Linear(WIDTH, OUT), torch.nn.Linear(WIDTH, 1)

    def forward(self, x, graph):
        return self.propagate(graph, x)

    def message(self, x_j, x_i, edge_weight):
        return self.project(x_j) * nearness(self.place(x_j) - self.place(x_i)) * edge_weight.unsqueeze(-1)


class Contrast(nn.MessagePassing):
    """A narrow message that is summed as it is: tanh(W x_j - W x_i) / (1 + exp(W x_i))."""

    def __init__(self) -> None:
        super().__init__("sum")
        self.project = torch.nn.Linear(WIDTH, OUT)

    def forward(self, x, graph):
        return self.propagate(graph, x)

    def message(self, x_j, x_i):
        return contrast(self.project(x_j), self.project(x_i))


class OnEdges(torch.nn.Module):
    """Both, with a parameter of its own behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.contrast, self.scale = Kernel(), Contrast(), torch.nn.Parameter(torch.full((OUT,), 0.5))

    def forward(self, x, graph):
        return self.kernel(x, graph) + self.scale * self.contrast(x, graph)


class PlainOnEdges(OnEdges):
    """`OnEdges` in plain torch."""

    def forward(self, x, edge_index, weight):
        (src, dst), place, project = edge_index, self.kernel.place(x), self.kernel.project(x)
        near = nearness(place[src] - place[dst]) * weight.unsqueeze(-1)
        total = x.new_zeros(len(x), OUT).index_add(0, dst, project[src] * near)
        mean = total / torch.bincount(dst, minlength=len(x)).clamp(min=1).unsqueeze(-1)
        h = self.contrast.project(x)
        return mean + self.scale * x.new_zeros(len(x), OUT).index_add(0, dst, contrast(h[src], h[dst]))


class Slope(nn.MessagePassing):
    """Arithmetic of the features themselves: W times the sum of tanh(x_j - x_i) x_j."""

    def __init__(self) -> None:
        super().__init__("sum")
        self.project = torch.nn.Linear(WIDTH, OUT)

    def forward(self, x, graph):
        return self.project(self.propagate(graph, x))

    def message(self, x_j, x_i):
        return torch.tanh(x_j - x_i) * x_j


class PlainSlope(torch.nn.Module):
    """`Slope` in plain torch."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(WIDTH, OUT)

    def forward(self, x, edge_index):
        src, dst = edge_index
        return self.project(torch.zeros_like(x).index_add(0, dst, torch.tanh(x[src] - x[dst]) * x[src]))


class Hops(nn.MessagePassing):
    """A map of x, of its weighted sum over neighbours, and of a sum over theirs behind wider and narrower maps.

    Then maps of two further sums, the second over the first.
    """

    def __init__(self) -> None:
        super().__init__("sum")
        self.none, self.one = torch.nn.Linear(WIDTH, 2 * HIDDEN), torch.nn.Linear(WIDTH, 2 * HIDDEN)
        self.wide, self.narrow = torch.nn.Linear(WIDTH, 2 * HIDDEN, bias=False), torch.nn.Linear(2 * HIDDEN, OUT)
        self.far = torch.nn.Linear(2 * HIDDEN, OUT)

    def forward(self, x, graph):
        once = self.propagate(graph, x)
        twice = self.propagate(graph, self.wide(once) / (1 + x[:, :1] * x[:, :1]))
        h = torch.relu(self.none(x) + self.one(once) + twice)
        near = self.propagate(graph, h)
        return self.narrow(near) + self.far(self.propagate(graph, near))

    def message(self, x_j, edge_weight):
        return x_j * edge_weight.unsqueeze(-1)


class PlainHops(Hops):
    """`Hops` in plain torch."""

    def forward(self, x, edge_index, weight):
        src, dst = edge_index

        def total(rows):
            return rows.new_zeros(rows.shape).index_add(0, dst, rows[src] * weight.unsqueeze(-1))

        once = total(x)
        twice = total(self.wide(once) / (1 + x[:, :1] * x[:, :1]))
        near = total(torch.relu(self.none(x) + self.one(once) + twice))
        return self.narrow(near) + self.far(total(near))


def nearness(distance: Tensor) -> Tensor:
    return torch.exp(-(distance * distance)) / (torch.relu(distance) + 1.0) + torch.sigmoid(distance) * 0.5


def contrast(a: Tensor, b: Tensor) -> Tensor:
    return torch.tanh(a - b) / (torch.exp(b) + 1.0)


@dataclass(frozen=True)
class Case:
    """A model in both forms. `weights` says whether the independent form takes edge weights."""

    ours: Callable[[], torch.nn.Module]
    truth: Callable[[], torch.nn.Module]
    weights: bool = False


def _stock(name: str, weights: bool = False, **arguments) -> Case:
    sizes = {"in_channels": WIDTH, "hidden_channels": HIDDEN, "num_layers": 2, "out_channels": OUT}
    return Case(
        lambda: getattr(nn, name)(**sizes | arguments), lambda: getattr(pyg, name)(**sizes | arguments), weights
    )


CASES: Mapping[str, Case] = {
    "GCN": _stock("GCN", weights=True),
    "GCN, three layers, jumping": _stock("GCN", weights=True, num_layers=3, jk="cat"),
    "GraphSAGE": _stock("GraphSAGE"),
    "GraphSAGE, max": _stock("GraphSAGE", aggr="max"),
    "GraphSAGE, sum, projected": _stock("GraphSAGE", aggr="sum", project=True),
    "GIN": _stock("GIN", train_eps=True),
    "GAT": _stock("GAT", heads=2),
    "MLP": Case(lambda: nn.MLP([WIDTH, HIDDEN, OUT], norm=None), lambda: pyg.MLP([WIDTH, HIDDEN, OUT], norm=None)),
    "residual": Case(Residual, lambda: Residual(pyg)),
    "branches": Case(Branches, lambda: Branches(pyg)),
    "twins": Case(Twins, lambda: Twins(pyg)),
    "shared layer": Case(Shared, lambda: Shared(pyg)),
    "own layer": Case(Difference, PlainDifference, weights=True),
    "hops": Case(Hops, PlainHops, weights=True),
}

EDGE_CASES: Mapping[str, Case] = {
    "GAT, one head": _stock("GAT", heads=1),
    "GAT, four heads": _stock("GAT", heads=4, hidden_channels=8),
    "GAT, four heads, averaged": Case(
        lambda: nn.GATConv(WIDTH, OUT, heads=4, concat=False, add_self_loops=False, residual=True),
        lambda: pyg.GATConv(WIDTH, OUT, heads=4, concat=False, add_self_loops=False, residual=True),
    ),
    "arithmetic on edges": Case(OnEdges, PlainOnEdges, weights=True),
    "arithmetic of features": Case(Slope, PlainSlope),
    "GraphSAGE, min": _stock("GraphSAGE", aggr="min"),
}
"""More models whose messages need no parameter on edges, but more than sums of rows."""

EVERY = {**CASES, **EDGE_CASES}


@cache
def specs(name: str) -> tuple[Spec, Spec]:
    """The traced model in training and in evaluation mode; what is traced does not depend on weights or graph."""
    return trace_modes(EVERY[name].ours(), WIDTH)


def models(name: str, seed: int) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Both forms with the same weights."""
    torch.manual_seed(seed)
    ours, truth = EVERY[name].ours(), EVERY[name].truth()
    truth.load_state_dict(ours.state_dict())
    return ours, truth


@dataclass(frozen=True)
class Sample:
    """A random graph with labels, for Lotan and as tensors in the order of its sorted ids."""

    graph: Graph
    x: Tensor  # float32 [vertices, WIDTH]
    edge_index: Tensor  # int64 [2, edges]
    weight: Tensor  # float32 [edges], ones without weights
    weighted: bool
    label: Tensor  # int64 [vertices]
    split: np.ndarray  # int8 [vertices]


def sample(seed: int, vertices: int = 14, edges: int = 30, weighted: bool = False, directed: bool = True) -> Sample:
    """Isolated vertices, self-loops, parallel edges, and a hub with half of all edges."""
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, max(1, vertices - 2), (2, edges))
    dst[: edges // 2] = 0
    if edges >= 8:
        src[-2:], dst[-2:] = (1, 2), (1, 2)  # self-loops
        src[-4:-2], dst[-4:-2] = 3, 4  # parallel
    if not directed:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    if weighted:  # torch_geometric keeps the weight of one of several self-loops of a vertex, which one is not defined
        _, first = np.unique(np.stack([src, dst]), axis=1, return_index=True)
        keep = (src != dst) | np.isin(np.arange(len(src)), first)
        src, dst = src[keep], dst[keep]
    weight = (random.random(len(src)) + 0.5).astype(np.float32) if weighted else None
    x = random.normal(size=(vertices, WIDTH)).astype(np.float32)
    label = random.integers(0, OUT, vertices)
    split = random.choice(np.array([0, 1, 2, -1], dtype=np.int8), vertices)
    split[0] = 0
    graph = Graph.from_arrays(x, src, dst, label, split, weight)
    ones = np.ones(len(src), dtype=np.float32) if weight is None else weight
    index = torch.from_numpy(np.stack([src, dst]).astype(np.int64))
    return Sample(graph, torch.from_numpy(x), index, torch.from_numpy(ones), weighted, torch.from_numpy(label), split)


def trained_on(drawn: Sample, rows: Sequence[int] | np.ndarray) -> Sample:
    """The same graph with other training vertices."""
    split = np.where(drawn.split == 0, -1, drawn.split).astype(np.int8)
    split[rows] = 0
    given = drawn.graph.arrays()
    graph = Graph.from_arrays(given.features, given.src, given.dst, given.label, split, given.weight)
    return replace(drawn, graph=graph, split=split)


def thinned(drawn: Sample, left: int) -> Sample:
    """The same graph, of whose features so many numbers are not zero."""
    x = np.zeros_like(drawn.x.numpy())
    places = np.random.default_rng(0).choice(x.size, left, replace=False)
    x.flat[places] = drawn.x.numpy().flat[places]
    given = drawn.graph.arrays()
    graph = Graph.from_arrays(x, given.src, given.dst, given.label, given.split, given.weight)
    return replace(drawn, graph=graph, x=torch.from_numpy(x))


def named(graph: Graph) -> Graph:
    """The same graph with strings as ids, which sort as the numbers do."""
    given = graph.arrays()
    names = np.array([f"v{number:02d}" for number in given.ids])
    ends = names[given.src], names[given.dst]
    return Graph.from_arrays(given.features, *ends, given.label, given.split, given.weight, ids=names)


@dataclass
class Trained:
    """Three steps of gradient descent."""

    losses: list[float]
    gradients: list[dict[str, Tensor]]
    weights: dict[str, Tensor]
    evaluated: dict[str, Tensor] = field(
        default_factory=dict
    )  # by when: float64 [splits, 2], sums of losses and vertices


STEPS, RATE = 3, 0.05


def train_truth(
    name: str,
    model: torch.nn.Module,
    drawn: Sample,
    dtype: torch.dtype = torch.float32,
    order: int = 0,
    steps: int = STEPS,
) -> Trained:
    """Plain autograd, full batch; of a copy of the model, in `dtype`; each `order` takes the edges in another order."""
    shuffled = torch.randperm(len(drawn.weight), generator=torch.Generator().manual_seed(order))
    edge_index, weight = drawn.edge_index[:, shuffled], drawn.weight.to(dtype)[shuffled]
    model, x = deepcopy(model).to(dtype), drawn.x.to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    rows = torch.from_numpy(drawn.split == 0)
    losses, gradients = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        arguments = (x,) if name == "MLP" else (x, edge_index)
        out = model(*arguments, weight) if EVERY[name].weights else model(*arguments)
        loss = functional.cross_entropy(out[rows], drawn.label[rows])
        loss.backward()
        losses.append(loss.item())
        gradients.append({key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None})
        optimizer.step()
    return Trained(losses, gradients, {key: p.detach().clone() for key, p in model.named_parameters()})
