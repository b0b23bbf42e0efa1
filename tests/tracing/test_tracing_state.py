"""Models whose forward keeps something, branches on few rows, or has hooks on gradients: refused, and never trained otherwise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

import lotan

pytestmark = pytest.mark.thorough


def graph(vertices: int = 12, edges: int = 30) -> lotan.Graph:
    random = np.random.default_rng(0)
    return lotan.Graph.from_arrays(
        random.standard_normal((vertices, 4)),
        *random.integers(0, vertices, (2, edges)),
        label=np.arange(vertices) % 2,
        split=np.zeros(vertices, dtype=int),
    )


class Based(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.alone = pyg.SAGEConv(4, 2), torch.nn.Linear(4, 2)
        self.register_buffer("factor", torch.ones(2))
        self.calls = 0

    def forward(self, x, edge_index):
        return self.conv(x, edge_index) * self.factor


class Assigning(Based):
    def forward(self, x, edge_index):
        self.factor = self.factor * 0.5
        return super().forward(x, edge_index)


class Counting(Based):
    def forward(self, x, edge_index):
        self.calls += 1
        return super().forward(x, edge_index)


class OnNoEdges(Based):
    def forward(self, x, edge_index):
        return self.alone(x) if edge_index.numel() == 0 else self.conv(x, edge_index)


class OnOneVertex(Based):
    def forward(self, x, edge_index):
        return self.alone(x) if x.size(0) == 1 else self.conv(x, edge_index)


class OnTwoVertices(Based):
    def forward(self, x, edge_index):
        return self.alone(x) if x.size(0) <= 2 else self.conv(x, edge_index)


def fit(model: torch.nn.Module, on: lotan.Graph) -> None:
    lotan.Trainer(model, on, epochs=1, engine="local", progress=False).fit()


@pytest.mark.parametrize(("kind", "named"), [(Assigning, "factor"), (Counting, "calls")])
def test_what_forward_keeps_is_named(kind: type[torch.nn.Module], named: str) -> None:
    with pytest.raises(lotan.ModelError, match=f"forward assigns to {named}"):
        fit(kind(), graph())


BRANCHES = [(OnNoEdges, 12, 0), (OnOneVertex, 1, 4), (OnTwoVertices, 2, 4), (OnTwoVertices, 1, 0)]


@pytest.mark.parametrize(("kind", "vertices", "edges"), BRANCHES)
def test_a_branch_for_few_rows_is_refused_where_it_would_be_taken(
    kind: type[torch.nn.Module], vertices: int, edges: int
) -> None:
    with pytest.raises(lotan.ModelError, match="differs from the model itself"):
        fit(kind(), graph(vertices, edges))
    fit(kind(), graph())


@pytest.mark.parametrize(("vertices", "edges"), [(1, 0), (1, 3), (2, 1), (12, 0), (12, 2)])
def test_models_without_branches_train_on_few(vertices: int, edges: int) -> None:
    for model in (Based(), lotan.nn.GCN(4, 3, 2, 2), lotan.nn.GAT(4, 3, 2, 2)):
        fit(model, graph(vertices, edges))


def test_hooks_on_gradients_are_refused() -> None:
    model = Based()
    model.conv.lin_l.weight.register_hook(lambda gradient: gradient * 0)
    with pytest.raises(lotan.ModelError, match=r"parameter 'conv.lin_l.weight' has a hook"):
        fit(model, graph())
    model = Based()
    model.conv.register_full_backward_hook(lambda *_: None)
    with pytest.raises(lotan.ModelError, match="module 'conv' has a hook"):
        fit(model, graph())
