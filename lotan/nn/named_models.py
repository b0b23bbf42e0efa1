"""The models by name: stock models, and users' own factories. Their weights are drawn with a seed."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch

import lotan.nn
from lotan.arguments import nearest
from lotan.errors import ConfigurationError, LotanError, ModelError
from lotan.files import expanded
from lotan.nn.unwrapping import unwrapped

Factory = Callable[..., torch.nn.Module]

STOCK = {"gcn": "GCN", "sage": "GraphSAGE", "gin": "GIN", "gat": "GAT", "mlp": "MLP"}
OWN: Mapping[str, tuple[str, ...]] = {"heads": ("gat",), "aggr": ("sage",)}
"""Arguments that only some stock models have."""


def factory_of(name: str, option: str) -> Factory:
    """Return the function that makes models of a name.

    Args:
        name: a key of `STOCK`, MODULE:FACTORY, or FILE.py:FACTORY.
        option: the option with which the name was given, for the error's text.

    Raises:
        ConfigurationError: the model, the module or the factory is unknown.
    """
    if name in STOCK:
        return cast(Factory, getattr(lotan.nn, STOCK[name]))
    module_name, colon, attribute = name.rpartition(":")
    if not colon:
        by_class = {kind.lower(): short for short, kind in STOCK.items()}
        near = nearest(name.lower(), [*STOCK, *by_class])
        meant = f"did you mean {by_class.get(near, near)}? Give" if near else "give"
        raise ConfigurationError(
            f"unknown model {name!r}; {meant} one of {', '.join(STOCK)}, or MODULE:FACTORY or FILE.py:FACTORY for your own"
        )
    if os.getcwd() not in sys.path:  # the console script, unlike `python -m`, does not look here
        sys.path.insert(0, os.getcwd())
    try:
        module = _module_in(expanded(module_name)) if module_name.endswith(".py") else import_module(module_name)
        factory = getattr(module, attribute)
        if not callable(factory):
            raise TypeError(f"{attribute!r} is a {type(factory).__name__}")
    except Exception as error:  # an import runs a user's code, which may raise any error
        raise ConfigurationError(
            f"{option} {name}: {type(error).__name__}: {error}; expected an importable MODULE with a callable FACTORY"
        ) from error
    return cast(Factory, factory)


def _module_in(file: Path) -> ModuleType:
    """Return the module in a Python file, run once a process. Modules beside the file can be imported by it."""
    place = file.resolve()
    name = f"lotan_model_{hashlib.sha256(str(place).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, place)
    if spec is None or spec.loader is None or not place.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    if str(place.parent) not in sys.path:
        sys.path.insert(0, str(place.parent))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def accepted(factory: Factory, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for which the factory has parameters. A stock model, or one with `**kwargs`, accepts all."""
    parameters = inspect.signature(factory).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(arguments)
    return {name: value for name, value in arguments.items() if name in parameters}


def made(factory: Factory, arguments: Mapping[str, Any], seed: int, said: str) -> torch.nn.Module:
    """Return a model whose weights were drawn with a seed. Equal arguments give equal weights.

    The state of torch's generator is restored afterwards, so that other random numbers do not change.

    Args:
        factory: a function that `factory_of` returned.
        arguments: arguments by name. Those that the factory does not accept are left out.
        seed: the seed of the weights.
        said: the model in words, for the error's text.

    Raises:
        ModelError: the factory fails, or its result is no module.
        ConfigurationError: a stock model refuses an argument.
    """
    passed = accepted(factory, arguments)
    if factory is lotan.nn.MLP:
        passed.setdefault("norm", None)  # as the other stock models have it; its own default is batch normalisation
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = factory(**passed)
    except LotanError:
        raise
    except Exception as error:  # a factory is a user's code; torch raises a RuntimeError if memory is short
        given = ", ".join(f"{name}={value!r}" for name, value in passed.items())
        raise ModelError(f"{said} failed with {given or 'no arguments'}: {type(error).__name__}: {error}") from error
    if not isinstance(model, torch.nn.Module):
        raise ModelError(f"{said} returned {type(model).__name__}; a torch.nn.Module was expected")
    return unwrapped(model)
