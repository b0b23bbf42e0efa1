"""Medians and quantiles over neighbours, as PyG's aggregations take them, train exactly as in PyG."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import lotan
from tests.tracing.test_pyg_layers import assert_same_training, messy_graph, trained_by_pyg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv
    from torch_geometric.nn.aggr import MedianAggregation, QuantileAggregation


class Quantiles(torch.nn.Module):
    """A layer whose aggregation is a quantile, behind another whose gradient goes through it."""

    def __init__(self, aggr: Any, width: int = 1) -> None:
        super().__init__()
        self.first, self.second = GCNConv(6, 4), SAGEConv(4, 3, aggr=aggr)
        if width > 1:
            self.second.lin_l = torch.nn.Linear(4 * width, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).tanh(), edge_index)


class Turned(torch.nn.Module):
    """A median over heads of out-edges, of messages that attributes scale."""

    def __init__(self) -> None:
        super().__init__()
        self.median, self.lin, self.last = MedianAggregation(), torch.nn.Linear(2, 4), GATConv(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        row, col = edge_index
        h = self.median(x[col][:, :4] * self.lin(edge_attr), row, dim_size=x.size(0), dim=0)
        return self.last(h, edge_index)


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "median": lambda: Quantiles("median"),
    "linear, several": lambda: Quantiles(QuantileAggregation([0.1, 0.5, 0.8]), 3),
    "higher": lambda: Quantiles(QuantileAggregation(0.3, "higher")),
    "midpoint, filled": lambda: Quantiles(QuantileAggregation(0.75, "midpoint", fill_value=0.3)),
    "where edges begin": Turned,
}


def assert_trains_as_pyg(name: str, **settings: Any) -> None:
    torch.manual_seed(len(name))
    graph, ours = messy_graph(), MODELS[name]()
    theirs = copy.deepcopy(ours)
    run = lotan.Trainer(ours, graph, epochs=3, optimizer=lotan.SGD(lr=0.1), progress=False, **settings).fit()
    losses = trained_by_pyg(theirs, graph, torch.optim.SGD, lr=0.1)
    assert_same_training(run, losses, ours, theirs)


@pytest.mark.parametrize("name", MODELS)
def test_trains_as_in_pyg(name: str) -> None:
    assert_trains_as_pyg(name, engine="local")


def test_explain_says_why_neighbourhoods_are_collected() -> None:
    shown = lotan.Trainer(MODELS["median"](), messy_graph(), engine="local", progress=False).explain(stage="all")
    assert "sorts messages, which only stages do" in " ".join(shown.split())


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("engine", ["blocks", "rows"])
def test_trains_as_in_pyg_on_spark(engine: str, spark: object) -> None:
    assert_trains_as_pyg("linear, several", engine=engine, partitions=3)
