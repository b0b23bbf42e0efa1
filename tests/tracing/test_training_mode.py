"""A model is traced once if its forward never asks whether it is in training, and twice if it does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import lotan.tracing.trace
from lotan.tracing.trace import trace_modes
from lotan.tracing.training_mode import in_mode, watched_flags


class Plain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x: Tensor, graph: object) -> Tensor:
        return self.linear(x)


class Dropping(Plain):
    def forward(self, x: Tensor, graph: object) -> Tensor:
        return torch.nn.functional.dropout(self.linear(x), 0.5, training=self.training)


class OwnMode(Plain):
    noisy = False

    def train(self, mode: bool = True) -> OwnMode:
        self.noisy = mode
        return super().train(mode)

    def forward(self, x: Tensor, graph: object) -> Tensor:
        return self.linear(x) * (2 if self.noisy else 1)


class OfPyG(Plain):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.linear(x)


@pytest.mark.parametrize(("model", "times"), [(Plain, 1), (OfPyG, 1), (Dropping, 2), (OwnMode, 2)])
def test_a_model_is_traced_once_unless_it_reads_its_mode(model, times, monkeypatch):
    recorded = []
    record = lotan.tracing.trace.record
    monkeypatch.setattr(lotan.tracing.trace, "record", lambda *given: recorded.append(1) or record(*given))
    train, evaluate = trace_modes(model(), width=3)
    assert len(recorded) == times
    assert (train == evaluate) is (times == 1)


def test_a_models_flags_and_the_class_are_as_before():
    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(2, 2).eval())
    with in_mode(model, training=False):
        with watched_flags(model) as reads:
            before = reads.any
            assert model[0].training is False
        assert (before, reads.any) == (False, True)
    assert [module.training for module in model.modules()] == [True, True, False]
    assert "training" not in vars(torch.nn.Module)
