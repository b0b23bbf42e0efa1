"""The arguments that a model's forward asks for by name.

A model of this package takes `forward(x, graph)`. A model written with PyG or plain torch takes tensors instead, such as
`forward(x, edge_index, edge_weight)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from lotan.errors import ModelError

INDEX = ("edge_index", "adj_t")
"""The names under which a forward takes the edges, as int64 [2, num_edges]."""

WEIGHT = "edge_weight"

MISSING = {
    "edge_attr": "attributes of edges",
    "edge_type": "types of edges",
    "batch": "several graphs in one, told apart by a column `batch`",
}
"""Columns that PyG's models take and a graph does not have, each in words."""

FEATURES = "x"


@dataclass(frozen=True)
class Wanted:
    """The arguments that a forward takes as tensors.

    Attributes:
        features: the name of the argument for the vertex rows [num_vertices, width].
        index: the names of arguments for the edges, int64 [2, num_edges].
        weight: the name of the argument for the edges' weights [num_edges], or None if it is not passed.
    """

    features: str
    index: tuple[str, ...] = ()
    weight: str | None = None


def takes_tensors(model: torch.nn.Module) -> bool:
    """Return True if a model's forward takes tensors instead of `forward(x, graph)`."""
    parameters = _parameters(model)
    return parameters is not None and _takes_tensors(parameters)


def wanted(model: torch.nn.Module, weighted: bool) -> Wanted | None:
    """Return what a model's forward asks for, or None if it is a `forward(x, graph)`.

    An argument with a default is passed only if the graph has such a column.

    Args:
        model: the model.
        weighted: if True, the graph has weights.

    Raises:
        ModelError: forward asks for a column that the graph does not have.

    Example:
        >>> class Mine(torch.nn.Module):
        ...     def forward(self, x, edge_index, edge_weight=None):
        ...         return x
        >>> wanted(Mine(), weighted=False)
        Wanted(features='x', index=('edge_index',), weight=None)
    """
    parameters = _parameters(model)
    if parameters is None or not _takes_tensors(parameters):
        return None
    names = [parameter.name for parameter in parameters]
    features = FEATURES if FEATURES in names else next((n for n in names if n not in (*INDEX, WEIGHT)), FEATURES)
    has = (features, *INDEX, *([WEIGHT] if weighted else []))
    for parameter in parameters:
        if parameter.name not in has and parameter.default is parameter.empty:
            raise ModelError(_lacking(model, parameter.name, has))
    index = tuple(name for name in names if name in INDEX)
    return Wanted(features, index, WEIGHT if weighted and WEIGHT in names else None)


def _parameters(model: torch.nn.Module) -> list[inspect.Parameter] | None:
    """Return the parameters of a model's forward, or None if they are not known by name."""
    try:
        found = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):  # a forward that is not written in Python
        return None
    declared = getattr(getattr(model, "signature", None), "param_dict", None)
    if isinstance(declared, dict):  # torch_geometric.nn.Sequential takes anything, and names its arguments here
        return [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in declared]
    named = [one for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    if len(named) < len(found) and not any(parameter.name in INDEX for parameter in named):
        return None  # what the other arguments are is not known
    return named


def _takes_tensors(parameters: Iterable[inspect.Parameter]) -> bool:
    names = [parameter.name for parameter in parameters]
    required = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    return any(name in names for name in (*INDEX, WEIGHT, "edge_attr", "edge_type")) or (
        required == [FEATURES] and "graph" not in names
    )


def _lacking(model: torch.nn.Module, name: str, has: Iterable[Any]) -> str:
    start = f"{type(model).__name__}.forward asks for {name!r}"
    if name == WEIGHT:
        return (
            f"{start}, but the graph has no weights; name their column with Graph(weight=...), or give {name} a default"
        )
    what = f" ({MISSING[name]})" if name in MISSING else ""
    listed = ", ".join(str(one) for one in has)
    return f"{start}{what}, but the graph has only {listed}; give the argument a default, or leave it out"
