"""The functions of PyG that depend on the values of edges, and what a trace calls instead of them.

A replacement runs only where the edges are those of the trace. `Leaf.call` asks this once, for all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lotan.tracing.pyg import loops
from lotan.tracing.pyg.attention import to_dense_batch
from lotan.tracing.pyg.edge_tensors import EdgeTensors
from lotan.tracing.pyg.meanings import End, Index, with_rows_first
from lotan.tracing.pyg.refused_functions import ARGUMENT, REFUSED_FUNCTIONS, mask_feature, refusing
from lotan.tracing.pyg.typed_layers import han_group

NO_NUMBER = "reads the greatest number of a column; pass num_classes to one_hot"
WITHOUT_NUMBER = (
    "adds self-loops to the vertices up to the greatest number in edge_index, which leaves out those behind it; pass "
    "num_nodes=x.size(0)"
)
ROWS_FIRST = "aggregates in another dimension than the first; keep one row per edge, first"
_REDUCTIONS = {"sum": "sum", "add": "sum", "mean": "mean", "max": "max", "min": "min", "amax": "max", "amin": "min"}


@dataclass(frozen=True)
class Leaf:
    """A function of PyG that a trace replaces.

    Attributes:
        module: the module that defines it.
        name: its name there.
        argument: the argument that must be edges of the trace, or "" for a function that is always replaced.
        replacement: a function that is called with the edges of the trace, the argument's meaning (an `Index` or an
            `End`), and all arguments by their names. Without an argument to ask, it is called with the edges of the trace,
            the original function, and all arguments as they were given.
    """

    module: str
    name: str
    argument: str
    replacement: Callable[..., Any]
    of_groups: Callable[..., Any] | None = None  # the replacement where the argument has the groups of vertices

    def call(self, tensors: EdgeTensors, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call the replacement, or the original for tensors that are not edges of the trace."""
        if not self.argument:
            return self.replacement(tensors, original, *args, **kwargs)
        bound = inspect.signature(original).bind(*args, **kwargs)
        bound.apply_defaults()
        asked = bound.arguments[self.argument]
        if self.of_groups is not None and tensors.groups.get(asked) is not None:
            return self.of_groups(tensors, **bound.arguments)
        meaning = tensors.indices.get(asked) or tensors.ends.get(asked)
        return original(*args, **kwargs) if meaning is None else self.replacement(tensors, meaning, **bound.arguments)


def remove_self_loops(tensors: EdgeTensors, index: Index, edge_attr: Any, **_: Any) -> tuple[Tensor, Tensor | None]:
    """Remove the self-loops."""
    rest, edge_attr = loops.removed(tensors, index, edge_attr)
    return tensors.index(rest), edge_attr


def add_self_loops(
    tensors: EdgeTensors, index: Index, edge_attr: Any, fill_value: Any, num_nodes: Any = None, **_: Any
) -> tuple[Tensor, Tensor | None]:
    """Add a self-loop to each vertex."""
    whole, edge_attr = loops.added(tensors, index, edge_attr, fill_value)
    if num_nodes is None:
        raise tensors.refuse(WITHOUT_NUMBER)
    return tensors.index(whole), edge_attr


def add_remaining_self_loops(
    tensors: EdgeTensors, index: Index, edge_attr: Any, fill_value: Any, num_nodes: Any = None, **_: Any
) -> tuple[Tensor, Tensor | None]:
    """Add a self-loop to each vertex that has none, and keep one loop of each vertex that has some."""
    whole, edge_attr = loops.added_where_missing(tensors, index, edge_attr, fill_value)
    if num_nodes is None:
        raise tensors.refuse(WITHOUT_NUMBER)
    return tensors.index(whole), edge_attr


def gcn_norm(
    tensors: EdgeTensors,
    index: Index,
    edge_weight: Any = None,
    improved: bool = False,
    add_self_loops: bool = True,
    flow: str = "source_to_target",
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Return the edges and their weights, normalised as GCN does it."""
    if add_self_loops:
        index, edge_weight = loops.added_where_missing(tensors, index, edge_weight, 2.0 if improved else 1.0)
    return tensors.index(index), _normalised(tensors, index, edge_weight, index.receivers(flow))


def _normalised(tensors: EdgeTensors, index: Index, weight: Tensor | None, end: End) -> Tensor:
    scale = tensors.gcn_scale(end, weight)
    both = tensors.scatter(scale, index.starts), tensors.scatter(scale, index.ends)
    return both[0] * both[1] if weight is None else both[0] * weight * both[1]


def softmax(tensors: EdgeTensors, end: End, src: Tensor, dim: int = 0, **_: Any) -> Tensor:
    """Return the softmax over the edges that have the same vertex at one end."""
    return with_rows_first(lambda rows: tensors.softmax(rows, end), src, dim)


def scatter(tensors: EdgeTensors, end: End, src: Tensor, dim: int = 0, reduce: str = "sum", **_: Any) -> Tensor:
    """Aggregate edge rows to the vertices at one end."""
    if reduce not in _REDUCTIONS:
        raise tensors.refuse(f"aggregates by {reduce!r}; use {', '.join(sorted(set(_REDUCTIONS.values())))}")
    return with_rows_first(lambda rows: tensors.aggregate(rows, end, _REDUCTIONS[reduce]), src, dim)


def scatter_groups(
    tensors: EdgeTensors,
    src: Tensor,
    index: Tensor,
    dim: int = 0,
    dim_size: int | None = None,
    reduce: str = "sum",
    **_: Any,
) -> Tensor:
    """Reduce the rows of each group of vertices."""
    if dim % src.dim():
        raise tensors.refuse(ROWS_FIRST)
    if reduce not in _REDUCTIONS:
        raise tensors.refuse(f"reduces groups by {reduce!r}; use {', '.join(sorted(set(_REDUCTIONS.values())))}")
    assert tensors.number_of_groups is not None  # else there are no groups
    return tensors.group_total(src, index, dim_size or tensors.number_of_groups, _REDUCTIONS[reduce])


def degree_groups(
    tensors: EdgeTensors, index: Tensor, num_nodes: int | None = None, dtype: torch.dtype | None = None, **_: Any
) -> Tensor:
    """Return the number of vertices of each group."""
    assert tensors.number_of_groups is not None  # else there are no groups
    ones = torch.ones_like(index, dtype=torch.float32)
    count = tensors.group_total(ones, index, num_nodes or tensors.number_of_groups, "sum")
    return count if dtype in (None, torch.float32) else count.to(dtype)


def degree(tensors: EdgeTensors, end: End, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """Return the number of edges that have each vertex at one end."""
    return tensors.count(end).to(dtype or torch.get_default_dtype())


def maybe_num_nodes(tensors: EdgeTensors, meaning: Index | End, num_nodes: Any = None, **_: Any) -> Any:
    """Return the number of vertices."""
    edges = (meaning.index if isinstance(meaning, End) else meaning).edges
    return tensors.graph.edges(edges).num_vertices if num_nodes is None else num_nodes


def one_hot(
    tensors: EdgeTensors, original: Any, index: Tensor, num_classes: int | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Return rows with a 1 at the place of each number, [rows, num_classes].

    Raises:
        ModelError: `num_classes` is None, which would make the width depend on values.
    """
    if num_classes is None:
        raise tensors.refuse(NO_NUMBER)
    number = tensors.bounded(index.view(-1), num_classes)
    places = [number == place for place in range(num_classes)]
    return torch.stack(places, dim=-1).to(dtype or torch.get_default_dtype())


def group(tensors: EdgeTensors, original: Any, xs: list[Tensor], aggr: str | None) -> Tensor | None:
    """Combine what the layers of a HeteroConv return, with the rows kept in the first dimension."""
    if aggr in (None, "cat") or len(xs) < 2:
        return original(xs, aggr)  # type: ignore[no-any-return]
    out = getattr(torch, str(aggr))(torch.stack(xs, dim=-1), dim=-1)
    return out[0] if isinstance(out, tuple) else out  # type: ignore[no-any-return]


_LOOP = "torch_geometric.utils.loop"

LEAVES: tuple[Leaf, ...] = (
    Leaf(_LOOP, "remove_self_loops", "edge_index", remove_self_loops),
    Leaf(_LOOP, "add_self_loops", "edge_index", add_self_loops),
    Leaf(_LOOP, "add_remaining_self_loops", "edge_index", add_remaining_self_loops),
    Leaf("torch_geometric.nn.conv.gcn_conv", "gcn_norm", "edge_index", gcn_norm),
    Leaf("torch_geometric.utils._softmax", "softmax", "index", softmax),
    Leaf("torch_geometric.utils._scatter", "scatter", "index", scatter, scatter_groups),
    Leaf("torch_geometric.utils._degree", "degree", "index", degree, degree_groups),
    Leaf("torch_geometric.utils.num_nodes", "maybe_num_nodes", "edge_index", maybe_num_nodes),
    Leaf("torch_geometric.utils._one_hot", "one_hot", "", one_hot),
    Leaf("torch_geometric.utils._to_dense_batch", "to_dense_batch", "", to_dense_batch),
    Leaf("torch_geometric.nn.conv.hetero_conv", "group", "", group),
    Leaf("torch_geometric.nn.conv.han_conv", "group", "", han_group),
    Leaf("torch_geometric.utils.augmentation", "mask_feature", "", mask_feature),
    *(
        Leaf(module, name, ARGUMENT.get(name, "edge_index"), refusing(name, reason))
        for (module, name), reason in REFUSED_FUNCTIONS.items()
    ),
)
"""The functions that a trace replaces."""
