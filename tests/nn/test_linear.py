from __future__ import annotations

import pytest
import torch

import lotan.nn
from lotan.errors import ConfigurationError
from tests.nn.parity import WIDTH, pyg, refuses


@pytest.mark.parametrize("initializer", ["glorot", None])
@pytest.mark.parametrize("bias", [True, False])
def test_equals_pyg(initializer: str | None, bias: bool) -> None:
    layers = []
    for kind in (lotan.nn.Linear, pyg.Linear):
        torch.manual_seed(0)
        layers.append(kind(WIDTH, 5, bias=bias, weight_initializer=initializer))
    ours, theirs = (layer.state_dict() for layer in layers)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_another_initializer_is_refused() -> None:
    with refuses(ConfigurationError, "Linear", "weight_initializer='uniform'", "not supported"):
        lotan.nn.Linear(WIDTH, 5, weight_initializer="uniform")
