"""Models of PyG that sum where edges begin: trained as PyG trains them, on each engine that can."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import lotan
from lotan.errors import ModelError
from lotan.nn import MessagePassing
from lotan.tracing.trace import trace
from planner.edge_sets import is_reversed
from planner.steps.edge_expression import EdgeExpressionStep
from planner.steps.edge_sum import EdgeSumStep
from planner.steps.propagate import PropagateStep
from planner.steps.scaled_propagate import EdgeDotStep, ScaledPropagateStep
from planner.turning import reversed_sets, turned
from tests.tracing.test_pyg_layers import EDGES, WIDTH, assert_same_training, messy_graph, trained_by_pyg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg

pytestmark = pytest.mark.thorough


class Sums(torch.nn.Module):
    """Sums and means in both directions, as they are, normalised and gated."""

    def __init__(self) -> None:
        super().__init__()
        self.gcn = pyg.DirGNNConv(pyg.GCNConv(WIDTH, 4))
        self.hyper = pyg.HypergraphConv(4, 4)
        self.gated = pyg.ResGatedGraphConv(4, 4, flow="target_to_source")
        self.mean = pyg.SAGEConv(4, 3, flow="target_to_source")

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        x = self.hyper(self.gcn(x, edge_index).relu(), edge_index).tanh()
        x = self.gated(x, edge_index).tanh()
        return self.mean(x, edge_index) + torch.zeros_like(x[:, :3]).index_add(
            0, edge_index[0], edge_weight[:, None] * x[edge_index[1]][:, :3]
        )


class Attention(torch.nn.Module):
    """A softmax, maxima and learnt maps over the edges that begin at a vertex, and self-loops with means of attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.gat = pyg.DirGNNConv(pyg.GATConv(WIDTH, 4, heads=2, concat=False))
        self.looped = pyg.GATv2Conv(4, 4, edge_dim=2, flow="target_to_source")
        self.max = pyg.SAGEConv(4, 4, aggr="max", flow="target_to_source")
        self.gine = pyg.GINEConv(torch.nn.Linear(4, 3), edge_dim=2, flow="target_to_source")

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        x = self.looped(self.gat(x, edge_index).tanh(), edge_index, edge_attr).tanh()
        x = self.max(x, edge_index).tanh()
        return self.gine(x, edge_index, edge_attr)


def assert_trains_as_pyg(
    kind: type[torch.nn.Module], graph: lotan.Graph | None = None, epochs: int = 3, **options: object
) -> lotan.results.run.Run:
    torch.manual_seed(0)
    graph, ours = graph or messy_graph(), kind()
    theirs = copy.deepcopy(ours)
    settings = {"optimizer": lotan.SGD(lr=0.05), "epochs": epochs, "progress": False, **options}
    run = lotan.Trainer(ours, graph, **settings).fit()
    losses = trained_by_pyg(theirs, graph, torch.optim.SGD, lr=0.05, epochs=epochs)
    assert_same_training(run, losses, ours, theirs)
    return run


@pytest.mark.parametrize("kind", [Sums, Attention])
def test_trains_as_in_pyg(kind: type[torch.nn.Module]) -> None:
    assert_trains_as_pyg(kind, engine="local")


@pytest.mark.parametrize("options", [{"plan": "general"}, {"disable": ["push_down", "push_down_edges"]}])
def test_trains_as_in_pyg_where_neighbourhoods_are_collected(options: dict[str, object]) -> None:
    assert_trains_as_pyg(Sums, engine="local", **options)


@pytest.mark.nightly  # by day on local
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kind", [Sums, Attention])
def test_trains_as_in_pyg_on_blocks(kind: type[torch.nn.Module], spark: object) -> None:
    assert_trains_as_pyg(kind, engine="blocks", partitions=3)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("options", [{"plan": "general"}, {"disable": ["push_down_edges", "push_down_extremes"]}])
def test_trains_as_in_pyg_on_blocks_where_neighbourhoods_are_collected(
    options: dict[str, object], spark: object
) -> None:
    assert_trains_as_pyg(Attention, engine="blocks", partitions=3, **options)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("kind", [Sums, Attention])
def test_trains_as_in_pyg_on_rows(kind: type[torch.nn.Module], spark: object) -> None:
    assert_trains_as_pyg(kind, engine="rows", epochs=2)


def test_sums_need_no_edges_of_their_own() -> None:
    plan = lotan.Trainer(Sums(), messy_graph(), engine="local", epochs=1, progress=False).job.plan
    assert reversed_sets(plan) == ()
    assert any(isinstance(step, PropagateStep) and step.reverse for step in plan.predict)
    plan = lotan.Trainer(Attention(), messy_graph(), engine="local", epochs=1, progress=False).job.plan
    assert reversed_sets(plan) == ("reversed", "reversed_self_loops")


def test_nothing_is_pruned_where_edges_are_turned_round() -> None:
    plan = lotan.Trainer(Sums(), messy_graph(), engine="local", epochs=1, progress=False)
    assert "a layer sums over edges turned round" in plan.explain(stage="all")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
def test_engines_drop_the_same_edges_where_these_are_turned_round(spark: object) -> None:
    losses = {}
    for engine in ("local", "blocks", "rows"):
        torch.manual_seed(0)
        model = pyg.GATConv(WIDTH, 3, heads=2, concat=False, dropout=0.5, flow="target_to_source")
        settings = {"optimizer": lotan.SGD(lr=0.05), "epochs": 2, "seed": 3, "progress": False}
        run = lotan.Trainer(model, messy_graph(), engine=engine, **settings).fit()
        losses[engine] = [epoch["loss"] for epoch in run.history]
    assert losses["blocks"] == pytest.approx(losses["local"], abs=1e-5)
    assert losses["rows"] == pytest.approx(losses["local"], abs=1e-5)


class Own(MessagePassing):
    """A layer of one's own that sums where edges begin."""

    def __init__(self) -> None:
        super().__init__("sum")
        self.lin = torch.nn.Linear(WIDTH, 3)

    def forward(self, x, graph):
        return self.propagate(graph, self.lin(x), edges="reversed")

    def message(self, x_j, edge_weight, edge_attr):
        return x_j * edge_weight.unsqueeze(-1) + edge_attr[:, :1]


class Theirs(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_attr: Tensor) -> Tensor:
        messages = self.lin(x)[edge_index[1]] * edge_weight.unsqueeze(-1) + edge_attr[:, :1]
        return torch.zeros(len(x), 3).index_add(0, edge_index[0], messages)


def test_a_layer_of_ones_own_reads_edges_turned_round() -> None:
    graph, ours, theirs = messy_graph(), Own(), Theirs()
    theirs.load_state_dict(ours.state_dict())
    run = lotan.Trainer(ours, graph, engine="local", epochs=3, optimizer=lotan.SGD(lr=0.05), progress=False).fit()
    assert_same_training(run, trained_by_pyg(theirs, graph, torch.optim.SGD, lr=0.05), ours, theirs)


def test_a_vertex_of_such_a_model_is_not_explained() -> None:
    graph = messy_graph()
    run = lotan.Trainer(Own(), graph, engine="local", epochs=1, progress=False).fit()
    with pytest.raises(ModelError, match="follow in-edges alone"):
        run.explain_vertex(0)


@pytest.mark.parametrize(
    ("step", "other"),
    [
        ("EdgeSum(x, by destination, reversed) -> out", "EdgeSum(x, by source, graph) -> out"),
        ("ScaledPropagate(x, scales, reversed) -> out", "ScaledPropagate(x, scales, reverse, graph) -> out"),
        ("EdgeDot(a, b, reversed) -> out", "EdgeDot(b, a, graph) -> out"),
        ("EdgeExpression(source.a * edge.b, reversed) -> out", "EdgeExpression(destination.a * edge.b, graph) -> out"),
    ],
)
def test_steps_exchange_the_ends(step: str, other: str) -> None:
    from planner.physical import Column

    rows, edges = Column("out", (2,)), Column("out", (2,), edges="reversed")
    made = {
        "EdgeSum": EdgeSumStep(rows, "reversed", "x"),
        "ScaledPropagate": ScaledPropagateStep(rows, "reversed", "x", "scales", 2),
        "EdgeDot": EdgeDotStep(edges, "reversed", "a", "b"),
        "EdgeExpression": EdgeExpressionStep(edges, "reversed", ("mul", ("source", "a"), ("edge", "b"))),
    }[step.partition("(")[0]]
    assert made.label == step
    (found,) = turned([made])
    assert found.label == other
    assert found.output.edges is None or not is_reversed(found.output.edges)
    (again,) = [found.turned()]
    assert again == made


def test_ends_that_are_not_exchanged_are_found_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lotan.tracing.pyg.edge_tensors.is_reversed", lambda edges: False)
    with pytest.raises(ModelError, match="the traced model differs from the model itself in its output"):
        trace(Attention(), WIDTH, training=True, data=EDGES, weighted=True)


def test_a_step_that_keeps_its_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PropagateStep, "turned", lambda step: replace(step, edges="graph"))
    with pytest.raises(AssertionError):
        assert_trains_as_pyg(Sums, engine="local")


def few_trained() -> lotan.Graph:
    """Vertices are then in the order of their levels, which follow the edges as they are."""
    graph = messy_graph(vertices=400, edges=900)
    split = np.full(400, -1, dtype=np.int8)
    split[[3, 50, 77, 90]] = 0
    return graph.relabelled(graph.arrays().label, split)


def test_few_vertices_are_trained_on() -> None:
    few = few_trained()
    assert lotan.Trainer(Sums(), few, engine="local", progress=False).job.plan.levels is not None
    assert_trains_as_pyg(Sums, few, engine="local")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
def test_few_vertices_are_trained_on_on_blocks(spark: object) -> None:
    few = few_trained()
    assert lotan.Trainer(Attention(), few, engine="blocks", progress=False).job.plan.levels is not None
    assert_trains_as_pyg(Attention, few, engine="blocks", partitions=3)
