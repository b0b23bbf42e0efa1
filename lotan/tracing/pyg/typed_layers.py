"""Layers of PyG for types of vertices and edges, in forms that keep a row for each vertex.

A graph has one type of vertices here. A relation among them is all edges, or the edges that a mask chooses.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lotan.tracing.pyg.edge_tensors import LEAST_SCORE, EdgeTensors, Index, beside

ONE_TYPE = "has several types of vertices; expected one, as a graph has"
SAME_EDGES = (
    "normalises over relations of which some have other self-loops, or are turned round; give each relation edges of the "
    "graph as they are"
)


def hetero_linear(tensors: EdgeTensors, original: Any, layer: Any, x: Tensor, type_vec: Tensor) -> Tensor:
    """Compute HeteroLinear as a sum of one term for each type. A term is 0 at rows of another type."""
    terms = []
    type_vec = tensors.bounded(type_vec, layer.num_types)
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
    """Compute HGTConv for one type of vertices, [num_vertices, out_channels].

    The attention of a vertex goes over its in-edges of all relations. Here each row of an edge holds the scores of all
    relations side by side. The attention is the share of the edge among all in-edges, times the share of the relation
    among those at the edge.
    """
    if len(x_dict) != 1:
        raise tensors.refuse(f"HGTConv {ONE_TYPE}")
    ((name, x),) = x_dict.items()
    width, heads = layer.out_channels, layer.heads
    rows = layer.kqv_lin(x_dict)[name]
    k, q, v = (rows[:, at * width : (at + 1) * width].reshape(-1, heads, width // heads) for at in range(3))
    of_relations = [_relation(tensors, layer, k, q, v, *given) for given in edge_index_dict.items()]
    scores, times, values = (torch.stack(parts, dim=-1) for parts in zip(*of_relations, strict=True))
    everywhere = _edges(tensors, edge_index_dict).ends
    among_edges = tensors.softmax(scores.logsumexp(dim=-1), everywhere)  # [num_edges, heads]
    shares = among_edges.unsqueeze(-1) * scores.softmax(dim=-1) * times  # [num_edges, heads, relations]
    messages = (values * shares.unsqueeze(-2)).sum(dim=-1)  # [num_edges, heads, width // heads]
    out = tensors.aggregate(messages, everywhere, "sum").reshape(-1, width)
    out = layer.out_lin({name: F.gelu(out)})[name]
    if out.size(-1) == x.size(-1):
        share = layer.skip[name].sigmoid()
        out = share * out + (1 - share) * x
    return {name: out}


def _relation(
    tensors: EdgeTensors,
    layer: Any,
    k: Tensor,
    q: Tensor,
    v: Tensor,
    relation: tuple[str, str, str],
    edge_index: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what HGTConv computes for the edges of one relation.

    Args:
        tensors: the edges of the trace.
        layer: the HGTConv.
        k: the keys of the vertices, [num_vertices, heads, channels].
        q: their queries.
        v: their values.
        relation: the relation.
        edge_index: its edges.

    Returns:
        The scores and how often each edge counts, both [num_edges, heads], and the values [num_edges, heads, channels].
    """
    of_relation = slice(layer.edge_types_map[relation], None, len(layer.edge_types))
    index = tensors.meaning(edge_index)
    source, destination = index.starts, index.ends
    keys = torch.einsum("nhd,hde->nhe", k, layer.k_rel.weight[of_relation])
    scores = (tensors.scatter(q, destination) * tensors.scatter(keys, source)).sum(dim=-1)
    scores = scores * layer.p_rel["__".join(relation)] / math.sqrt(k.shape[-1])
    times = torch.ones_like(scores) if index.times is None else beside(index.times, scores).expand_as(scores)
    values = torch.einsum("nhd,hde->nhe", v, layer.v_rel.weight[of_relation])
    return torch.where(times > 0, scores, LEAST_SCORE), times, tensors.scatter(values, source)


def _edges(tensors: EdgeTensors, edge_index_dict: dict[tuple[str, str, str], Tensor]) -> Index:
    """Return the edges that all relations belong to."""
    meanings = [tensors.meaning(edge_index) for edge_index in edge_index_dict.values()]
    sets = {(meaning.edges, meaning.turned) for meaning in meanings}
    if len(sets) != 1:
        raise tensors.refuse(f"HGTConv {SAME_EDGES}")
    return Index(meanings[0].edges, turned=meanings[0].turned)
