"""Models by name: the module that its class would make, with the weights of the seed."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch

import lotan
from lotan.errors import ConfigurationError, ModelError
from lotan.nn.named_models import STOCK, factory_of, made

SHAPE = {"in_channels": 5, "hidden_channels": 8, "num_layers": 2, "out_channels": 3, "dropout": 0.5}


@pytest.mark.parametrize("name", STOCK)
def test_weights_are_those_of_the_seed_whatever_was_drawn_before(name):
    torch.manual_seed(7)
    expected = getattr(lotan.nn, STOCK[name])(**SHAPE, **({"norm": None} if name == "mlp" else {}))
    torch.rand(3)
    found = made(factory_of(name, "--model"), SHAPE, 7, "--model")
    assert repr(found) == repr(expected)
    weights = expected.state_dict()
    assert found.state_dict().keys() == weights.keys()
    assert all(torch.equal(tensor, weights[key]) for key, tensor in found.state_dict().items())


@pytest.mark.parametrize("factory", [lotan.nn.GCN, lambda in_channels: 3])
def test_the_users_own_random_numbers_go_on_as_if_nothing_was_made(factory):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    with suppress(ModelError):
        made(factory, SHAPE, 7, "--model")
    assert torch.equal(torch.rand(3), expected)


def narrow(in_channels, out_channels):
    return torch.nn.Linear(in_channels, out_channels)


def no_model(in_channels):
    return in_channels


def test_a_factory_gets_what_it_has_parameters_for():
    model = made(factory_of(f"{__name__}:narrow", "--model"), SHAPE, 0, "--model")
    assert (model.in_features, model.out_features) == (5, 3)


def test_what_makes_no_model_is_refused():
    with pytest.raises(ModelError, match="--model x returned int"):
        made(no_model, SHAPE, 0, "--model x")
    with pytest.raises(ConfigurationError, match=r"model\.kind tests:narrow: AttributeError"):
        factory_of("tests:narrow", "model.kind")
