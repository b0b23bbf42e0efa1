"""Layers that add self-loops to dropped edges (DropEdge), against PyG and autograd with the same masks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
import torch_geometric.utils
from torch import Tensor
from torch.nn import functional as F

import lotan
from lotan.errors import ModelError
from lotan.graph.row_keys import edge_keys, occurrences
from lotan.stages.randomness import Randomness, random_rows
from tests.training.test_trainer import CLASSES, VERTICES, WIDTH

P, EPOCHS, SEED, RATE = 0.4, 3, 5, 0.3
GIVEN = np.random.default_rng(3)


class Two(torch.nn.Module):
    """Two layers that add self-loops."""

    def __init__(self, kind: Callable[..., torch.nn.Module] = pyg.GCNConv, **options: Any) -> None:
        super().__init__()
        self.first, self.second = kind(WIDTH, 8, **options), kind(8, CLASSES, **options)

    def dropped(self, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = torch_geometric.utils.dropout_edge(edge_index, p=P, training=self.training)
        return found


class OneMask(Two):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index, _ = self.dropped(edge_index)
        return self.second(self.first(x, edge_index).relu(), edge_index)


class MaskForEach(Two):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.first(x, self.dropped(edge_index)[0]).relu()
        return self.second(x, self.dropped(edge_index)[0])


class Weighted(Two):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        edge_index, mask = self.dropped(edge_index)
        x = self.first(x, edge_index, edge_weight[mask]).relu()
        return self.second(x, edge_index, edge_weight[mask])


class BesideOthers(Two):
    """One mask for a layer that adds self-loops and for one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.second = pyg.SAGEConv(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index, _ = self.dropped(edge_index)
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Attention(OneMask):
    def __init__(self) -> None:
        super().__init__(pyg.GATConv)


def _graph(weighted: bool) -> lotan.Graph:
    src, dst = GIVEN.integers(0, VERTICES, size=(2, 240))
    loops = GIVEN.integers(0, VERTICES, size=20)  # some vertices have several
    ends = np.stack([np.concatenate([src, loops]), np.concatenate([dst, loops])])
    return lotan.Graph.from_arrays(
        GIVEN.normal(size=(VERTICES, WIDTH)).astype(np.float32),
        edge_index=ends,
        label=GIVEN.integers(0, CLASSES, VERTICES),
        split=np.zeros(VERTICES, np.int8),
        weight=GIVEN.random(ends.shape[1]).astype(np.float32) + 0.5 if weighted else None,
    )


def _trainer(model: torch.nn.Module, graph: lotan.Graph, **own: Any) -> lotan.Trainer:
    settings = {"engine": "local", "progress": False, "epochs": EPOCHS, "seed": SEED, "optimizer": lotan.SGD(lr=RATE)}
    return lotan.Trainer(model, graph, **{**settings, **own})


def _made(kind: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(0)
    return kind()


def _masks(trainer: lotan.Trainer, epoch: int) -> Iterator[Tensor]:
    """Yield the masks of an epoch as Lotan draws them, for the edges in the order of the graph's arrays."""
    arrays = trainer.graph.arrays()
    ends = arrays.keys[arrays.src], arrays.keys[arrays.dst]
    rows = torch.from_numpy(edge_keys(*ends, occurrences(arrays.src, arrays.dst)))
    calls = trainer.job.train.calls
    keys = {call.draw: number for number, call in reversed(list(enumerate(calls))) if call.draw}
    for key in sorted(keys.values()):
        drawn = random_rows(torch.zeros(len(rows)), "uniform", 0.0, Randomness(SEED, epoch), key, rows)
        yield drawn >= P


@pytest.mark.parametrize("kind", [OneMask, MaskForEach, Weighted, BesideOthers, Attention])
def test_losses_are_those_of_pyg_with_the_same_masks(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, theirs = _graph(kind is Weighted), _made(kind)
    trainer = _trainer(_made(kind), graph)
    masks = [[*_masks(trainer, epoch)] for epoch in range(1, EPOCHS + 1)]
    assert all(len(one) == (2 if kind is MaskForEach else 1) for one in masks)
    ours = [row["loss"] for row in trainer.fit().history]

    arrays = graph.arrays()
    edge_index = torch.from_numpy(np.stack([arrays.src, arrays.dst]))
    x, label = torch.from_numpy(arrays.features), torch.from_numpy(arrays.label)
    weight = [] if arrays.weight is None else [torch.from_numpy(arrays.weight)]
    optimizer, losses = torch.optim.SGD(theirs.parameters(), lr=RATE), []
    for of_epoch in masks:
        left = iter(of_epoch)

        def drop(given: Tensor, left: Iterator[Tensor] = left, **_: Any) -> tuple[Tensor, Tensor]:
            mask = next(left)
            return given[:, mask], mask

        monkeypatch.setattr(torch_geometric.utils, "dropout_edge", drop)
        optimizer.zero_grad()
        loss = F.cross_entropy(theirs(x, edge_index, *weight), label)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert ours == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("own", [{"plan": "general"}, {"chunk_rows": 7}], ids=str)
def test_every_plan_drops_the_same_edges(own: dict[str, Any]) -> None:
    graph = _graph(True)
    usual, other = (_trainer(_made(Weighted), graph, **more).fit().history for more in ({}, own))
    assert [row["loss"] for row in other] == pytest.approx([row["loss"] for row in usual], rel=1e-5)


def test_one_draw_for_both_directions_is_refused() -> None:
    class BothWays(Two):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            edge_index, _ = self.dropped(edge_index)
            return self.second(self.first(x, edge_index).relu(), edge_index.flip(0))

    with pytest.raises(ModelError, match="turned round"):
        _trainer(BothWays(), _graph(False)).explain()
