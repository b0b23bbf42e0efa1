from __future__ import annotations

import pytest
import torch

from lotan.errors import ConfigurationError
from lotan.nn import MLP, GINConv
from tests.nn.parity import WIDTH, assert_parity, gradcheck, pyg, refuses

OPTIONS = [{}, {"eps": 0.3}, {"train_eps": True, "eps": 0.2}, {"aggr": "max"}, {"aggr": "mean"}]


def sequential() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 5), torch.nn.ELU(), torch.nn.Sequential(torch.nn.Linear(5, 4)))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_pyg(options: dict) -> None:
    assert_parity(lambda: GINConv(sequential(), **options), lambda: pyg.GINConv(sequential(), **options))


def test_equals_pyg_with_a_perceptron() -> None:
    widths = [WIDTH, 8, 4]
    assert_parity(lambda: GINConv(MLP(widths, norm=None)), lambda: pyg.GINConv(pyg.MLP(widths, norm=None)))


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_gradients_equal_finite_differences(options: dict) -> None:
    gradcheck(GINConv(torch.nn.Linear(WIDTH, 3), **options))


def test_other_arguments_are_refused() -> None:
    with refuses(ConfigurationError, "GINConv", "node_dim", "not supported"):
        GINConv(torch.nn.Linear(WIDTH, 3), node_dim=1)
