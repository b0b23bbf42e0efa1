"""The graph operators as torch operators, which a layer calls eagerly and while it is traced.

Each operator is registered with torch as a composite of plain differentiable operators. An eager call is therefore
differentiated as they are, and `lotan.tracing` finds the call itself in its graph. `planner.spec` defines what the
operators mean. Here they also take the tensors that they read, which tracing drops.

    index [2, num_edges] int64: row 0 holds the source of every edge, row 1 its destination.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from planner.spec import SOFTMAX_EPSILON

_LIBRARY = torch.library.Library("lotan", "DEF")
_LIBRARY.define("scatter(Tensor x, Tensor index, str end, str edges) -> Tensor")
_LIBRARY.define("aggregate(Tensor messages, Tensor index, SymInt num_vertices, str kind, str edges) -> Tensor")
_LIBRARY.define("edge_softmax(Tensor scores, Tensor index, SymInt num_vertices, str edges) -> Tensor")
_LIBRARY.define("edge_weight(Tensor weight, str edges) -> Tensor")
_LIBRARY.define("edge_column(Tensor column, str name, str edges) -> Tensor")
_LIBRARY.define("vertex_input(Tensor column, str name) -> Tensor")
_LIBRARY.define("shown(Tensor x, float p) -> Tensor")
_LIBRARY.define("total(Tensor x, str kind) -> Tensor")
_LIBRARY.define("total_products(Tensor x, Tensor y) -> Tensor")
_LIBRARY.define("times_total(Tensor x, Tensor total) -> Tensor")
_LIBRARY.define("greatest(Tensor x) -> Tensor")
_LIBRARY.define("group_total(Tensor x, Tensor group, int groups, str kind) -> Tensor")
_LIBRARY.define("group_rows(Tensor table, Tensor group) -> Tensor")
_LIBRARY.define("bounded(Tensor x, int limit) -> Tensor")
_LIBRARY.define("track(Tensor rows, Tensor buffer) -> Tensor")

_REDUCTIONS = {"max": "amax", "min": "amin"}


def _scatter(x: Tensor, index: Tensor, end: str, edges: str) -> Tensor:
    return x.index_select(0, index[0 if end == "source" else 1])  # [num_edges, *shape]


def _reduce(messages: Tensor, index: Tensor, num_vertices: int, kind: str) -> Tensor:
    """Reduce messages by destination. A vertex without messages gets zero."""
    if kind in _REDUCTIONS:
        return _extreme(messages, index, num_vertices, kind)
    total = messages.new_zeros((num_vertices, *messages.shape[1:])).index_add(0, index[1], messages)
    return total if kind == "sum" else total / _beside(_in_counts(messages, index, num_vertices).clamp(min=1), total)


def _extreme(messages: Tensor, index: Tensor, num_vertices: int, kind: str) -> Tensor:
    """Return the greatest or least message of each destination. Equal messages share the gradient evenly."""
    # The start is infinity and not zero: scatter_reduce gives the start a share of the gradient where it equals the result.
    start = messages.new_full((num_vertices, *messages.shape[1:]), -torch.inf if kind == "max" else torch.inf)
    destination = _beside(index[1], messages).expand_as(messages)
    extreme = start.scatter_reduce(0, destination, messages, _REDUCTIONS[kind], include_self=False)
    return extreme.masked_fill(_beside(_in_counts(messages, index, num_vertices) == 0, extreme), 0.0)


def _in_counts(messages: Tensor, index: Tensor, num_vertices: int) -> Tensor:
    return messages.new_zeros(num_vertices).index_add(0, index[1], messages.new_ones(index.shape[1]))


def _beside(rows: Tensor, like: Tensor) -> Tensor:
    """Return one number for each row, [rows], in a shape that broadcasts over `like`, [rows, *shape]."""
    return rows.view(-1, *[1] * (like.dim() - 1))


def _aggregate(messages: Tensor, index: Tensor, num_vertices: int, kind: str, edges: str) -> Tensor:
    if isinstance(messages, FakeTensor):
        kind = "sum"  # a trace has no numbers, and the others take many more operators to come to the same shape
    return _reduce(messages, index, num_vertices, kind)  # [num_vertices, *shape]


def _edge_softmax(scores: Tensor, index: Tensor, num_vertices: int, edges: str) -> Tensor:
    if isinstance(scores, FakeTensor):  # a trace, as above
        return _reduce(scores, index, num_vertices, "sum").index_select(0, index[1])
    # The greatest score of a destination is subtracted before exp: it cancels out, and so needs no gradient.
    greatest = _reduce(scores.detach(), index, num_vertices, "max").index_select(0, index[1])
    exponentials = (scores - greatest).exp()
    total = _reduce(exponentials, index, num_vertices, "sum").index_select(0, index[1])
    return exponentials / (total + SOFTMAX_EPSILON)  # [num_edges, *shape]


def _edge_weight(weight: Tensor, edges: str) -> Tensor:
    return weight.clone()  # an operator may not return its own input


def _edge_column(column: Tensor, name: str, edges: str) -> Tensor:
    return column.clone()


def _vertex_input(column: Tensor, name: str) -> Tensor:
    return column.clone()


def _shown(x: Tensor, p: float) -> Tensor:
    return torch.ones_like(x)  # plain tensors draw nothing


def _total(x: Tensor, kind: str) -> Tensor:
    match kind:
        case "sum":
            return x.sum(0, keepdim=True).expand(x.shape).clone()  # [num_vertices, *shape]
        case "mean":
            return x.mean(0, keepdim=True).expand(x.shape).clone()
        case "sample":
            return (x.sum(0, keepdim=True) / (x.shape[0] - 1)).expand(x.shape).clone()
    moments = torch.stack([x.mean(0, keepdim=True), x.var(0, correction=0, keepdim=True)], dim=-1)
    return moments.expand(*x.shape, 2).clone()  # [num_vertices, *shape, 2]


def _total_products(x: Tensor, y: Tensor) -> Tensor:
    return (x.t() @ y).expand(x.shape[0], x.shape[1], y.shape[1]).clone()  # [num_vertices, *x's shape, *y's shape]


def _times_total(x: Tensor, total: Tensor) -> Tensor:
    return x @ total[0]  # all rows of the total are alike


def _greatest(x: Tensor) -> Tensor:
    return x.detach().amax(0, keepdim=True).expand(x.shape).clone()  # [num_vertices, *shape]


def _group_total(x: Tensor, group: Tensor, groups: int, kind: str) -> Tensor:
    if kind == "sum":
        return x.new_zeros((groups, *x.shape[1:])).index_add(0, group, x)  # [groups, *shape]
    start = x.new_full((groups, *x.shape[1:]), -torch.inf)
    return start.scatter_reduce(0, _beside(group, x).expand_as(x), x.detach(), "amax")


def _group_rows(table: Tensor, group: Tensor) -> Tensor:
    return table.index_select(0, group)  # [num_vertices, *shape]


def _bounded(x: Tensor, limit: int) -> Tensor:
    return x.clone()


def _track(rows: Tensor, buffer: Tensor) -> Tensor:
    return rows.clone()


_LIBRARY.impl("scatter", _scatter, "CompositeImplicitAutograd")
_LIBRARY.impl("aggregate", _aggregate, "CompositeImplicitAutograd")
_LIBRARY.impl("edge_softmax", _edge_softmax, "CompositeImplicitAutograd")
_LIBRARY.impl("edge_weight", _edge_weight, "CompositeImplicitAutograd")
_LIBRARY.impl("edge_column", _edge_column, "CompositeImplicitAutograd")
_LIBRARY.impl("vertex_input", _vertex_input, "CompositeImplicitAutograd")
_LIBRARY.impl("shown", _shown, "CompositeImplicitAutograd")
_LIBRARY.impl("total", _total, "CompositeImplicitAutograd")
_LIBRARY.impl("total_products", _total_products, "CompositeImplicitAutograd")
_LIBRARY.impl("times_total", _times_total, "CompositeImplicitAutograd")
_LIBRARY.impl("greatest", _greatest, "CompositeImplicitAutograd")
_LIBRARY.impl("group_total", _group_total, "CompositeImplicitAutograd")
_LIBRARY.impl("group_rows", _group_rows, "CompositeImplicitAutograd")
_LIBRARY.impl("bounded", _bounded, "CompositeImplicitAutograd")
_LIBRARY.impl("track", _track, "CompositeImplicitAutograd")
