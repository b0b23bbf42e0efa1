from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lotan.nn import EdgeIndex, GCNConv
from lotan.tracing import trace
from tests.nn.graphs import random_graph
from tests.reference import run_spec


class Chain(torch.nn.Module):
    """Two graph convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = GCNConv(6, 8)
        self.second = GCNConv(8, 3)

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        x = torch.nn.functional.dropout(self.first(x, graph).relu(), 0.5, self.training)
        return self.second(x, graph)


def assert_trace_equals_model(model: torch.nn.Module, width: int) -> None:
    """Output and gradients of the traced calls equal those of the model run eagerly, without dropout."""
    edge_index = random_graph(1)
    features = torch.randn(12, width, generator=torch.Generator().manual_seed(2))
    weight = torch.rand(edge_index.shape[1], generator=torch.Generator().manual_seed(3)) + 0.1
    graph = EdgeIndex(edge_index, weight, num_vertices=12)
    parameters = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    model.eval()
    for training in (True, False):
        spec = trace(model, width, training)
        expected, given = model(features, graph), run_spec(spec, parameters, features, edge_index, weight)
        torch.testing.assert_close(given, expected, rtol=1e-5, atol=1e-6)
        cotangent = torch.randn(expected.shape, generator=torch.Generator().manual_seed(4))
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for first, second in zip(
            torch.autograd.grad(given, trained, cotangent, allow_unused=True),
            torch.autograd.grad(expected, trained, cotangent, allow_unused=True),
            strict=True,
        ):
            torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6)


def test_traced_calls_equal_the_model() -> None:
    assert_trace_equals_model(Chain(), 6)
