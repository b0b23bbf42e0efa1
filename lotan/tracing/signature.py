"""The arguments that a model's forward asks for by name.

A model of this package takes `forward(x, graph)`. A model written with PyG or plain torch takes tensors instead, such as
`forward(x, edge_index, edge_weight)`. For a graph with several types of vertices, the arguments are dictionaries, which may
be called `x_dict` and `edge_index_dict`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from lotan.errors import ModelError
from lotan.nn.edge_index import GIVE
from lotan.tracing.graph_columns import GraphColumns

INDEX = ("edge_index", "adj_t")
"""The names under which a forward takes the edges, as int64 [2, num_edges]."""

OF_EDGES = ("edge_weight", "edge_attr", "edge_type")
"""The names under which a forward takes columns of edges."""

NUMBERS = "n_id"
"""The name under which a forward takes the numbers of the vertices, int64 [num_vertices], to look up learned rows."""

OF_LABELS = ("y", "label", "labels")
"""The names under which a forward takes the classes of vertices, int64 [num_vertices]."""

OF_MASKS = ("label_mask", "train_mask", "propagation_mask", "mask")
"""The names under which a forward takes what says whose classes it may see, bool [num_vertices]."""

LABELS = (*OF_LABELS, *OF_MASKS)
"""The names under which models take labels, or what says which of them they may see."""

MISSING = {
    "edge_weight": "weights of edges",
    "edge_attr": "attributes of edges",
    "edge_type": "types of edges",
    "batch": "several graphs in one, told apart by a column `batch`",
    **dict.fromkeys(LABELS, "labels as input"),
}
"""Columns that PyG's models take and a graph may lack, each in words."""

ADVICE = {
    "edge_weight": "name their column, Graph(..., weight=...) or the Param edgeWeightCol, or pass weight= to Graph.from_arrays",
    "batch": "name it, Graph(..., batch=...), or pass batch= to Graph.from_arrays",
    **GIVE,
    **dict.fromkeys(
        LABELS,
        "a forward that sees labels takes them together with a mask, forward(x, y, edge_index, label_mask), which is true at "
        "training vertices alone; a model that sees its own label would learn to copy it",
    ),
}
"""The way to give a graph a column that it lacks."""

WHOLE = ("data", "batch", "graph", "g")
"""The names under which a forward takes all tensors of a graph as its only argument, as many examples of PyG do."""

FEATURES = "x"
"""The name under which a forward usually takes the features."""

GROUPS = ("batch",)
"""The names under which a forward takes the group of each vertex, int64 [num_vertices]."""

BY_TYPE = "_dict"
"""The ending of arguments that are dictionaries with a tensor for each type of vertices or each relation."""

ONE_TYPE = (
    "{}.forward takes a graph of one type of vertices, but this one has the types {}; give it x_dict and edge_index_dict, as "
    "models of torch_geometric's HeteroConv and to_hetero do"
)
SEVERAL_TYPES = (
    "{}.forward asks for {!r}, which has a tensor for each type of vertices; train it on a lotan.HeteroGraph"
)


@dataclass(frozen=True)
class Wanted:
    """The arguments that a forward takes as tensors.

    Attributes:
        features: the name of the argument for the vertex rows [num_vertices, width]; "" if there is none.
        index: the names of arguments for the edges, int64 [2, num_edges].
        of_edges: the names of the arguments for columns of edges: weights "edge_weight" [num_edges], attributes
            "edge_attr" [num_edges, width] and types "edge_type", int64 [num_edges].
        numbers: the name of the argument for the numbers of the vertices, int64 [num_vertices]; "" if there is none.
        groups: the names of the arguments for the group of each vertex, int64 [num_vertices].
        labels: the name of the argument for classes, int64 [num_vertices], and that for a mask of those that may be seen,
            bool [num_vertices]; or () if forward takes none.
        whole: the name of the argument for one object that has these as attributes; "" if there is none.
    """

    features: str
    index: tuple[str, ...] = ()
    of_edges: tuple[str, ...] = ()
    numbers: str = ""
    groups: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    whole: str = ""


def takes_labels(model: torch.nn.Module) -> bool:
    """Return True if a model's forward asks for classes as input, and for a mask of those that it may see."""
    return len(_labels(_parameters(model) or [])) == 2


def _labels(parameters: list[inspect.Parameter]) -> tuple[str, ...]:
    """Return the names of the arguments for classes and for their mask that a forward requires, or ()."""
    required = _required(parameters)
    found = [next((name for name in required if name in names), None) for names in (OF_LABELS, OF_MASKS)]
    return () if None in found else tuple(name for name in found if name is not None)


def takes_tensors(model: torch.nn.Module) -> bool:
    """Return True if a model's forward takes tensors instead of `forward(x, graph)`."""
    parameters = _parameters(model)
    return parameters is not None and _takes_tensors(parameters)


def wanted(model: torch.nn.Module, columns: GraphColumns) -> Wanted | None:
    """Return what a model's forward asks for, or None if it is a `forward(x, graph)`.

    An argument with a default is passed only if the graph has such a column.

    Args:
        model: the model.
        columns: the columns that the graph has.

    Raises:
        ModelError: forward asks for a column that the graph does not have, or for one type of vertices where there are
            several.

    Example:
        >>> class Mine(torch.nn.Module):
        ...     def forward(self, x, edge_index, edge_weight=None):
        ...         return x
        >>> wanted(Mine(), GraphColumns(width=8))
        Wanted(features='x', index=('edge_index',), of_edges=(), numbers='', groups=(), labels=(), whole='')
    """
    parameters = _parameters(model)
    if parameters is None or not _takes_tensors(parameters):
        if columns.types is not None:
            raise ModelError(ONE_TYPE.format(type(model).__name__, ", ".join(columns.types.names)))
        return None
    whole = _whole(parameters)
    if whole:
        if columns.types is not None:
            raise ModelError(ONE_TYPE.format(type(model).__name__, ", ".join(columns.types.names)))
        has = columns.of_edges if takes_attributes(model) else (n for n in columns.of_edges if n != "edge_attr")
        return Wanted(FEATURES, INDEX[:1], tuple(has), whole=whole)
    names = [parameter.name for parameter in parameters]
    features = next((name for name in names if _plain(name) == FEATURES), None)
    others = (*INDEX, *OF_EDGES, *GROUPS, *LABELS, NUMBERS)
    numbers = next((name for name in names if _plain(name) == NUMBERS), "")
    labels = _labels(parameters) if columns.label_rate is not None else ()
    features = features or next((name for name in names if _plain(name) not in others), "")
    has = (features or FEATURES, *INDEX, *columns.of_edges, *(GROUPS if columns.groups is not None else ()), *labels)
    required = _required(parameters)
    for name in required:
        if columns.types is None and name.endswith(BY_TYPE) and _plain(name) in (FEATURES, *INDEX, *OF_EDGES, NUMBERS):
            raise ModelError(SEVERAL_TYPES.format(type(model).__name__, name))
        if _plain(name) not in has and name not in (features, numbers):
            raise ModelError(_lacking(model, name, has))
    index = tuple(name for name in names if _plain(name) in INDEX)
    asked = {*required} | ({*names} if takes_attributes(model) else {n for n in names if _plain(n) != "edge_attr"})
    of_edges = (name for column in columns.of_edges for name in names if _plain(name) == column and name in asked)
    groups = tuple(name for name in names if name in GROUPS and columns.groups is not None)
    return Wanted(features, index, tuple(of_edges), numbers, groups, labels)


def takes_attributes(model: torch.nn.Module) -> bool:
    """Return False if a model has layers that may be made for attributes of edges, and all were made without.

    Such layers of PyG have `edge_dim=None`. Some of them fail if they are given attributes all the same.
    """
    found = [vars(module)["edge_dim"] for module in model.modules() if "edge_dim" in vars(module)]
    return not found or any(width is not None for width in found)


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
    if len(named) < len(found) and not any(_plain(parameter.name) in INDEX for parameter in named):
        return None  # what the other arguments are is not known
    return named


def _takes_tensors(parameters: list[inspect.Parameter]) -> bool:
    if _whole(parameters):
        return True
    names = [_plain(parameter.name) for parameter in parameters]
    return any(name in names for name in (*INDEX, *OF_EDGES)) or (
        [_plain(name) for name in _required(parameters)] == [FEATURES] and "graph" not in names
    )


def _whole(parameters: list[inspect.Parameter]) -> str:
    """Return the name of the argument for a whole graph, or "" if forward takes none."""
    required = _required(parameters)
    return required[0] if len(required) == 1 and required[0] in WHOLE and parameters[0].name == required[0] else ""


def called_with_graph(model: torch.nn.Module) -> str:
    """Return what to say of a forward that was called as `forward(x, graph)` though no argument is called `graph`, or "".

    Nothing in the names of its arguments says that it takes tensors.
    """
    parameters = _parameters(model)
    try:
        names = list(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):
        return ""
    if "graph" in names or (parameters is not None and _takes_tensors(parameters)):
        return ""
    return (
        f"forward({', '.join(names)}) was called with the features and a graph, because none of its arguments is called "
        "edge_index; if it takes tensors, name them x and edge_index"
    )


def _plain(name: str) -> str:
    """Return the name of an argument without the ending of dictionaries."""
    return name.removesuffix(BY_TYPE)


def _required(parameters: Iterable[inspect.Parameter]) -> list[str]:
    """Return the names of the parameters without a default."""
    return [parameter.name for parameter in parameters if parameter.default is parameter.empty]


def _lacking(model: torch.nn.Module, name: str, has: Iterable[str]) -> str:
    column = _plain(name)
    what = f" ({MISSING[column]})" if column in MISSING else ""
    advice = f"{ADVICE[column]}; or " if column in ADVICE else ""
    return (
        f"{type(model).__name__}.forward asks for {name!r}{what}, but the graph has only {', '.join(has)}; "
        f"{advice}give the argument a default, or leave it out"
    )
