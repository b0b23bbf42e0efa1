"""From --model to a module, and a saved model's directory: `model.json` (how to make it) and `weights.pt`."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from lotan.checkpoint import write_atomically
from lotan.errors import ConfigurationError, ModelError

STOCK = {"gcn": "GCN", "sage": "GraphSAGE", "gin": "GIN", "gat": "GAT", "mlp": "MLP"}
DESCRIPTION, WEIGHTS = "model.json", "weights.pt"


@dataclass(frozen=True)
class Recipe:
    """How to make a model: its --model name and the arguments of the call, all plain data."""

    model: str
    arguments: dict[str, Any]

    @classmethod
    def from_options(cls, options: argparse.Namespace, in_channels: int, out_channels: int) -> Recipe:
        """The recipe that the command line gives for a graph of these widths."""
        arguments = {
            "in_channels": in_channels,
            "hidden_channels": options.hidden,
            "num_layers": options.layers,
            "out_channels": out_channels,
            "dropout": options.dropout,
        }
        for name, models in (("heads", ("gat",)), ("aggr", ("sage",))):
            value = getattr(options, name)
            if value is None:
                continue
            if options.model in STOCK and options.model not in models:
                raise ConfigurationError(
                    f"--{name} {value} is for --model {models[0]}; {options.model} has no such option"
                )
            arguments[name] = value
        return cls(options.model, arguments)

    def make(self, seed: int = 0) -> torch.nn.Module:
        """The module, its weights drawn with `seed`.

        Raises:
            ConfigurationError: for an unknown model, module or factory.
            ModelError: if the factory returns something other than a module.
        """
        factory = _factory(self.model)
        torch.manual_seed(seed)
        model = factory(**_accepted(factory, self.arguments))
        if not isinstance(model, torch.nn.Module):
            raise ModelError(f"--model {self.model} returned {type(model).__name__}; a torch.nn.Module was expected")
        return model


def save_model(directory: str | Path, recipe: Recipe, model: torch.nn.Module) -> None:
    """Write a model so that `load_model` makes it again."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(recipe), indent=2) + "\n"
    write_atomically(directory / WEIGHTS, lambda stream: torch.save(model.state_dict(), stream))
    write_atomically(directory / DESCRIPTION, lambda stream: stream.write(text.encode()))


def load_model(directory: str | Path) -> torch.nn.Module:
    """The model saved there.

    Raises:
        ConfigurationError: if the directory is none that `save_model` wrote, or its weights fit no such model.
    """
    directory = Path(directory)
    try:
        recipe = Recipe(**json.loads((directory / DESCRIPTION).read_text()))
        weights = torch.load(directory / WEIGHTS, weights_only=True, map_location="cpu")
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise ConfigurationError(
            f"{directory} holds no readable model ({error}); give the directory of `lotan train --save`"
        ) from error
    model = recipe.make()
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ConfigurationError(f"the weights in {directory} do not fit --model {recipe.model}: {error}") from error
    return model


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
        return getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"--model {name}: {error}; expected an importable MODULE with a callable FACTORY"
        ) from error


def _accepted(factory: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Those arguments that the factory has parameters for; all of them for a stock model or `**kwargs`."""
    parameters = inspect.signature(factory).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}
