"""Self-loops that are removed from edges and added to them, as the functions of torch_geometric.utils.loop do it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from lotan.tracing.pyg.edge_tensors import EdgeTensors
from lotan.tracing.pyg.meanings import Index, beside
from planner.edge_columns import LOOP, REDUCTIONS
from planner.edge_sets import as_given, with_loops
from planner.spec import EdgeSet

BETWEEN = "adds self-loops to edges between vertices of two types, which can have none"
TWICE = "adds self-loops with values to edges that have some; call remove_self_loops first, or add_remaining_self_loops instead"
FILL = "gives added self-loops the value {!r}; expected a number, a tensor, or one of {}"
SEVERAL = "adds self-loops beside those of edges that a mask chose; call add_remaining_self_loops instead"
VECTORS = "adds self-loops with vectors or types to edges that a mask chose; call remove_self_loops and add_self_loops instead"

Attributes = Tensor | None


def removed(tensors: EdgeTensors, index: Index, attributes: Attributes) -> tuple[Index, Attributes]:
    """Remove the self-loops. Their rows of `attributes` stay, and count as nothing."""
    if index.without_loops:
        return index, attributes
    given = as_given(index.edges)
    if index.edges != given and attributes is not None:
        attributes = tensors.on(attributes, given)
    times = tensors.times_without_loops(given, index.times)
    return replace(index, edges=given, times=times, without_loops=True, chosen=index.times), attributes


def added(tensors: EdgeTensors, index: Index, attributes: Attributes, fill: Any) -> tuple[Index, Attributes]:
    """Add a self-loop to each vertex, beside those that are there."""
    looped = _looped(tensors, index)
    if index.without_loops:
        if index.chosen is not None:
            looped = replace(looped, times=tensors.times_with_loops(looped.edges, index.chosen))
        return looped, None if attributes is None else _joined(tensors, index, attributes, fill, all_loops=True)
    if index.times is not None:
        raise tensors.refuse(SEVERAL)
    if attributes is not None:
        raise tensors.refuse(TWICE)
    return replace(looped, times=_one_more(tensors, index.edges)), None


def added_where_missing(
    tensors: EdgeTensors, index: Index, attributes: Attributes, fill: Any
) -> tuple[Index, Attributes]:
    """Add a self-loop to each vertex that has none, and keep one loop of each vertex that has some."""
    if index.without_loops:
        return added(tensors, index, attributes, fill)
    looped = _looped(tensors, index)
    if index.times is not None:  # a mask chose edges, and those that it left out are no self-loops either
        looped = replace(looped, times=tensors.times_with_loops(looped.edges, index.times))
        return looped, None if attributes is None else _with_chosen(tensors, index, attributes, fill)
    if attributes is None or index.edges == looped.edges:  # every vertex has a self-loop in that edge set
        return looped, attributes
    own = _own(tensors, index, attributes, fill)
    return looped, _joined(tensors, index, attributes, fill, all_loops=False) if own is None else own


def _looped(tensors: EdgeTensors, index: Index) -> Index:
    """Return the edges with one self-loop at each vertex."""
    looped = with_loops(index.edges)
    if looped not in tensors.graph.edge_sets:
        raise tensors.refuse(BETWEEN)
    return Index(looped, turned=index.turned)


def _one_more(tensors: EdgeTensors, edges: EdgeSet) -> Tensor:
    """Return how often each edge counts when every vertex gets one more self-loop, float32 [num_edges].

    The edges have no values, so all self-loops of a vertex can be one edge that counts several times.
    """
    looped = with_loops(edges)
    loop = tensors.is_loop(looped)
    if edges == looped:
        return 1.0 + loop.to(torch.float32)
    had = tensors.aggregate(tensors.is_loop(edges).to(torch.float32), Index(edges).ends, "sum")
    return torch.where(loop, 1.0 + tensors.scatter(had, Index(looped).ends), 1.0)


def _own(tensors: EdgeTensors, index: Index, attributes: Tensor, fill: Any) -> Tensor | None:
    """Return a column of the graph's edges with the self-loops that are missing, or None if `attributes` is no column."""
    name, _ = tensors.columns.get(attributes) or ("", "")
    number, looped = _is_number(fill), with_loops(index.edges)
    if name == "edge_weight" and fill in (None, 1):
        return tensors.weight(looped)
    reduced = not number and fill in REDUCTIONS and not index.turned  # such a column has the mean over in-edges
    if name == "edge_attr" and (number or fill is None or reduced):
        return tensors.column(name, looped, 1.0 if fill is None else fill)
    if name == "edge_type" and (number or fill is None):
        return tensors.column(name, looped, 1 if fill is None else int(fill))
    return None


def _is_number(fill: Any) -> bool:
    return isinstance(fill, int | float) and not isinstance(fill, bool)


def _joined(tensors: EdgeTensors, index: Index, attributes: Tensor, fill: Any, all_loops: bool) -> Tensor:
    """Return values on edges and self-loops. The self-loops that were added, or all of them, get the value of `fill`."""
    looped = with_loops(index.edges)
    values = tensors.on(attributes, looped)
    kind = tensors.column(LOOP, looped, 2).squeeze(-1)  # 2 for a loop that was added, 1 for another loop
    return torch.where(
        beside(kind > (0 if all_loops else 1), values), _of_loops(tensors, index, attributes, fill), values
    )


def _with_chosen(tensors: EdgeTensors, index: Index, attributes: Tensor, fill: Any) -> Tensor:
    """Return values on edges that a mask chose and on self-loops. A vertex without a chosen one gets the value of `fill`.

    A vertex keeps the value of the self-loop that it has without a mask, if the mask chose it, or else the greatest of those
    that the mask chose. In a graph, the first of these is the greatest of all.
    """
    if attributes.dim() != 1 or not attributes.is_floating_point():
        raise tensors.refuse(VECTORS)
    times = cast(Tensor, index.times)
    looped, loop = _looped(tensors, index), tensors.is_loop(index.edges).to(torch.float32)
    chosen = replace(index, times=loop * times)
    there = tensors.scatter(tensors.aggregate(loop, index.ends, "sum"), looped.ends) > 0
    greatest = tensors.scatter(tensors.aggregate(attributes, chosen.ends, "max"), looped.ends)
    values = tensors.on(attributes, looped.edges)
    if tensors.is_drawn(times):  # the edges with added self-loops do not tell which of several were drawn
        own = torch.minimum(
            values, greatest
        )  # the value without a mask is the greatest of the graph, if it is a weight
    else:
        own = torch.where(tensors.on(times, looped.edges) > 0, values, greatest)
    own = torch.where(there, own, _of_loops(tensors, index, attributes, fill))
    return torch.where(tensors.is_loop(looped.edges), own, values)


def _of_loops(tensors: EdgeTensors, index: Index, attributes: Tensor, fill: Any) -> Any:
    """Return the values of self-loops: a number, a tensor [*shape], or values on edges [num_edges, *shape]."""
    if fill is None or _is_number(fill):
        number = 1.0 if fill is None else float(fill)
        return number if attributes.is_floating_point() else int(number)
    if isinstance(fill, Tensor):
        given = _constant(fill).to(attributes.dtype)
        return given if given.dim() < attributes.dim() else given.squeeze(0)
    if fill not in REDUCTIONS or not attributes.is_floating_point():
        raise tensors.refuse(FILL.format(fill, ", ".join(REDUCTIONS)))
    kind = "sum" if fill == "add" else fill
    reduced = tensors.aggregate(attributes, index.ends, kind)
    return tensors.scatter(reduced, Index(with_loops(index.edges)).ends)


def _constant(fill: Tensor) -> Tensor:
    """Return a tensor of numbers as one that travels with the model. A tensor of the trace is returned as it is."""
    if isinstance(fill, torch.nn.Parameter) or fill.dim() > 2 or type(fill) is not Tensor:
        return fill
    with _disable_current_modes():
        numbers = fill.reshape(-1).tolist()
    return torch.stack([torch.full((), float(number)) for number in numbers]).view(fill.shape)
