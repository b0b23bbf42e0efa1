"""Relations of PyG's RGCNConv that are recorded as copies: the calls are those of a trace that runs all of them."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from lotan.tracing import repeating
from lotan.tracing.trace import forget_traces, trace
from planner.edge_columns import EdgeData
from planner.spec import Spec
from tests.tracing.test_pyg_layers import WIDTH

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg

TYPED = EdgeData(0, typed=True)


class Relational(torch.nn.Module):
    """Two layers, the second of which reads what the first makes."""

    def __init__(self, **arguments: object) -> None:
        super().__init__()
        self.first, self.second = pyg.RGCNConv(WIDTH, 6, 4, **arguments), pyg.RGCNConv(6, 3, 3, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index, edge_type).relu(), edge_index, edge_type)


def spec_of(model: torch.nn.Module) -> Spec:
    forget_traces()
    return trace(model, WIDTH, training=True, data=TYPED)


@pytest.mark.parametrize("arguments", [{}, {"aggr": "max", "num_bases": 2}, {"aggr": "add", "num_blocks": 1}], ids=str)
def test_copies_are_the_calls_of_the_rounds_themselves(arguments, monkeypatch):
    model = Relational(**arguments)
    copied = spec_of(model)
    monkeypatch.setattr(repeating._Pattern, "of", lambda *_: None)
    assert spec_of(model) == copied
    assert len({call.output for call in copied.calls}) == len(copied.calls)


class Loop(torch.nn.Module):
    """Five rounds of a function, of which it counts those that run."""

    def __init__(self, one) -> None:
        super().__init__()
        self.one, self.ran = one, []
        self.weight = torch.nn.Parameter(torch.rand(5, WIDTH))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        def counted(value: Tensor, number: int) -> Tensor:
            if get_proxy_mode() is not None:  # there is none where the calls are compared with the model
                self.ran.append(number)
            return self.one(value, self.weight, number)

        return repeating.repeated(counted, x, 5)


LOOPS = {
    "alike": (lambda value, weight, number: torch.tanh(value * weight[number]), 2),
    "another operator in some": (lambda value, _, number: value.tanh() if number % 2 else value.relu(), 5),
    "another number": (lambda value, _, number: value * (number + 2), 5),
    "a value that is not read": (
        lambda value, weight, number: value if number else torch.tanh(weight[number] + value),
        5,
    ),
}


@pytest.mark.parametrize("kind", LOOPS)
def test_rounds_run_where_they_differ_in_more_than_their_number(kind):
    one, ran = LOOPS[kind]
    model = Loop(one)
    spec_of(model)
    assert len(model.ran) == ran
