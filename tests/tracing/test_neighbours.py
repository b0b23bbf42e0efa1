"""Aggregations that put neighbours side by side, such as LSTMAggregation, train exactly as in PyG."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import lotan
from lotan.errors import ConfigurationError, GraphError, ModelError
from planner import neighbours
from tests.tracing.test_pyg_layers import assert_same_training, messy_graph, trained_by_pyg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv
    from torch_geometric.nn import aggr as pyg


class Aggregated(torch.nn.Module):
    """A layer with an aggregation of a width, behind another whose gradient goes through it."""

    def __init__(self, aggr: Any, width: int = 4) -> None:
        super().__init__()
        self.first, self.second = GCNConv(6, 4), SAGEConv((4, 4), 3, aggr=aggr)
        self.second.lin_l = torch.nn.Linear(width, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).tanh(), edge_index)


class BesideAttributes(torch.nn.Module):
    """An LSTM over neighbours whose messages read attributes and types, behind attention to the attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.lin, self.last = GATConv(6, 4, edge_dim=2), torch.nn.Linear(3, 4), torch.nn.Linear(4, 3)
        self.aggr = pyg.LSTMAggregation(4, 4)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, edge_type: Tensor) -> Tensor:
        x = self.first(x, edge_index, edge_attr).tanh()
        row, col = edge_index
        messages = x[row] * self.lin(torch.cat([edge_attr, edge_type.float().unsqueeze(-1)], dim=-1))
        return self.last(self.aggr(messages, col, dim_size=x.size(0)))


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "lstm": lambda: Aggregated("lstm"),
    "lstm of two layers, both ways": lambda: Aggregated(pyg.LSTMAggregation(4, 3, num_layers=2, bidirectional=True), 6),
    "gru": lambda: Aggregated(pyg.GRUAggregation(4, 4, bias=False)),
    "some by an MLP": lambda: Aggregated(pyg.MLPAggregation(4, 4, 5, num_layers=2, hidden_channels=6)),
    "all by an MLP": lambda: Aggregated(pyg.MLPAggregation(4, 4, 30, num_layers=1)),
    "sort": lambda: Aggregated(pyg.SortAggregation(5), 20),
    "set transformer": lambda: Aggregated(pyg.SetTransformerAggregation(4, 2, 2, 1, 2, layer_norm=True), 8),
    "beside attributes": BesideAttributes,
    "mean of seeds": lambda: Aggregated(pyg.SetTransformerAggregation(4, 2, 1, 2, concat=False)),
}


def assert_trains_as_pyg(name: str, **settings: Any) -> lotan.Run:
    torch.manual_seed(len(name))
    graph, ours = messy_graph(), MODELS[name]()
    theirs = copy.deepcopy(ours)
    run = lotan.Trainer(ours, graph, epochs=3, optimizer=lotan.SGD(lr=0.1), progress=False, **settings).fit()
    losses = trained_by_pyg(theirs, graph, torch.optim.SGD, lr=0.1)
    assert_same_training(run, losses, ours, theirs)
    return run


AT_NIGHT = ("lstm of two layers, both ways", "some by an MLP", "mean of seeds")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly) if name in AT_NIGHT else name for name in MODELS]
)
def test_trains_as_in_pyg(name: str) -> None:
    assert_trains_as_pyg(name, engine="local", plan="general" if name == "gru" else "auto")


@pytest.mark.nightly  # by day on local
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "name"),
    [
        *(("blocks", name) for name in ("beside attributes", "all by an MLP", "sort", "set transformer")),
        *(("rows", name) for name in ("beside attributes", "sort")),
    ],
)
def test_trains_as_in_pyg_on_spark(engine: str, name: str, spark: object) -> None:
    assert_trains_as_pyg(name, engine=engine, partitions=3)


class InTurn(torch.nn.Module):
    """An LSTM and an MLP over neighbours in an order of the user, of which one also reads attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.lin, self.last = SAGEConv(6, 4, aggr="lstm"), torch.nn.Linear(2, 4), torch.nn.Linear(5, 3)
        self.aggr = pyg.MLPAggregation(4, 5, 3, num_layers=1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        row, col = edge_index
        messages = self.first(x, edge_index).tanh()[row] * self.lin(edge_attr)
        return self.last(self.aggr(messages, col, dim_size=x.size(0)))


def assert_trains_in_an_order(**settings: Any) -> None:
    """As PyG, whose edges are sorted by destination and then by the second attribute, of which some are equal."""
    torch.manual_seed(4)
    given, ours = messy_graph().arrays(), InTurn()
    attributes = given.edge_attr.copy()
    attributes[:, 1] = np.random.default_rng(2).integers(0, 5, len(attributes))
    columns = {"features": given.features, "label": given.label, "split": given.split, "weight": given.weight}
    ends = {"src": given.src, "dst": given.dst, "edge_type": given.edge_type}
    graph, theirs = lotan.Graph.from_arrays(**columns, **ends, edge_attr=attributes), copy.deepcopy(ours)
    options = {"epochs": 3, "optimizer": lotan.SGD(lr=0.1), "progress": False, "neighbour_order": 1, **settings}
    run = lotan.Trainer(ours, graph, **options).fit()
    data = graph.to_pyg()
    order = np.lexsort((np.arange(len(data.edge_attr)), data.edge_attr[:, 1], data.edge_index[1]))
    index, attr = data.edge_index[:, order], data.edge_attr[order]
    assert not torch.equal(index, data.edge_index)
    steps, losses = torch.optim.SGD(theirs.parameters(), lr=0.1), []
    for _ in range(3):
        rows = theirs(data.x, index, attr)[data.train_mask]
        loss = torch.nn.functional.cross_entropy(rows, data.y[data.train_mask])
        losses.append(loss.item())
        steps.zero_grad()
        loss.backward()
        steps.step()
    assert_same_training(run, losses, ours, theirs)


def test_neighbours_are_taken_in_an_order_of_the_user() -> None:
    assert_trains_in_an_order(engine="local")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("engine", ["blocks", "rows"])
def test_neighbours_are_taken_in_an_order_of_the_user_on_spark(engine: str, spark: object) -> None:
    assert_trains_in_an_order(engine=engine, partitions=3)


def test_an_order_that_is_not_there_is_refused() -> None:
    settings = {"engine": "local", "progress": False}
    with pytest.raises(
        ConfigurationError, match="neighbour_order is 2, but the graph's edges have 2 attributes, numbered"
    ):
        lotan.Trainer(InTurn(), messy_graph(), neighbour_order=2, **settings).fit()
    plain = lotan.Graph.read("digits")
    with pytest.raises(ConfigurationError, match="the graph's edges have no attributes; name the column of the order"):
        lotan.Trainer(MODELS["lstm"](), plain, neighbour_order=0, **settings).fit()
    with pytest.raises(ConfigurationError, match="the model takes neighbours in no order"):
        lotan.Trainer(GCNConv(6, 3), messy_graph(), neighbour_order=0, **settings).fit()


def test_a_saved_model_predicts_for_another_graph_as_pyg(tmp_path: Any) -> None:
    torch.manual_seed(1)
    model = MODELS["lstm"]()
    run = lotan.Trainer(model, messy_graph(), engine="local", epochs=1, progress=False).fit()
    run.save(tmp_path / "model")
    other = messy_graph(seed=5, edges=90)  # of another greatest in-degree
    found = lotan.load(tmp_path / "model").predict(other, engine="local")
    data = other.to_pyg()
    with torch.no_grad():
        expected = model.eval()(data.x, data.edge_index).softmax(1).numpy()
    np.testing.assert_allclose(np.stack(found["probability"]), expected, atol=1e-5)


def test_models_of_a_batch_train_as_alone() -> None:
    graph, settings = messy_graph(), {"engine": "local", "progress": False}
    torch.manual_seed(0)
    members = [lotan.Member(MODELS["lstm"](), lotan.SGD(lr=lr), epochs=2) for lr in (0.1, 0.01)]
    alone = [copy.deepcopy(member.model) for member in members]
    for model, member in zip(alone, members, strict=True):
        lotan.Trainer(model, graph, optimizer=member.optimizer, epochs=2, **settings).fit()
    with lotan.ModelBatch(graph, members, **settings) as batch:
        batch.train()
        for member, model in zip(members, alone, strict=True):
            for key, value in member.model.state_dict().items():
                assert torch.equal(value, model.state_dict()[key])


def test_mini_batches_of_all_neighbours_are_the_full_batch() -> None:
    torch.manual_seed(2)
    graph, model = messy_graph(), MODELS["lstm"]()
    settings = {"engine": "local", "epochs": 2, "progress": False, "optimizer": lotan.SGD(lr=0.1)}
    regime = lotan.MiniBatch(1000, ("all",) * 3)
    batches = lotan.Trainer(copy.deepcopy(model), graph, regime=regime, **settings).fit().history
    whole = lotan.Trainer(model, graph, **settings).fit().history
    assert [row["loss"] for row in batches] == pytest.approx([row["loss"] for row in whole], abs=1e-5)


def test_explain_says_why_neighbourhoods_are_collected() -> None:
    shown = lotan.Trainer(MODELS["lstm"](), messy_graph(), engine="local", progress=False).explain(stage="all")
    assert "puts neighbours side by side, which only stages do" in " ".join(shown.split())


def test_a_hub_beyond_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MOST_BYTES", 10 * neighbours.step_bytes(4, 4, 1))
    with pytest.raises(GraphError, match=r"vertex 0 has \d+ in-edges; layer 'second.*' puts at most 10 of one vertex"):
        lotan.Trainer(MODELS["lstm"](), messy_graph(), engine="local", epochs=1, progress=False).fit()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("engine", ["blocks", "rows"])
def test_a_hub_beyond_memory_is_named_on_spark(engine: str, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MOST_BYTES", 10 * neighbours.step_bytes(4, 4, 1))
    given = messy_graph().arrays()
    vertices = pd.DataFrame({"id": given.ids, "features": given.features.tolist(), "label": given.label})
    vertices["split"] = np.where(given.split == 0, "train", "test")
    tables = [spark.createDataFrame(one) for one in (vertices, pd.DataFrame({"src": given.src, "dst": given.dst}))]
    with pytest.raises(GraphError, match=r"vertex 0 has \d+ in-edges; layer 'second.*' puts at most 10 of one vertex"):
        lotan.Trainer(MODELS["lstm"](), lotan.Graph(*tables), engine=engine, epochs=1, progress=False).fit()


class Looped(Aggregated):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(x[:, :4], edge_index[:, edge_index[0] != edge_index[1]])


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (lambda: Looped("lstm"), "along edges of the graph as they are"),
        (lambda: Aggregated(pyg.LSTMAggregation(4, 4, num_layers=2, dropout=0.1)), "dropout between its layers"),
        (lambda: Aggregated(pyg.SetTransformerAggregation(4, dropout=0.1)), "dropout of attention"),
        (lambda: Aggregated(pyg.LSTMAggregation(4, 4, proj_size=2), 2), "proj_size"),
    ],
)
def test_what_is_not_supported_says_so(model: Any, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        lotan.Trainer(model(), messy_graph(), engine="local", progress=False).explain()
