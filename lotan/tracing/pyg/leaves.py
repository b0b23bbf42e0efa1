"""The functions of PyG that depend on the values of edges, and what a trace calls instead of them.

A replacement takes the edges of the trace, the original function, and the original's arguments. It calls the original
for tensors that are not edges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lotan.tracing.pyg.edge_tensors import EdgeTensors, End, Index
from planner.spec import EdgeSet

Replacement = Callable[..., Any]

ATTRIBUTES = (
    "adds self-loops to edges with attributes or computed weights; only the weights that the graph gives have a value for a "
    "loop. Build the layer with add_self_loops=False"
)
TWICE = "adds self-loops to those that are there; call remove_self_loops first, or add_remaining_self_loops"
FILL = "gives added self-loops the weight {}; only 1 is supported (improved=False, fill_value=1)"
AGAINST = "normalises by the edges that begin at a vertex; only flow='source_to_target' is supported"
CHOSEN = "adds self-loops to edges that a mask chose; add them first"
_REDUCTIONS = {
    "sum": "sum",
    "add": "sum",
    "mean": "mean",
    "max": "max",
    "min": "min",
    "amax": "max",
    "amin": "min",
}


def remove_self_loops(
    tensors: EdgeTensors, original: Any, edge_index: Any, edge_attr: Any = None
) -> tuple[Tensor, Tensor | None]:
    """Remove the self-loops. The result can be used only after loops were added to it."""
    index = tensors.indices.get(edge_index)
    if index is None:
        return original(edge_index, edge_attr)  # type: ignore[no-any-return]
    _require_own(tensors, index, edge_attr)
    return tensors.index(Index(index.edges, without_loops=True)), edge_attr


def add_self_loops(
    tensors: EdgeTensors,
    original: Any,
    edge_index: Any,
    edge_attr: Any = None,
    fill_value: Any = None,
    num_nodes: Any = None,
) -> tuple[Tensor, Tensor | None]:
    """Add a self-loop to each vertex, to edges from which the loops were removed."""
    index = tensors.indices.get(edge_index)
    if index is None:
        return original(edge_index, edge_attr, fill_value, num_nodes)  # type: ignore[no-any-return]
    if not index.without_loops:
        raise tensors.refuse(TWICE)
    if edge_attr is not None:
        raise tensors.refuse(ATTRIBUTES)  # the loops that were removed had weights, but those that are added have none
    return tensors.index(Index("self_loops")), None


def add_remaining_self_loops(
    tensors: EdgeTensors,
    original: Any,
    edge_index: Any,
    edge_attr: Any = None,
    fill_value: Any = None,
    num_nodes: Any = None,
) -> tuple[Tensor, Tensor | None]:
    """Add a self-loop to each vertex that has none, and keep one loop of each vertex that has some."""
    index = tensors.indices.get(edge_index)
    if index is None:
        return original(edge_index, edge_attr, fill_value, num_nodes)  # type: ignore[no-any-return]
    _require_own(tensors, index, edge_attr)
    if edge_attr is None:
        return tensors.index(Index("self_loops")), None
    if index.edges == "self_loops":
        return edge_index, edge_attr  # every vertex has a loop already
    if index.without_loops:
        raise tensors.refuse(ATTRIBUTES)
    if fill_value not in (None, 1):
        raise tensors.refuse(FILL.format(fill_value))
    return tensors.index(Index("self_loops")), tensors.weight("self_loops")


def gcn_norm(
    tensors: EdgeTensors,
    original: Any,
    edge_index: Any,
    edge_weight: Any = None,
    num_nodes: Any = None,
    improved: bool = False,
    add_self_loops: bool = True,
    flow: str = "source_to_target",
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the edges and their weights, normalised as GCN does it."""
    index = tensors.indices.get(edge_index)
    if index is None:
        return original(edge_index, edge_weight, num_nodes, improved, add_self_loops, flow, dtype)  # type: ignore[no-any-return]
    if flow != "source_to_target":
        raise tensors.refuse(AGAINST)
    if improved and add_self_loops:
        raise tensors.refuse(FILL.format(2))
    if add_self_loops:
        edge_index, edge_weight = add_remaining_self_loops(tensors, None, edge_index, edge_weight, 1, num_nodes)
    found = tensors.indices.get(edge_index)
    assert found is not None
    if found.chosen is not None or found.without_loops:
        return original(edge_index, edge_weight, num_nodes, False, False, flow, dtype)  # type: ignore[no-any-return]
    return edge_index, _normalised(tensors, found.edges, edge_weight)


def _normalised(tensors: EdgeTensors, edges: EdgeSet, weight: Tensor | None) -> Tensor:
    scale = tensors.gcn_scale(edges, weight)
    both = tensors.scatter(scale, End(Index(edges), "source")), tensors.scatter(scale, End(Index(edges), "destination"))
    return both[0] * both[1] if weight is None else both[0] * weight * both[1]


def masked_edge_index(tensors: EdgeTensors, original: Any, edge_index: Any, edge_mask: Any) -> Tensor:
    """Return the edges that a mask chooses."""
    if tensors.indices.get(edge_index) is None:
        return original(edge_index, edge_mask)  # type: ignore[no-any-return]
    return tensors.choose(edge_index, edge_mask)


def softmax(
    tensors: EdgeTensors,
    original: Any,
    src: Any,
    index: Any = None,
    ptr: Any = None,
    num_nodes: Any = None,
    dim: int = 0,
) -> Tensor:
    """Return the softmax over the edges that end at the same vertex."""
    end = tensors.ends.get(index)
    if end is None or dim % src.dim():
        return original(src, index, ptr, num_nodes, dim)  # type: ignore[no-any-return]
    return tensors.softmax(src, end)


def scatter(
    tensors: EdgeTensors, original: Any, src: Any, index: Any, dim: int = 0, dim_size: Any = None, reduce: str = "sum"
) -> Tensor:
    """Aggregate edge rows to the vertices where they end."""
    end = tensors.ends.get(index)
    if end is None or dim % src.dim():
        return original(src, index, dim, dim_size, reduce)  # type: ignore[no-any-return]
    if reduce not in _REDUCTIONS:
        raise tensors.refuse(f"aggregates by {reduce!r}; use {', '.join(sorted(set(_REDUCTIONS.values())))}")
    return tensors.aggregate(src, end, _REDUCTIONS[reduce])


def degree(
    tensors: EdgeTensors, original: Any, index: Any, num_nodes: Any = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Return the number of edges that end at each vertex."""
    end = tensors.ends.get(index)
    if end is None:
        return original(index, num_nodes, dtype)  # type: ignore[no-any-return]
    return tensors.count(end).to(dtype or torch.get_default_dtype())


def maybe_num_nodes(tensors: EdgeTensors, original: Any, edge_index: Any, num_nodes: Any = None) -> Any:
    """Return the number of vertices."""
    known = tensors.indices.get(edge_index) is not None or tensors.ends.get(edge_index) is not None
    return tensors.graph.num_vertices if num_nodes is None and known else original(edge_index, num_nodes)


def group(tensors: EdgeTensors, original: Any, xs: list[Tensor], aggr: str | None) -> Tensor | None:
    """Combine what the layers of a HeteroConv return, with the rows kept in the first dimension."""
    if aggr in (None, "cat") or len(xs) < 2:
        return original(xs, aggr)  # type: ignore[no-any-return]
    out = getattr(torch, str(aggr))(torch.stack(xs, dim=-1), dim=-1)
    return out[0] if isinstance(out, tuple) else out  # type: ignore[no-any-return]


def _require_own(tensors: EdgeTensors, index: Index, attributes: Any) -> None:
    """Refuse attributes of edges, unless they are the weights that the graph has for these edges."""
    if index.chosen is not None:
        raise tensors.refuse(CHOSEN)
    if attributes is not None and tensors.weights.get(attributes) != index.edges:
        raise tensors.refuse(ATTRIBUTES)


LEAVES: tuple[tuple[str, str, Replacement], ...] = (
    ("torch_geometric.utils.loop", "remove_self_loops", remove_self_loops),
    ("torch_geometric.utils.loop", "add_self_loops", add_self_loops),
    ("torch_geometric.utils.loop", "add_remaining_self_loops", add_remaining_self_loops),
    ("torch_geometric.nn.conv.gcn_conv", "gcn_norm", gcn_norm),
    ("torch_geometric.nn.conv.rgcn_conv", "masked_edge_index", masked_edge_index),
    ("torch_geometric.utils._softmax", "softmax", softmax),
    ("torch_geometric.utils._scatter", "scatter", scatter),
    ("torch_geometric.utils._degree", "degree", degree),
    ("torch_geometric.nn.conv.hetero_conv", "group", group),
    ("torch_geometric.utils.num_nodes", "maybe_num_nodes", maybe_num_nodes),
)
"""The functions that a trace replaces: the module that defines each, its name, and the replacement."""
