"""How values on edges were computed, so that they can be computed again for the edges of another set.

PyG adds self-loops to edges that have attributes already, which may have come from the graph or from layers of the model.
In a trace, the edges with added self-loops are another edge set. A value that follows from columns of edges, rows of
vertices and parameters alone is computed anew for that set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from planner.spec import EdgeSet

DROPOUTS = ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
RANDOM = (*DROPOUTS, "rand", "randn", "rand_like", "randn_like", "bernoulli")
"""The functions that draw random numbers. A second call would draw other numbers."""


class Recipe:
    """How one value on edges was computed.

    Args:
        make: a function that computes it for an edge set.
        drawn: if True, it depends on random numbers (default: False).
    """

    def __init__(self, make: Callable[[EdgeSet], Tensor], drawn: bool = False) -> None:
        self._make, self.drawn = make, drawn
        self._made: dict[EdgeSet, Tensor] = {}

    def __call__(self, edges: EdgeSet) -> Tensor:
        """Return the value for an edge set. It is computed once."""
        if edges not in self._made:
            self._made[edges] = self._make(edges)
        return self._made[edges]


def recipe_of(
    func: Callable[..., Any],
    args: Any,
    kwargs: Any,
    known: Callable[[Any], Recipe | None],
    of_edges: Callable[[Any], bool],
    count: Callable[[EdgeSet], Any],
) -> Recipe | None:
    """Return the recipe of what a function of torch returns, or None if it cannot be computed again.

    Args:
        func: the function.
        args: its arguments, before it writes to any of them.
        kwargs: its keyword arguments.
        known: returns the recipe of an argument, or None if it has none.
        of_edges: returns True for a tensor with a row for each edge, and for the number of edges.
        count: returns the number of edges of an edge set.
    """
    name = getattr(func, "__name__", "")
    drawn = draws(func, args, kwargs)

    def taken(argument: Any) -> Any:
        """Return an argument, or its recipe in its place."""
        nonlocal drawn
        if isinstance(argument, torch.Size):
            return tuple(taken(size) for size in argument)
        if not of_edges(argument):
            return argument
        found = known(argument) if isinstance(argument, Tensor) else Recipe(count)
        if found is None:
            raise _LostError
        drawn = drawn or found.drawn
        return found

    try:
        inputs = tree_map(taken, (args, kwargs))
    except _LostError:
        return None

    def again(edges: EdgeSet) -> Tensor:
        given, named = tree_map(lambda value: value(edges) if isinstance(value, Recipe) else value, inputs)
        if writes_to_input(name):
            given = (given[0].clone(), *given[1:])  # what the function writes to is kept for other readers
        result: Tensor = func(*given, **named)
        return result

    return Recipe(again, drawn)


def draws(func: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Return True if a function draws random numbers. A dropout of probability 0, or in evaluation, draws none."""
    name = getattr(func, "__name__", "").removesuffix("_")
    if name not in DROPOUTS:
        return name in RANDOM
    given = dict(zip(("input", "p", "training"), args, strict=False)) | kwargs
    return bool(given.get("p", 0.5)) and bool(given.get("training", given.get("train", True)))


def writes_to_input(name: str) -> bool:
    """Return True if a function of torch with this name writes to its first argument."""
    return name.endswith("_") and not name.startswith("_")


class _LostError(Exception):
    """An argument cannot be computed again."""
