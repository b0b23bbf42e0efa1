"""The calls of a trace compute what the model computes, and tracing leaves the model as it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

import lotan.nn
from lotan.errors import ModelError
from lotan.nn import EdgeIndex, GCNConv
from lotan.tracing.trace import forget_traces, trace
from planner.spec import GREATEST, Call, RowCount, Spec
from tests.nn.graphs import random_graph
from tests.nn.own_layers import Weighted
from tests.nn.parity import assert_close
from tests.reference import run_spec
from tests.traced_models import Branches, Gated, ManyOperators, Pools, Residual

pytestmark = pytest.mark.thorough

NODE = {"norm": "layer_norm", "norm_kwargs": {"mode": "node"}}
MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "GCN": lambda: lotan.nn.GCN(6, 8, 2, 3, dropout=0.5),
    "GCN jk=cat": lambda: lotan.nn.GCN(6, 8, 3, 3, dropout=0.5, jk="cat", **NODE),
    "GCN plain": lambda: lotan.nn.GCN(6, 8, 2, 3, normalize=False),
    "GraphSAGE": lambda: lotan.nn.GraphSAGE(6, 8, 2, 3, dropout=0.5),
    "GraphSAGE max": lambda: lotan.nn.GraphSAGE(6, 8, 2, 3, aggr="max", project=True, normalize=True, jk="max"),
    "GraphSAGE min": lambda: lotan.nn.GraphSAGE(6, 8, 2, 3, aggr="min", act="elu"),
    "GIN": lambda: lotan.nn.GIN(6, 8, 2, 3, dropout=0.5, **NODE),
    "GIN train_eps": lambda: lotan.nn.GIN(6, 8, 2, 3, train_eps=True, eps=0.1, jk="last"),
    "GAT": lambda: lotan.nn.GAT(6, 8, 2, 3, heads=4, dropout=0.5),
    "GAT plain": lambda: lotan.nn.GAT(6, 8, 2, 3, heads=2, concat=False, add_self_loops=False, residual=True),
    "MLP": lambda: lotan.nn.MLP([6, 8, 3], norm=None, dropout=0.5),
    "one layer": lambda: GCNConv(6, 3),
    "Residual": Residual,
    "Branches": Branches,
    "Pools": Pools,
    "Gated": lambda: Gated(6, 2),
    "ManyOperators": ManyOperators,
}


def made(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    model = MODELS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


@cache
def traced(name: str, training: bool) -> tuple[torch.nn.Module, Spec]:
    """A model, in evaluation mode, and its trace."""
    model = made(name).eval()
    return model, trace(model, 6, training)


def all_parameters(model: torch.nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def gradients(output: Tensor, model: torch.nn.Module) -> list[Tensor]:
    cotangent = torch.randn(output.shape, generator=torch.Generator().manual_seed(4))
    return list(torch.autograd.grad(output, list(model.parameters()), cotangent, materialize_grads=True))


def ops(spec: Spec) -> list[str]:
    return [call.op for call in spec.calls]


def call_of(spec: Spec, op: str) -> Call:
    return next(call for call in spec.calls if call.op == op)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", MODELS)
def test_traced_calls_equal_the_model(name: str, training: bool) -> None:
    model, spec = traced(name, training)
    edge_index = random_graph(1)
    features = torch.randn(12, 6, generator=torch.Generator().manual_seed(2))
    weight = torch.rand(40, generator=torch.Generator().manual_seed(3)) + 0.1
    parameters = all_parameters(model)
    read = {parameter.name: parameters[parameter.name] for parameter in spec.parameters}
    given = run_spec(spec, read, features, edge_index, weight)
    expected = model(features, EdgeIndex(edge_index, weight, num_vertices=12))
    assert_close(given, expected)
    truth = gradients(expected, model)
    scale = max(gradient.abs().max().item() for gradient in truth)
    for mine, gradient in zip(gradients(given, model), truth, strict=True):
        assert_close(mine, gradient, scale)


@pytest.mark.parametrize("name", MODELS)
def test_calls_fit_any_number_of_rows(name: str) -> None:
    """A stage runs the same calls on chunks of any size."""
    model, spec = traced(name, training=False)
    for rows in (1, 50):
        edge_index = torch.randint(0, rows, (2, 3 * rows))
        features = torch.randn(rows, 6)
        given = run_spec(spec, all_parameters(model), features, edge_index)
        # Twice side by side, for a model's own .squeeze() would drop the only row of one vertex; the calls keep it.
        doubled = EdgeIndex(torch.cat([edge_index, edge_index + rows], dim=1), num_vertices=2 * rows)
        assert_close(given, model(features.repeat(2, 1), doubled)[:rows])


def test_dropout_is_there_in_training_alone() -> None:
    assert ops(traced("GAT", training=True)[1]).count("aten.dropout.default") == 3
    assert "aten.dropout.default" not in ops(traced("GAT", training=False)[1])


def test_training_flags_are_as_before() -> None:
    model = made("GCN")
    model.dropout.eval()
    trace(model, 6, training=False)
    assert model.training
    assert not model.dropout.training


def test_nothing_is_left_on_the_model() -> None:
    model = made("GCN")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trace(model, 6, training=True)
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_random_numbers_go_on_as_if_nothing_had_been_traced() -> None:
    model = made("GCN")
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)
    trace(model, 6, training=True)
    assert torch.equal(torch.randn(3), expected)


def test_calls_name_layer_and_line() -> None:
    call = call_of(traced("Gated", training=False)[1], "aten.bilinear.default")
    assert call.layer == "gate"
    assert call.where.startswith("traced_models.py:")
    spec = traced("Residual", training=False)[1]
    layers = [call.layer for call in spec.calls if call.op == "lotan.aggregate"]
    assert layers == ["convs.0", "convs.1", "convs.2"]


def test_row_counts_are_never_numbers() -> None:
    spec = traced("ManyOperators", training=True)[1]
    sizes = [call.arguments[1] for call in spec.calls if call.op in ("aten.reshape.default", "aten.expand.default")]
    assert sizes
    assert all(isinstance(size, tuple) and isinstance(size[0], RowCount) for size in sizes)


def test_shared_parameters_appear_once_and_unread_ones_not_at_all() -> None:
    model = made("Branches")
    model.unread = torch.nn.Linear(2, 2)
    names = [parameter.name for parameter in trace(model, 6, training=True).parameters]
    assert "left.weight" in names
    assert "right.weight" not in names
    assert not any(name.startswith("unread") for name in names)


def test_buffers_and_frozen_parameters_are_not_trainable() -> None:
    model = made("Gated")
    model.cell.weight_ih.requires_grad_(False)
    trainable = {parameter.name: parameter.trainable for parameter in trace(model, 6, training=True).parameters}
    assert trainable["scale"] is False
    assert trainable["cell.weight_ih"] is False
    assert trainable["cell.weight_hh"] is True


def test_messages_carry_their_edge_set() -> None:
    for name, edges in (("GCN", "self_loops"), ("GraphSAGE", "graph")):
        aggregate = call_of(traced(name, training=True)[1], "lotan.aggregate")
        assert aggregate.arguments[-1] == edges


class LessTheGreatest(torch.nn.Module):
    """Rows less the greatest numbers of all rows, of which torch also gives the places."""

    def __init__(self, read_places: bool = False) -> None:
        super().__init__()
        self.conv, self.read_places = GCNConv(6, 3), read_places

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        greatest, places = x.max(dim=0)
        return self.conv(x - greatest + (places * 0.1 if self.read_places else 0.0), graph)


def test_the_greatest_numbers_of_all_rows_are_followed_and_their_places_are_not() -> None:
    assert any(call.op == GREATEST for call in trace(LessTheGreatest(), 6, training=True).calls)
    with pytest.raises(ModelError, match="argmax along dimension 0 mixes rows"):
        trace(LessTheGreatest(read_places=True), 6, training=True)


def test_a_single_convolution_is_a_model() -> None:
    spec = trace(Weighted(), 6, training=True)
    assert ops(spec) == [
        "lotan.vertex_input",
        "lotan.scatter",
        "lotan.scatter",
        "lotan.edge_weight",
        "aten.sub.Tensor",
        "aten.unsqueeze.default",
        "aten.mul.Tensor",
        "lotan.aggregate",
        "aten.add.Tensor",
    ]


def test_a_trace_serves_models_of_the_same_form_until_it_is_forgotten() -> None:
    one, other = (trace(lotan.nn.GCN(6, 8, 2, 3), 6, training=False) for _ in range(2))
    assert one is other
    forget_traces()
    again = trace(lotan.nn.GCN(6, 8, 2, 3), 6, training=False)
    assert again is not one
    assert again == one
