"""The replacement of the forwards of torch's and PyG's modules while a model is traced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

Table = Mapping[str, Callable[..., Any]]
"""Functions that run in place of forwards, by the full name of the class that has the forward."""


def replacement(module: torch.nn.Module, table: Table) -> Callable[..., Any] | None:
    """Return the function for a module, or None if it has none or a subclass has a forward of its own."""
    for kind in type(module).__mro__:
        function = table.get(f"{kind.__module__}.{kind.__qualname__}")
        if function is not None:
            own: Any = kind  # a class of modules
            return function if type(module).forward is own.forward else None
    return None


@contextmanager
def replaced(modules: Iterable[torch.nn.Module], table: Table, first: Any) -> Iterator[None]:
    """Let functions run in place of the modules' own forwards.

    Args:
        modules: the modules.
        table: the functions.
        first: the first argument of each function. The module and the arguments of forward follow.
    """
    functions = {module: replacement(module, table) for module in modules}
    found = {module: function for module, function in functions.items() if function is not None}
    for module, function in found.items():
        object.__setattr__(module, "forward", partial(function, first, module))
    try:
        yield
    finally:
        for module in found:
            object.__delattr__(module, "forward")
