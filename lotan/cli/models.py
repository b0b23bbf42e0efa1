"""From --model to a module."""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from importlib import import_module
from typing import Any

import torch

from lotan.errors import ConfigurationError, LotanError, ModelError
from lotan.graph import Graph
from lotan.job import foreseen_of
from lotan.settings import TrainerConfig
from planner.footprint import Footprint

GUESSED_OUTPUTS = 64  # of a model for files whose labels nobody has read yet

STOCK = {"gcn": "GCN", "sage": "GraphSAGE", "gin": "GIN", "gat": "GAT", "mlp": "MLP"}


def make_model(options: argparse.Namespace, in_channels: int, out_channels: int) -> torch.nn.Module:
    """The model that the command line asks for, for a graph of these widths, its weights drawn with --seed.

    Raises:
        ConfigurationError: for an unknown model, module or factory, and for an option the model has not.
        ModelError: if the factory fails, or returns something other than a module.
    """
    factory = _factory(options.model)
    arguments = _accepted(factory, _arguments(options, in_channels, out_channels))
    torch.manual_seed(options.seed)
    try:
        model = factory(**arguments)
    except LotanError:
        raise
    except Exception as error:  # a factory is anyone's code; torch has a RuntimeError for no memory
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        raise ModelError(
            f"--model {options.model} failed with {given or 'no arguments'}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(model, torch.nn.Module):
        raise ModelError(f"--model {options.model} returned {type(model).__name__}; a torch.nn.Module was expected")
    return model


def needs_of(options: argparse.Namespace, graph: Graph, config: TrainerConfig) -> Footprint | None:
    """What the model on files is estimated to need, before their labels are read: its outputs are guessed.

    Raises:
        ConfigurationError: as `make_model`, and for more than the memory limit.
        ModelError: as `make_model`, and for a model that cannot be traced.
    """
    width = graph.estimate().width if graph.origin == "files" else 0
    return foreseen_of(make_model(options, width, GUESSED_OUTPUTS), graph, config) if width else None


def _arguments(options: argparse.Namespace, in_channels: int, out_channels: int) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "in_channels": in_channels,
        "hidden_channels": options.hidden,
        "num_layers": options.layers,
        "out_channels": out_channels,
        "dropout": options.dropout,
    }
    if options.model == "mlp":
        arguments["norm"] = None  # its default, torch_geometric's batch normalisation, mixes rows
    for name, owner in (("heads", "gat"), ("aggr", "sage")):
        value = getattr(options, name)
        if value is None:
            continue
        if options.model in STOCK and options.model != owner:
            raise ConfigurationError(f"--{name} {value} is for --model {owner}; {options.model} has no such option")
        arguments[name] = value
    return arguments


def _factory(name: str) -> Any:
    import lotan.nn

    if name in STOCK:
        return getattr(lotan.nn, STOCK[name])
    module_name, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigurationError(
            f"unknown model {name!r}; give one of {', '.join(STOCK)}, or MODULE:FACTORY for your own"
        )
    if os.getcwd() not in sys.path:  # the console script, unlike `python -m`, does not look here
        sys.path.insert(0, os.getcwd())
    try:
        factory = getattr(import_module(module_name), attribute)
        if not callable(factory):
            raise TypeError(f"{attribute!r} is a {type(factory).__name__}")
    except Exception as error:  # importing runs anyone's code
        raise ConfigurationError(
            f"--model {name}: {type(error).__name__}: {error}; expected an importable MODULE with a callable FACTORY"
        ) from error
    return factory


def _accepted(factory: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Those arguments that the factory has parameters for; all of them for a stock model or `**kwargs`."""
    parameters = inspect.signature(factory).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}
