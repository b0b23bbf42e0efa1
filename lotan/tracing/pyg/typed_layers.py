"""Layers of PyG for types of vertices and edges, in forms that keep a row for each vertex.

A graph here has one type of vertices. Several relations among them are edges that masks choose, or all edges.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lotan.tracing.pyg.edge_tensors import LEAST_SCORE, EdgeTensors, End, Index, beside

ONE_TYPE = "has several types of vertices; expected one, as a graph has"
SAME_EDGES = "normalises over relations with different self-loops; give each relation edges of the graph as they are"


def hetero_linear(tensors: EdgeTensors, original: Any, layer: Any, x: Tensor, type_vec: Tensor) -> Tensor:
    """Compute HeteroLinear with one term for each type, which counts where the row has that type."""
    terms = []
    for number in range(layer.num_types):
        term = x @ layer.weight[number]
        term = term if layer.bias is None else term + layer.bias[number]
        terms.append(term * (type_vec == number).to(term.dtype).unsqueeze(-1))
    return torch.stack(terms, dim=-1).sum(dim=-1)


def han_group(
    tensors: EdgeTensors, original: Any, xs: list[Tensor], q: Tensor, k_lin: Any
) -> tuple[Tensor | None, Tensor | None]:
    """Combine what HANConv has for each relation, by attention whose scores are means over all vertices."""
    if not xs:
        return None, None
    scores = [(q * torch.ops.lotan.total(k_lin(x).tanh(), "mean")).sum(dim=-1) for x in xs]  # [num_vertices] each
    shares = torch.stack(scores, dim=-1).softmax(dim=-1)  # [num_vertices, relations]
    return (torch.stack(xs, dim=-1) * shares.unsqueeze(1)).sum(dim=-1), shares


def hgt_conv(
    tensors: EdgeTensors,
    original: Any,
    layer: Any,
    x_dict: dict[str, Tensor],
    edge_index_dict: dict[tuple[str, str, str], Tensor],
) -> dict[str, Tensor]:
    """Compute HGTConv for one type of vertices.

    The attention of a vertex goes over its in-edges of all relations. These lie side by side in the rows of edges: the
    share of an edge among all edges, times the share of a relation at that edge.
    """
    if len(x_dict) != 1:
        raise tensors.refuse(f"HGTConv {ONE_TYPE}")
    ((name, x),) = x_dict.items()
    width, heads, relations = layer.out_channels, layer.heads, len(layer.edge_types)
    rows = layer.kqv_lin(x_dict)[name]
    k, q, v = (rows[:, at * width : (at + 1) * width].reshape(-1, heads, width // heads) for at in range(3))
    scores, values, kept = [], [], []
    for relation, edge_index in edge_index_dict.items():
        number = layer.edge_types_map[relation]
        index = _meaning(tensors, edge_index)
        source, destination = End(index, "source"), End(index, "destination")
        keys = torch.einsum("nhd,hde->nhe", k, layer.k_rel.weight[number::relations])
        score = (tensors.scatter(q, destination) * tensors.scatter(keys, source)).sum(dim=-1)  # [num_edges, heads]
        score = score * layer.p_rel["__".join(relation)] / math.sqrt(width // heads)
        counts = torch.ones_like(score) if index.times is None else beside(index.times, score).expand_as(score)
        scores.append(torch.where(counts > 0, score, LEAST_SCORE))
        kept.append(counts)
        turned = torch.einsum("nhd,hde->nhe", v, layer.v_rel.weight[number::relations])
        values.append(tensors.scatter(turned, source))
    everywhere = End(Index(_edges(tensors, edge_index_dict)), "destination")
    beside_each_other = torch.stack(scores, dim=-1)  # [num_edges, heads, relations]
    among_edges = tensors.softmax(beside_each_other.logsumexp(dim=-1), everywhere)
    shares = among_edges.unsqueeze(-1) * beside_each_other.softmax(dim=-1) * torch.stack(kept, dim=-1)
    messages = (torch.stack(values, dim=-1) * shares.unsqueeze(-2)).sum(dim=-1)
    out = tensors.aggregate(messages, everywhere, "sum").reshape(-1, width)
    out = layer.out_lin({name: F.gelu(out)})[name]
    if out.size(-1) == x.size(-1):
        share = layer.skip[name].sigmoid()
        out = share * out + (1 - share) * x
    return {name: out}


def _meaning(tensors: EdgeTensors, edge_index: Tensor) -> Index:
    index = tensors.indices.get(edge_index)
    if index is None:
        raise tensors.refuse("HGTConv reads edges that are not those of the graph")
    return index


def _edges(tensors: EdgeTensors, edge_index_dict: dict[tuple[str, str, str], Tensor]) -> Any:
    """Return the edge set that all relations belong to."""
    sets = {_meaning(tensors, edge_index).edges for edge_index in edge_index_dict.values()}
    if len(sets) != 1:
        raise tensors.refuse(f"HGTConv {SAME_EDGES}")
    return sets.pop()
