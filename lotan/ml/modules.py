"""From Params to what is trained: a module with its first weights, and its optimizer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

import lotan.nn
from lotan.arguments import described
from lotan.errors import ConfigurationError, LotanError, ModelError
from lotan.ml.params import GNNParams
from lotan.optimizers import Optimizer, optimizer_by_name

Factory = Callable[..., torch.nn.Module]

STOCK: dict[str, Factory] = {
    "gcn": lotan.nn.GCN,
    "sage": lotan.nn.GraphSAGE,
    "gin": lotan.nn.GIN,
    "gat": lotan.nn.GAT,
    "mlp": lotan.nn.MLP,
}


def make_module(params: GNNParams, factory: Factory | None, in_channels: int, out_channels: int) -> torch.nn.Module:
    """The model that the Params ask for; its weights are drawn with their seed, and nobody else's random numbers change.

    Args:
        params: which model, how wide and deep.
        factory: of a model of one's own; None: a stock one.
        in_channels: width of the features.
        out_channels: classes, or 1.

    Raises:
        ConfigurationError: an unknown model, or arguments that it refuses.
        ModelError: the factory fails, or returns something else than a module.
    """
    build = factory or _stock(params.value("modelType"))
    arguments = _accepted(build, _arguments(params, factory is None, in_channels, out_channels))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(params.value("seed"))
        try:
            module = build(**arguments)
        except LotanError:
            raise
        except Exception as error:  # a factory is anyone's code
            given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            raise ModelError(f"the model's factory failed with {given}: {type(error).__name__}: {error}") from error
    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"the model's factory returned {described(module)}; expected a torch.nn.Module")
    return module


def make_optimizer(params: GNNParams) -> Optimizer:
    """The optimizer that the Params ask for.

    Raises:
        ConfigurationError: an unknown one, or arguments that it refuses.
    """
    return optimizer_by_name(params.value("optimizer"), lr=params.value("lr"), weight_decay=params.value("weightDecay"))


def _stock(name: str) -> Factory:
    if name not in STOCK:
        raise ConfigurationError(
            f"unknown modelType {described(name)}; there are {', '.join(STOCK)}, and setModelFactory for one of your own"
        )
    return STOCK[name]


def _arguments(params: GNNParams, stock: bool, in_channels: int, out_channels: int) -> dict[str, Any]:
    arguments = {
        "in_channels": in_channels,
        "hidden_channels": params.value("hiddenChannels"),
        "num_layers": params.value("numLayers"),
        "out_channels": out_channels,
        "dropout": params.value("dropout"),
    }
    if not stock or params.value("modelType") == "gat":
        arguments["heads"] = params.value("heads")
    if stock and params.value("modelType") == "mlp":
        arguments["norm"] = None  # its default, torch_geometric's batch normalisation, mixes rows
    return arguments


def _accepted(factory: Factory, arguments: dict[str, Any]) -> dict[str, Any]:
    """Those arguments that the factory has parameters for; all of them for `**kwargs`."""
    parameters = inspect.signature(factory).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}
