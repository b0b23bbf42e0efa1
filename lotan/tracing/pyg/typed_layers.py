"""Layers of PyG for types of vertices and edges, in forms that keep a row for each vertex.

A relation is an edge set of its own. In a graph of one type of vertices, it is all edges, or the edges that a mask chooses.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from lotan.tracing.pyg.edge_tensors import LEAST_SCORE, EdgeTensors
from lotan.tracing.repeating import repeated

LEAST_SHARE = 1e-30
"""The smallest share whose logarithm is taken."""


def hetero_linear(tensors: EdgeTensors, original: Any, layer: Any, x: Tensor, type_vec: Tensor) -> Tensor:
    """Compute HeteroLinear as a sum of one term for each type. A term is 0 at rows of another type."""
    terms = []
    type_vec = tensors.bounded(type_vec, layer.num_types)
    for number in range(layer.num_types):
        term = x @ layer.weight[number]
        term = term if layer.bias is None else term + layer.bias[number]
        terms.append(term * (type_vec == number).to(term.dtype).unsqueeze(-1))
    return torch.stack(terms, dim=-1).sum(dim=-1)


def rgcn_conv(
    tensors: EdgeTensors, original: Any, layer: Any, x: Any, edge_index: Tensor, edge_type: Any = None
) -> Tensor:
    """Compute RGCNConv as its own forward does, with relations as rounds of a loop that are recorded as copies."""
    _require_features(tensors, layer, x)
    if not isinstance(x, Tensor) or not x.is_floating_point() or edge_type is None:
        return original(layer, x, edge_index, edge_type)  # type: ignore[no-any-return]
    start = torch.zeros(x.size(0), layer.out_channels)
    weight = layer.weight  # [relations, in_channels, out_channels], or of blocks [relations, blocks, in, out]
    if layer.num_bases is not None:
        shape = layer.num_relations, layer.in_channels_l, layer.out_channels
        weight = (layer.comp @ weight.view(layer.num_bases, -1)).view(shape)

    def of_relation(out: Tensor, number: int) -> Tensor:
        index = edge_index[:, edge_type == number]
        h = layer.propagate(index, x=x, edge_type_ptr=None, size=(x.size(0), x.size(0)))
        if layer.num_blocks is None:
            return cast(Tensor, out + h @ weight[number])
        h = torch.einsum("abc,bcd->abd", h.view(-1, weight.size(1), weight.size(2)), weight[number])
        return out + h.contiguous().view(-1, layer.out_channels)

    out = repeated(of_relation, start, layer.num_relations)
    out = out if layer.root is None else out + x @ layer.root
    return out if layer.bias is None else out + layer.bias


def fast_rgcn_conv(
    tensors: EdgeTensors, original: Any, layer: Any, x: Any, edge_index: Tensor, edge_type: Any = None
) -> Tensor:
    """Compute FastRGCNConv by its own forward."""
    _require_features(tensors, layer, x)
    return original(layer, x, edge_index, edge_type)  # type: ignore[no-any-return]


def _require_features(tensors: EdgeTensors, layer: Any, x: Any) -> None:
    """Refuse a layer that is called without features, and so takes rows of its weights by the numbers of the vertices."""
    if x is None or (isinstance(x, Tensor) and not x.is_floating_point()):
        name = type(layer).__name__
        raise tensors.refuse(
            f"{name} is called without features, so it has a row of its weights for each vertex and each relation; learn a row "
            f"for each vertex, rows = torch.nn.Embedding(num_nodes, width), make {name}(width, ...), and pass rows.weight as x"
        )


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
    """Compute HGTConv, [num_vertices, out_channels] for each type of vertices that is the destination of a relation.

    The attention of a vertex goes over its in-edges of all relations. It is the share of an edge within its relation, times
    the share of the relation. The latter follows from the logarithms of the relations' sums of exponentials.
    """
    width, heads = layer.out_channels, layer.heads
    kqv = {
        name: [rows[:, at * width : (at + 1) * width].reshape(-1, heads, width // heads) for at in range(3)]
        for name, rows in layer.kqv_lin(x_dict).items()
    }
    found: dict[str, list[_OfRelation]] = {}
    for relation, edge_index in edge_index_dict.items():
        found.setdefault(relation[-1], []).append(_relation(tensors, layer, kqv, relation, edge_index))
    summed = {
        name: _together(found[name]) if name in found else torch.zeros_like(q)
        for name, (_, q, _) in kqv.items()
        if name in layer.dst_node_types
    }
    outs: dict[str, Tensor] = layer.out_lin({name: F.gelu(out.reshape(-1, width)) for name, out in summed.items()})
    for name, out in outs.items():
        if out.size(-1) == x_dict[name].size(-1):
            share = layer.skip[name].sigmoid()
            outs[name] = share * out + (1 - share) * x_dict[name]
    return outs


class _OfRelation(NamedTuple):
    """The values that a relation brings to its destinations, and the weight that they have there."""

    values: Tensor  # [num_vertices, heads, channels]: the sum of the values at the sources, by their shares
    level: Tensor  # [num_vertices, heads]: the logarithm of the sum of the exponentials of the scores
    edges: Tensor  # [num_vertices]: the number of in-edges


def _relation(
    tensors: EdgeTensors,
    layer: Any,
    kqv: dict[str, list[Tensor]],
    relation: tuple[str, str, str],
    edge_index: Tensor,
) -> _OfRelation:
    """Return what HGTConv computes for one relation.

    Args:
        tensors: the edges of the trace.
        layer: the HGTConv.
        kqv: by type of vertices their keys, queries and values, each [num_vertices, heads, channels].
        relation: the relation.
        edge_index: its edges.
    """
    of_relation = slice(layer.edge_types_map[relation], None, len(layer.edge_types))
    index = tensors.meaning(edge_index)
    source, destination = index.starts, index.ends
    (k, _, v), (_, q, _) = kqv[relation[0]], kqv[relation[-1]]
    keys = torch.einsum("nhd,hde->nhe", k, layer.k_rel.weight[of_relation])
    values = torch.einsum("nhd,hde->nhe", v, layer.v_rel.weight[of_relation])
    scores = (tensors.scatter(q, destination) * tensors.scatter(keys, source)).sum(dim=-1)  # [num_edges, heads]
    scores = scores * layer.p_rel["__".join(relation)] / math.sqrt(k.shape[-1])
    shares = tensors.softmax(scores, destination)
    messages = tensors.scatter(values, source) * shares.unsqueeze(-1)
    # of each edge, score - log(share) is the level; shares weigh the edges, so that no tiny one counts
    level = tensors.aggregate(shares * (scores - shares.clamp(min=LEAST_SHARE).log()), destination, "sum")
    return _OfRelation(tensors.aggregate(messages, destination, "sum"), level, tensors.count(destination))


def _together(relations: list[_OfRelation]) -> Tensor:
    """Return the values of all relations, weighed by the share of each, [num_vertices, heads, channels]."""
    if len(relations) == 1:
        return relations[0].values
    levels = [torch.where(one.edges.unsqueeze(-1) > 0, one.level, LEAST_SCORE) for one in relations]
    shares = torch.stack(levels, dim=-1).softmax(dim=-1)  # [num_vertices, heads, relations]
    return (torch.stack([one.values for one in relations], dim=-1) * shares.unsqueeze(-2)).sum(dim=-1)
