from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lotan.errors import ConfigurationError, ModelError
from lotan.nn import EdgeIndex, Edges, MessagePassing, aggregate
from tests.nn.graphs import random_graph
from tests.nn.own_layers import Moments, SoftmaxPool, Weighted
from tests.nn.parity import WIDTH, assert_close, gradcheck, refuses

KINDS = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}


class Plain(MessagePassing):
    def forward(self, x: Tensor, graph: EdgeIndex | Tensor) -> Tensor:
        return self.propagate(graph, x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_aggregates_equal_a_loop_over_vertices(kind: str, shape: tuple[int, ...]) -> None:
    edge_index, x = random_graph(1), torch.randn(12, *shape).round(decimals=1).requires_grad_()
    given = Plain(kind)(x, edge_index)
    rows = [x[edge_index[0, edge_index[1] == vertex]] for vertex in range(12)]
    expected = torch.stack([KINDS[kind](row, dim=0) if len(row) else x.new_zeros(shape) for row in rows])
    assert_close(given, expected)
    cotangent = torch.randn(given.shape)
    assert_close(torch.autograd.grad(given, x, cotangent)[0], torch.autograd.grad(expected, x, cotangent)[0])


def test_message_and_update_get_what_they_name() -> None:
    edge_index, weight = random_graph(2), torch.rand(40)
    x = torch.randn(12, WIDTH)
    given = Weighted()(x, EdgeIndex(edge_index, weight, num_vertices=12))
    expected = x.clone()
    for (source, destination), w in zip(edge_index.t().tolist(), weight, strict=True):
        expected[destination] += w * (x[source] - x[destination])
    assert_close(given, expected)


def test_without_weights_every_edge_weighs_one() -> None:
    edge_index, x = random_graph(2), torch.randn(12, WIDTH)
    assert torch.equal(Weighted()(x, edge_index), Weighted()(x, EdgeIndex(edge_index, torch.ones(40), num_vertices=12)))


def test_an_aggregate_of_ones_own_composes_the_stock_ones() -> None:
    edge_index, x = random_graph(3), torch.randn(12, WIDTH)
    given = Moments()(x, edge_index)
    for vertex in range(12):
        rows = x[edge_index[0, edge_index[1] == vertex]]
        if len(rows):
            expected = [rows.mean(0), rows.var(0, unbiased=False).clamp(min=0).add(1e-5).sqrt(), rows.amax(0)]
            torch.testing.assert_close(given[vertex], torch.cat(expected), rtol=1e-4, atol=1e-4)


def test_softmax_runs_over_the_in_edges_of_each_destination() -> None:
    edge_index, x = random_graph(4), torch.randn(12, WIDTH) * 30  # so large that exp alone would overflow
    layer = SoftmaxPool()
    given = layer(x, edge_index)
    for vertex in range(12):
        rows = x[edge_index[0, edge_index[1] == vertex]]
        if len(rows):
            assert_close(given[vertex], (torch.softmax(rows * layer.temperature, 0) * rows).sum(0))


@pytest.mark.parametrize("layer", [Weighted, Moments, SoftmaxPool])
def test_gradients_of_own_layers_equal_finite_differences(layer: type[MessagePassing]) -> None:
    gradcheck(layer())


def test_unknown_arguments_of_message_are_refused() -> None:
    class Layer(Plain):
        def message(self, x_j: Tensor, edge_label: Tensor) -> Tensor:  # type: ignore[override]
            return x_j

    with refuses(ModelError, "Layer.message", "edge_label", "x_j, x_i, edge_weight"):
        Layer()


def test_unknown_arguments_of_update_are_refused() -> None:
    class Layer(Plain):
        def update(self, aggregated: Tensor, x_i: Tensor) -> Tensor:  # type: ignore[override]
            return aggregated

    with refuses(ModelError, "Layer.update", "x_i", "aggregated, x"):
        Layer()


def test_an_unknown_aggregate_is_refused() -> None:
    with refuses(ConfigurationError, "Plain", "aggr='median'", "sum"):
        Plain("median")


def test_an_unknown_kind_is_refused() -> None:
    with refuses(ModelError, "median"):
        aggregate(torch.zeros(3, 2), EdgeIndex(torch.zeros(2, 3, dtype=torch.int64)), "median")


def test_softmax_outside_of_message_is_refused() -> None:
    with refuses(ModelError, "softmax", "message"):
        Plain().softmax(torch.zeros(3))


@pytest.mark.parametrize(
    "edge_index", [torch.zeros(3, 2, dtype=torch.int64), torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)], ids=str
)
def test_edges_of_another_form_are_refused(edge_index: Tensor) -> None:
    with refuses(ModelError, "edge_index", "int64"):
        Plain()(torch.zeros(3, 2), edge_index)


def test_something_else_as_graph_is_refused() -> None:
    with refuses(ModelError, "list", "EdgeIndex"):
        Plain()(torch.zeros(3, 2), [[0], [1]])  # type: ignore[arg-type]


def test_self_loops_keep_their_weight_and_appear_once() -> None:
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 1, 1, 0]])
    edges = EdgeIndex(edge_index, torch.tensor([2.0, 3.0, 4.0, 5.0]), num_vertices=3).edges("self_loops")
    assert isinstance(edges, Edges)
    assert edges.index.tolist() == [[0, 2, 0, 1, 2], [1, 0, 0, 1, 2]]
    assert edges.weight.tolist() == [2.0, 5.0, 1.0, 4.0, 1.0]
