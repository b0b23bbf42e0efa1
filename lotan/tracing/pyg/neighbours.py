"""The aggregations of PyG that put neighbours side by side, computed by operators on the neighbours of each vertex.

PyG takes neighbours in the order of edges in `edge_index`, which it wants sorted by destination. The order here is that of
`data.sort(sort_by_row=False)`: see `planner.neighbours`.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

import lotan.stages.neighbours  # noqa: F401  # it registers the operators
from lotan.tracing.pyg.edge_tensors import EdgeTensors
from lotan.tracing.pyg.meanings import End
from planner.edge_columns import LOOP, ORDER

BY_ONE_END = "takes messages of edges by one end of edge_index; groups have none"
NOT_ALL = (
    "takes the neighbours along edges of the graph as they are; give it the edge_index of forward, without added or removed "
    "edges, and aggregate where edges end"
)
TWO_DIMENSIONS = "takes messages [num_edges, channels], one row for each edge"
DROPPED = "draws dropout {}, which is not supported; make it with dropout=0"
PROJECTED = "is made with proj_size, which is not supported; use a Linear layer behind it"


def _end(tensors: EdgeTensors, layer: Any, x: Tensor, index: Any, dim: int) -> End:
    """Return the end at which an aggregation puts neighbours side by side.

    Raises:
        ModelError: these are not the ends of all edges of the graph, or the messages have another shape.
    """
    name, end = type(layer).__name__, tensors.ends.get(index)
    if end is None:
        raise tensors.refuse(f"{name} {BY_ONE_END}")
    if end.end != "destination" or end.index.edges != "graph" or end.index.times is not None:
        raise tensors.refuse(f"{name} {NOT_ALL}")
    if x.dim() != 2 or dim not in (0, -2):
        raise tensors.refuse(f"{name} {TWO_DIMENSIONS}")
    return end


def _order(tensors: EdgeTensors, end: End) -> Tensor:
    """Return the numbers by which edges that end at the same vertex are in order, [num_edges, numbers].

    The number of the edge among them comes last, or alone. It is that by the order of ids.
    """
    of = tensors.graph.edges(end.index.edges)
    places = cast(Tensor, torch.ops.lotan.edge_column(of.columns[LOOP], ORDER, of.name))
    if tensors.order is None:
        return places
    attributes = tensors.column("edge_attr", of.name)
    return torch.cat([attributes[:, tensors.order : tensors.order + 1], places], dim=1)


def _rows(tensors: EdgeTensors, end: End, x: Tensor, order: Tensor, size: int) -> Tensor:
    """Return the messages of the first in-edges of each vertex by an order, [num_vertices, size, channels]."""
    of = tensors.graph.edges(end.index.edges)
    return cast(Tensor, torch.ops.lotan.neighbour_rows(x, order, of.index, of.num_vertices, size, of.name))


def sequence_aggregation(
    tensors: EdgeTensors,
    original: Any,
    layer: Any,
    x: Tensor,
    index: Any = None,
    ptr: Any = None,
    dim_size: Any = None,
    dim: int = -2,
    max_num_elements: Any = None,
) -> Tensor:
    """Compute LSTMAggregation and GRUAggregation. Sequences are as long as the greatest in-degree, as in PyG."""
    end = _end(tensors, layer, x, index, dim)
    name, network = type(layer).__name__, layer.lstm if hasattr(layer, "lstm") else layer.gru
    if isinstance(max_num_elements, int):
        return cast(Tensor, network(_rows(tensors, end, x, _order(tensors, end), max_num_elements))[0][:, -1])
    if network.proj_size:
        raise tensors.refuse(f"{name} {PROJECTED}")
    if network.dropout and network.num_layers > 1 and layer.training:
        raise tensors.refuse(f"{name} {DROPPED.format('between its layers')}")
    of = tensors.graph.edges(end.index.edges)
    steps = tensors.graph.column("in_degree").amax()
    weights = [getattr(network, weight) for weight in network._flat_weights_names]
    settings = network.mode.lower(), network.num_layers, network.bidirectional, weights
    found = torch.ops.lotan.neighbour_sequence(
        x, _order(tensors, end), steps, of.index, of.num_vertices, *settings, of.name
    )
    return cast(Tensor, found)


def mlp_aggregation(
    tensors: EdgeTensors,
    original: Any,
    layer: Any,
    x: Tensor,
    index: Any = None,
    ptr: Any = None,
    dim_size: Any = None,
    dim: int = -2,
) -> Tensor:
    """Compute MLPAggregation, which leaves out neighbours beyond `max_num_elements`."""
    end = _end(tensors, layer, x, index, dim)
    return cast(Tensor, layer.mlp(_rows(tensors, end, x, _order(tensors, end), layer.max_num_elements).flatten(1)))


def sort_aggregation(
    tensors: EdgeTensors,
    original: Any,
    layer: Any,
    x: Tensor,
    index: Any = None,
    ptr: Any = None,
    dim_size: Any = None,
    dim: int = -2,
    max_num_elements: Any = None,
) -> Tensor:
    """Compute SortAggregation: the messages of which the last number is greatest. Equal ones keep their order."""
    end = _end(tensors, layer, x, index, dim)
    if max_num_elements is not None:
        raise tensors.refuse(f"{type(layer).__name__} sorts all neighbours; call it without max_num_elements")
    order = torch.cat([-x[:, -1:].detach(), _order(tensors, end)], dim=1)
    return _rows(tensors, end, x, order, layer.k).flatten(1)


def set_transformer_aggregation(
    tensors: EdgeTensors,
    original: Any,
    layer: Any,
    x: Tensor,
    index: Any = None,
    ptr: Any = None,
    dim_size: Any = None,
    dim: int = -2,
    max_num_elements: Any = None,
) -> Tensor:
    """Compute SetTransformerAggregation, with the rows of its encoders on edges and those of its decoders at vertices."""
    end = _end(tensors, layer, x, index, dim)
    if max_num_elements is not None:
        raise tensors.refuse(f"{type(layer).__name__} reads all neighbours; call it without max_num_elements")
    if layer.dropout and layer.training:
        raise tensors.refuse(f"{type(layer).__name__} {DROPPED.format('of attention')}")
    for encoder in layer.encoders:
        x = _with_rest(encoder.mab, x, _among_neighbours(tensors, end, encoder.mab.attn, x))
    x = _pooled(tensors, end, layer.pma, x)  # [num_vertices, seeds, channels]
    for decoder in layer.decoders:
        x = _with_rest(decoder.mab, x, _within_rows(decoder.mab.attn, x))
    return x.flatten(1, 2) if layer.concat else x.mean(dim=1)


def _with_rest(block: Any, x: Tensor, attended: Tensor) -> Tensor:
    """Compute a MultiheadAttentionBlock from its input and what the input has attended to."""
    out = attended + x
    if block.layer_norm1 is not None:
        out = block.layer_norm1(out)
    out = out + block.lin(out).relu()
    return out if block.layer_norm2 is None else cast(Tensor, block.layer_norm2(out))


def _projected(attention: Any, x: Tensor, part: int) -> Tensor:
    """Return the queries (part 0), keys (1) or values (2) of an attention, [*rows, heads, channels]."""
    weight, bias = attention.in_proj_weight.chunk(3)[part], attention.in_proj_bias.chunk(3)[part]
    return cast(Tensor, F.linear(x, weight, bias).unflatten(-1, (attention.num_heads, attention.head_dim)))


def _among_neighbours(tensors: EdgeTensors, end: End, attention: Any, x: Tensor) -> Tensor:
    """Let each in-edge of a vertex attend to all of them, [num_edges, channels]."""
    of = tensors.graph.edges(end.index.edges)
    rows = (_projected(attention, x, part) for part in range(3))
    found = cast(Tensor, torch.ops.lotan.neighbour_attention(*rows, of.index, of.name))
    return cast(Tensor, attention.out_proj(found.flatten(1)))


def _pooled(tensors: EdgeTensors, end: End, layer: Any, x: Tensor) -> Tensor:
    """Compute PoolingByMultiheadAttention: seeds attend to the in-edges of each vertex, [num_vertices, seeds, channels]."""
    x, block = layer.lin(x).relu(), layer.mab
    seeds, attention = layer.seed[0], block.attn
    queries = _projected(attention, seeds, 0) / sqrt(attention.head_dim)  # [seeds, heads, channels]
    keys, values = _projected(attention, x, 1), _projected(attention, x, 2)  # [num_edges, heads, channels]
    scores = (keys.unsqueeze(1) * queries).sum(-1)  # [num_edges, seeds, heads]
    shares = tensors.softmax(scores, end)
    found = tensors.aggregate(shares.unsqueeze(-1) * values.unsqueeze(1), end, "sum").flatten(2)
    return _with_rest(block, seeds, attention.out_proj(found))


def _within_rows(attention: Any, x: Tensor) -> Tensor:
    """Let the entries of each row [num_vertices, entries, channels] attend to each other."""
    queries, keys, values = (_projected(attention, x, part).transpose(1, 2) for part in range(3))
    scores = queries @ keys.transpose(2, 3) / sqrt(attention.head_dim)  # [num_vertices, heads, entries, entries]
    return cast(Tensor, attention.out_proj((scores.softmax(-1) @ values).transpose(1, 2).flatten(2)))


NEIGHBOURS = {
    "LSTMAggregation": ("torch_geometric.nn.aggr.lstm", sequence_aggregation),
    "GRUAggregation": ("torch_geometric.nn.aggr.gru", sequence_aggregation),
    "MLPAggregation": ("torch_geometric.nn.aggr.mlp", mlp_aggregation),
    "SortAggregation": ("torch_geometric.nn.aggr.sort", sort_aggregation),
    "SetTransformerAggregation": ("torch_geometric.nn.aggr.set_transformer", set_transformer_aggregation),
}
"""The module of each aggregation, and the function in its place."""
