"""Models that reduce rows by groups of vertices, and their training by plain torch and PyG."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

import lotan

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg
    from torch_geometric.nn.attention import PerformerAttention, PolynormerAttention, SGFormerAttention
    from torch_geometric.utils import scatter, softmax

WIDTH, HIDDEN, CLASSES, GROUPS, LR = 5, 6, 3, 4, 0.05


class VirtualNode(torch.nn.Module):
    """A virtual node for each group, as in OGB's examples, with an embedding to begin with and a linear map of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.start = torch.nn.Embedding(GROUPS, HIDDEN)
        self.map = torch.nn.Sequential(torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.LayerNorm(HIDDEN), torch.nn.ReLU())

    def forward(self, h: Tensor, batch: Tensor) -> Tensor:
        h = h + self.start(batch)
        return h + self.map(pyg.global_add_pool(h, batch))[batch]


class VirtualNodeOfOGB(torch.nn.Module):
    """A virtual node for each group that begins as a row of the same embedding, written as OGB's example has it."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.map = torch.nn.Embedding(1, HIDDEN), torch.nn.Linear(HIDDEN, HIDDEN)

    def forward(self, h: Tensor, batch: Tensor) -> Tensor:
        virtual = self.start(torch.zeros(batch[-1].item() + 1).to(batch.dtype).to(batch.device))
        h = h + virtual[batch]
        return h + self.map(pyg.global_add_pool(h, batch) / 10 + virtual)[batch]


class Attention(torch.nn.Module):
    """A mean of each group, weighted by a softmax within the group."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(HIDDEN, 1)

    def forward(self, h: Tensor, batch: Tensor) -> Tensor:
        share = softmax(self.gate(h), batch)
        return h + scatter(share * h, batch, dim=0)[batch]


class Plain(torch.nn.Module):
    """Sums and greatest numbers by torch's own functions."""

    def forward(self, h: Tensor, batch: Tensor) -> Tensor:
        size = int(batch.max()) + 1
        total = torch.zeros(size, h.size(1)).index_add_(0, batch, h)
        count = torch.zeros(size).scatter_add_(0, batch, torch.ones(h.size(0)))
        return h - (total / count.view(-1, 1)).index_select(0, batch)


class Called(torch.nn.Module):
    """A function of rows and groups, whose result is spread back over the vertices."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, h: Tensor, batch: Tensor) -> Tensor:
        return h - self.function(h, batch)[batch]


BY_GROUP: dict[str, Callable[[], torch.nn.Module]] = {
    "add": lambda: Called(lambda h, batch: pyg.global_add_pool(h, batch) / 10),
    "mean": lambda: Called(pyg.global_mean_pool),
    "max": lambda: Called(pyg.global_max_pool),
    "min": lambda: Called(lambda h, batch: scatter(h, batch, dim=0, dim_size=GROUPS, reduce="min")),
    "VirtualNode": VirtualNode,
    "Attention": Attention,
    "Plain": Plain,
    "GraphNorm": lambda: pyg.GraphNorm(HIDDEN),
    "InstanceNorm": lambda: pyg.InstanceNorm(HIDDEN, affine=True),
    "LayerNorm": lambda: pyg.LayerNorm(HIDDEN, mode="graph"),
    "PairNorm": pyg.PairNorm,
    "MeanSubtractionNorm": pyg.MeanSubtractionNorm,
    "GraphSizeNorm": pyg.GraphSizeNorm,
}
"""The modules that are called with rows and `batch`."""

OF_ORDERED = {"VirtualNodeOfOGB": VirtualNodeOfOGB}
"""The modules that take the last number of `batch` for the greatest."""


class Grouped(torch.nn.Module):
    """Two layers of PyG with a reduction by group between them."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv(WIDTH, HIDDEN), pyg.SAGEConv(HIDDEN, CLASSES)
        self.between = (BY_GROUP | OF_ORDERED)[name]()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.second(self.between(self.first(x, edge_index), batch).relu(), edge_index)


class OverAll(torch.nn.Module):
    """Two layers with the greatest and the least numbers of all rows between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv(WIDTH, HIDDEN), pyg.SAGEConv(HIDDEN, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(x, edge_index)
        h = h - h.max(dim=0).values + h.amin(0) + pyg.global_max_pool(h, None) * 0.1 - h.max()
        return self.second(h.relu(), edge_index)


class Attends(torch.nn.Module):
    """Two layers of PyG with attention between all vertices, which takes them in the second dimension."""

    def __init__(self, attention: torch.nn.Module) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv(WIDTH, HIDDEN), pyg.SAGEConv(-1, CLASSES)
        self.attention = attention

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(x, edge_index)
        return self.second(self.attention(h.unsqueeze(0)).squeeze(0), edge_index)


class Local(torch.nn.Module):
    """A layer of GPS with linear attention, between two layers of PyG."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv(WIDTH, HIDDEN), pyg.SAGEConv(HIDDEN, CLASSES)
        attention = {"attn_type": "performer", "attn_kwargs": {"head_channels": 4}, "heads": 2}
        self.between = pyg.GPSConv(HIDDEN, pyg.SAGEConv(HIDDEN, HIDDEN), **attention)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.second(self.between(self.first(x, edge_index), edge_index, batch), edge_index)


def _polynormer() -> torch.nn.Module:
    dropouts = dict.fromkeys(("in_dropout", "dropout", "global_dropout"), 0.0)
    model = pyg.Polynormer(WIDTH, HIDDEN, CLASSES, local_layers=2, global_layers=2, heads=1, **dropouts)
    model._global = True
    return model


ATTENTION: dict[str, Callable[[], torch.nn.Module]] = {
    "SGFormer": lambda: pyg.SGFormer(
        WIDTH, HIDDEN, CLASSES, trans_num_heads=2, trans_dropout=0.0, gnn_num_layers=2, gnn_dropout=0.0
    ),
    "Polynormer": _polynormer,
    "GPSConv": Local,
    "SGFormerAttention": lambda: Attends(SGFormerAttention(HIDDEN, heads=2, head_channels=4)),
    "PolynormerAttention": lambda: Attends(PolynormerAttention(HIDDEN, heads=2, head_channels=4, qk_shared=False)),
    "PerformerAttention": lambda: Attends(PerformerAttention(HIDDEN, heads=2, head_channels=4)),
}
"""Models with linear attention between all vertices."""


def model_of(name: str) -> torch.nn.Module:
    """A model whose parameters have no zeros, which would hide mistakes."""
    torch.manual_seed(3)
    model = OverAll() if name == "OverAll" else ATTENTION[name]() if name in ATTENTION else Grouped(name)
    _initialise(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return model


def _initialise(model: torch.nn.Module) -> None:
    """Let lazy layers find their widths."""
    if any(isinstance(one, torch.nn.parameter.UninitializedParameter) for one in model.parameters()):
        with torch.no_grad():
            model(torch.randn(3, WIDTH), torch.tensor([[0, 1], [1, 2]]))


def grouped_graph(
    seed: int = 0,
    vertices: int = 40,
    edges: int = 140,
    grouped: bool = True,
    groups: int = GROUPS,
    ordered: bool = False,
) -> lotan.Graph:
    """Groups of different sizes, in no order unless `ordered`, on a graph with loops, parallel edges and lone vertices."""
    random = np.random.default_rng(seed)
    batch = np.concatenate([np.arange(groups), random.geometric(0.4, vertices - groups).clip(max=groups) - 1])
    return lotan.Graph.from_arrays(
        random.standard_normal((vertices, WIDTH)).astype(np.float32),
        *random.integers(0, vertices - 3, (2, edges)),
        label=random.integers(0, CLASSES, vertices),
        split=random.choice([0, 0, -1], vertices).astype(np.int8),
        batch=(np.sort if ordered else random.permutation)(batch) if grouped else None,
    )


def truth(model: torch.nn.Module, graph: lotan.Graph, epochs: int) -> tuple[list[float], dict[str, Tensor]]:
    """The losses and the weights after training by plain torch."""
    model, data = copy.deepcopy(model), graph.to_pyg()
    given = [data.x, data.edge_index] + ([data.batch] if "batch" in data else [])
    steps, losses = torch.optim.SGD(model.parameters(), lr=LR), []
    for _ in range(epochs):
        steps.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(*given)[data.train_mask], data.y[data.train_mask])
        loss.backward()
        steps.step()
        losses.append(loss.item())
    return losses, model.state_dict()
