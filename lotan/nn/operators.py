"""The graph operators as torch operators: what a layer calls, eagerly or while it is traced.

Each is registered for torch as a composite of plain differentiable operators: an eager call differentiates as they do, and
`lotan.tracing` finds the call itself in its graph. Their meaning is fixed in `planner.spec`; here they also take the tensors
they read, which tracing drops.

    index [2, num_edges] int64: row 0 holds the source of every edge, row 1 its destination.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("lotan", "DEF")
_LIBRARY.define("scatter(Tensor x, Tensor index, str end, str edges) -> Tensor")
_LIBRARY.define("aggregate(Tensor messages, Tensor index, SymInt num_vertices, str kind, str edges) -> Tensor")
_LIBRARY.define("edge_softmax(Tensor scores, Tensor index, SymInt num_vertices, str edges) -> Tensor")
_LIBRARY.define("edge_weight(Tensor weight, str edges) -> Tensor")
_LIBRARY.define("vertex_input(Tensor column, str name) -> Tensor")

_REDUCTIONS = {"max": "amax", "min": "amin"}


def _scatter(x: Tensor, index: Tensor, end: str, edges: str) -> Tensor:
    return x.index_select(0, index[0 if end == "source" else 1])  # [num_edges, *shape]


def _reduce(messages: Tensor, index: Tensor, num_vertices: int, kind: str) -> Tensor:
    """Messages reduced by destination; zero where there are none. Ties of max and min share the gradient evenly."""
    zeros = messages.new_zeros((num_vertices, *messages.shape[1:]))
    if kind in _REDUCTIONS:
        destination = index[1].view(-1, *[1] * (messages.dim() - 1)).expand_as(messages)
        return zeros.scatter_reduce(0, destination, messages, _REDUCTIONS[kind], include_self=False)
    total = zeros.index_add(0, index[1], messages)
    if kind == "sum":
        return total
    count = messages.new_zeros(num_vertices).index_add(0, index[1], messages.new_ones(messages.shape[0]))
    return total / count.clamp(min=1).view(-1, *[1] * (messages.dim() - 1))


def _aggregate(messages: Tensor, index: Tensor, num_vertices: int, kind: str, edges: str) -> Tensor:
    return _reduce(messages, index, num_vertices, kind)  # [num_vertices, *shape]


def _edge_softmax(scores: Tensor, index: Tensor, num_vertices: int, edges: str) -> Tensor:
    # The greatest score of a destination is subtracted before exp: it cancels out, and so needs no gradient.
    greatest = _reduce(scores.detach(), index, num_vertices, "max").index_select(0, index[1])
    exponentials = (scores - greatest).exp()
    total = _reduce(exponentials, index, num_vertices, "sum").index_select(0, index[1])
    return exponentials / (total + 1e-16)  # [num_edges, *shape]


def _edge_weight(weight: Tensor, edges: str) -> Tensor:
    return weight.clone()  # an operator may not return its own input


def _vertex_input(column: Tensor, name: str) -> Tensor:
    return column.clone()


_LIBRARY.impl("scatter", _scatter, "CompositeImplicitAutograd")
_LIBRARY.impl("aggregate", _aggregate, "CompositeImplicitAutograd")
_LIBRARY.impl("edge_softmax", _edge_softmax, "CompositeImplicitAutograd")
_LIBRARY.impl("edge_weight", _edge_weight, "CompositeImplicitAutograd")
_LIBRARY.impl("vertex_input", _vertex_input, "CompositeImplicitAutograd")
