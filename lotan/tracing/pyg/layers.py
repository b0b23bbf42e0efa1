"""The layers of PyG whose own code cannot be traced, and functions that compute the same in their place.

Such a function takes the edges of the trace, the original forward, the layer, and the arguments of forward.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lotan.tracing.pyg import loops
from lotan.tracing.pyg.attention import ATTENTION
from lotan.tracing.pyg.edge_tensors import EdgeTensors
from lotan.tracing.pyg.leaves import Leaf, gcn_norm
from lotan.tracing.pyg.meanings import Index, beside, with_rows_first
from lotan.tracing.pyg.neighbours import NEIGHBOURS
from lotan.tracing.pyg.typed_layers import fast_rgcn_conv, hetero_linear, hgt_conv, rgcn_conv
from planner.spec import INTERPOLATIONS


def arma_conv(
    tensors: EdgeTensors, original: Any, layer: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
) -> Tensor:
    """Compute ARMAConv stack by stack, so that vertices stay in the first dimension."""
    edge_index, edge_weight = gcn_norm(
        tensors, tensors.meaning(edge_index), edge_weight, add_self_loops=False, flow=layer.flow
    )
    outs = [x] * layer.num_stacks
    for t in range(layer.num_layers):
        dropped = F.dropout(x, p=layer.dropout, training=layer.training)
        shared = 0 if layer.shared_weights else t
        for k, out in enumerate(outs):
            weight = layer.init_weight[k] if t == 0 else layer.weight[0 if layer.shared_weights else t - 1][k]
            out = layer.propagate(edge_index, x=out @ weight, edge_weight=edge_weight)
            out = out + dropped @ layer.root_weight[shared][k]
            out = out if layer.bias is None else out + layer.bias[shared][k].view(-1)
            outs[k] = out if layer.act is None else layer.act(out)
    return torch.stack(outs, dim=-1).mean(dim=-1)


def mf_conv(tensors: EdgeTensors, original: Any, layer: Any, x: Any, edge_index: Tensor, size: Any = None) -> Tensor:
    """Compute MFConv as a sum of one term for each degree. A term is 0 at vertices of another degree."""
    x = (x, x) if isinstance(x, Tensor) else x
    counts = tensors.count(tensors.meaning(edge_index).receivers(layer.flow))
    degree = counts.clamp(max=layer.max_degree).unsqueeze(-1)  # [num_vertices, 1]
    h = layer.propagate(edge_index, x=x, size=size)
    terms = []
    for number, (left, right) in enumerate(zip(layer.lins_l, layer.lins_r, strict=True)):
        term = left(h) if x[1] is None else left(h) + right(x[1])
        terms.append(term * (degree == number).to(term.dtype))
    return torch.stack(terms, dim=-1).sum(dim=-1)


def cluster_gcn_conv(tensors: EdgeTensors, original: Any, layer: Any, x: Tensor, edge_index: Tensor) -> Tensor:
    """Compute ClusterGCNConv with the extra weight of the self-loops as a term of the vertex."""
    if not layer.add_self_loops:
        raise tensors.refuse("ClusterGCNConv weighs self-loops apart; build it with add_self_loops=True")
    edge_index = _with_own_loops(tensors, edge_index)
    end = tensors.meaning(edge_index).ends
    inverse = 1.0 / tensors.count(end).clamp(min=1.0)  # [num_vertices]
    out = layer.propagate(edge_index, x=x, edge_weight=tensors.scatter(inverse, end))
    out = out + layer.diag_lambda * inverse.unsqueeze(-1) * x
    return layer.lin_out(out) + layer.lin_root(x)  # type: ignore[no-any-return]


def super_gat_conv(
    tensors: EdgeTensors,
    original: Any,
    layer: Any,
    x: Tensor,
    edge_index: Tensor,
    neg_edge_index: Any = None,
    batch: Any = None,
) -> Tensor:
    """Compute SuperGATConv without the edges that it samples for its own loss, which do not change its output."""
    if layer.add_self_loops:
        edge_index = _with_own_loops(tensors, edge_index)
    heads, channels = layer.heads, layer.out_channels
    out = layer.propagate(edge_index, x=layer.lin(x).view(-1, heads, channels))
    out = out.view(-1, heads * channels) if layer.concat else out.mean(dim=1)
    return out if layer.bias is None else out + layer.bias  # type: ignore[no-any-return]


def samples_for_own_loss(module: torch.nn.Module) -> bool:
    """Return True for a SuperGATConv, which samples edges that its output does not depend on, see `super_gat_conv`."""
    kind = type(module)
    return kind.__name__ == "SuperGATConv" and kind.__module__.startswith("torch_geometric.")


def cheb_conv(
    tensors: EdgeTensors,
    original: Any,
    layer: Any,
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None = None,
    batch: Any = None,
    lambda_max: Any = None,
) -> Tensor:
    """Compute ChebConv with the diagonal of the scaled Laplacian as a factor of the vertex's own row."""
    if lambda_max is None and (layer.normalization is None or (tensors.weighted and edge_weight is not None)):
        raise tensors.refuse(
            "ChebConv takes the greatest number of the Laplacian for lambda_max; pass lambda_max to its forward, which is 2.0 "
            "with normalization 'sym' or 'rw' where no weight is negative"
        )
    if batch is not None and isinstance(lambda_max, Tensor):
        raise tensors.refuse("ChebConv takes another lambda_max for each graph of a batch; pass one number")
    index, weight = loops.removed(tensors, tensors.meaning(edge_index), edge_weight)
    degree = tensors.count(index.starts) if weight is None else tensors.aggregate(weight, index.starts, "sum")
    norm, diagonal = _laplacian(tensors, index, weight, degree, layer.normalization)
    share = 2.0 / (2.0 if lambda_max is None else lambda_max)

    def scaled(x: Tensor) -> Any:
        return layer.propagate(tensors.index(index), x=x, norm=norm * share) + x * (diagonal * share - 1.0)

    terms = [x, scaled(x)] if len(layer.lins) > 1 else [x]
    while len(terms) < len(layer.lins):
        terms.append(2.0 * scaled(terms[-1]) - terms[-2])
    out = layer.lins[0](terms[0])
    for linear, term in zip(layer.lins[1:], terms[1:], strict=True):
        out = out + linear(term)
    return out if layer.bias is None else out + layer.bias  # type: ignore[no-any-return]


def _laplacian(
    tensors: EdgeTensors, index: Index, weight: Tensor | None, degree: Tensor, normalization: str | None
) -> tuple[Tensor, Any]:
    """Return the graph's Laplacian, as get_laplacian of PyG does.

    Returns:
        Its values on edges [num_edges], and its diagonal: 1, or [num_vertices, 1].
    """
    ones = torch.ones(tensors.edge_count(index.edges)) if weight is None else weight
    if normalization is None:
        return -ones, degree.unsqueeze(-1)
    scale = degree.pow(-0.5 if normalization == "sym" else -1.0)
    scale = scale.masked_fill(scale == torch.inf, 0.0)
    norm = -tensors.scatter(scale, index.starts) * ones
    return norm * tensors.scatter(scale, index.ends) if normalization == "sym" else norm, 1.0


def grouped_linear(tensors: EdgeTensors, original: Any, layer: Any, src: Tensor) -> Tensor:
    """Compute the linear map of DNAConv, which has a matrix for each group of numbers, with the rows kept first."""
    if layer.groups == 1:
        return original(layer, src)  # type: ignore[no-any-return]
    others = "abcdef"[: src.dim() - 2]
    groups = src.reshape(*src.shape[:-1], layer.groups, layer.in_channels // layer.groups)
    out = torch.einsum(f"n{others}gi,gio->n{others}go", groups, layer.weight).flatten(-2)
    return out if layer.bias is None else out + layer.bias


def hypergraph_conv(
    tensors: EdgeTensors,
    original: Any,
    layer: Any,
    x: Tensor,
    hyperedge_index: Tensor,
    hyperedge_weight: Tensor | None = None,
    hyperedge_attr: Tensor | None = None,
    num_edges: Any = None,
) -> Tensor:
    """Compute HypergraphConv with as many hyperedges as vertices, because rows are vertices. Others change no result."""
    count = tensors.graph.num_vertices if num_edges is None else num_edges
    return original(layer, x, hyperedge_index, hyperedge_weight, hyperedge_attr, count)  # type: ignore[no-any-return]


def quantile_aggregation(
    tensors: EdgeTensors,
    original: Any,
    layer: Any,
    x: Tensor,
    index: Tensor | None = None,
    ptr: Any = None,
    dim_size: Any = None,
    dim: int = -2,
) -> Tensor:
    """Compute QuantileAggregation and MedianAggregation over the edges that have a vertex at one end."""
    end = tensors.ends.get(index)
    if end is None:
        raise tensors.refuse(
            f"{type(layer).__name__} takes messages of edges by one end of edge_index; groups have none"
        )
    if layer.interpolation not in INTERPOLATIONS:
        raise tensors.refuse(
            f"{type(layer).__name__} rounds halves by a vertex's position with interpolation={layer.interpolation!r}; use "
            f"{', '.join(map(repr, INTERPOLATIONS))}"
        )
    numbers = layer._q if isinstance(layer._q, list | tuple) else [layer._q]
    kinds = [f"quantile:{float(q)!r}:{layer.interpolation}" for q in numbers]
    found = [with_rows_first(partial(tensors.quantile, end=end, kind=kind), x, dim) for kind in kinds]
    out = found[0] if len(found) == 1 else torch.cat(found, dim=-1)
    if not layer.fill_value:
        return out
    return out.masked_fill(beside(tensors.count(end) == 0, out), layer.fill_value)


def mask_label(tensors: EdgeTensors, original: Any, layer: Any, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Compute MaskLabel as a product of rows with a 1 at the label, or without one where the mask is false."""
    classes = torch.ones_like(layer.emb.weight[:, 0]).cumsum(0) - 1  # 0, 1, ...
    known = (y.to(x.dtype).unsqueeze(-1) == classes).to(x.dtype) * mask.to(x.dtype).unsqueeze(-1)
    seen = known @ layer.emb.weight
    return torch.cat([x, seen], dim=-1) if layer.method == "concat" else x + seen


LAYERS: tuple[Leaf, ...] = (
    Leaf("torch_geometric.nn.models.mask_label", "MaskLabel", "", mask_label),
    Leaf("torch_geometric.nn.conv.cheb_conv", "ChebConv", "", cheb_conv),
    Leaf("torch_geometric.nn.conv.hypergraph_conv", "HypergraphConv", "", hypergraph_conv),
    Leaf("torch_geometric.nn.conv.arma_conv", "ARMAConv", "", arma_conv),
    Leaf("torch_geometric.nn.conv.mf_conv", "MFConv", "", mf_conv),
    Leaf("torch_geometric.nn.conv.cluster_gcn_conv", "ClusterGCNConv", "", cluster_gcn_conv),
    Leaf("torch_geometric.nn.conv.supergat_conv", "SuperGATConv", "", super_gat_conv),
    Leaf("torch_geometric.nn.conv.dna_conv", "Linear", "", grouped_linear),
    Leaf("torch_geometric.nn.conv.rgcn_conv", "RGCNConv", "", rgcn_conv),
    Leaf("torch_geometric.nn.conv.rgcn_conv", "FastRGCNConv", "", fast_rgcn_conv),
    Leaf("torch_geometric.nn.conv.hgt_conv", "HGTConv", "", hgt_conv),
    Leaf("torch_geometric.nn.dense.linear", "HeteroLinear", "", hetero_linear),
    Leaf("torch_geometric.nn.aggr.quantile", "QuantileAggregation", "", quantile_aggregation),
    *(Leaf(module, name, "", function) for name, (module, function) in (ATTENTION | NEIGHBOURS).items()),
)
"""The layers whose forward a trace replaces, by the names of their classes."""

REFUSED = {
    "DynamicEdgeConv": (
        "a graph of the nearest rows, which changes in training",
        "EdgeConv on a graph made beforehand",
    ),
    "GravNetConv": (
        "a graph of the nearest rows, which changes in training",
        "PointNetConv on a graph made beforehand",
    ),
    "XConv": ("a graph of the nearest rows, which changes in training", "PointNetConv on a graph made beforehand"),
    "GPSConv": (
        "a softmax between all pairs of vertices, if it is not made with attn_type='performer'",
        "GPSConv(attn_type='performer') or TransformerConv",
    ),
    **dict.fromkeys(
        ("TopKPooling", "SAGPooling", "ASAPooling", "EdgePooling", "PANPooling", "MemPooling", "ClusterPooling"),
        (
            "a graph of fewer vertices, which values decide",
            "global_mean_pool(x, batch)[batch], which keeps all vertices",
        ),
    ),
    "PANConv": ("products of sparse matrices", "SSGConv or TAGConv"),
    "WLConv": ("hashing of neighbourhoods, which has no gradient", "WLConvContinuous"),
    "MeshCNNConv": ("the order in which the edges of a mesh are given", "MLPAggregation or EdgeConv"),
    "MulAggregation": ("products over neighbours", "SumAggregation"),
    "GraphMultisetTransformer": ("a graph convolution among the neighbours of a vertex", "SetTransformerAggregation"),
    "EquilibriumAggregation": ("an optimisation inside forward", "DeepSetsAggregation"),
    "LCMAggregation": ("a tree over the neighbours of a vertex", "LSTMAggregation"),
    "PatchTransformerAggregation": ("random subsets of the neighbours", "SoftmaxAggregation"),
    "HeteroBatchNorm": ("statistics of all vertices of a type", "BatchNorm or HeteroLayerNorm"),
    "SplineConv": ("B-splines from the library pyg-lib", "NNConv or GMMConv"),
}
"""The layers and aggregations that cannot be traced. Each has what it needs that is not there, and the nearest that works."""


def why_refused(module: torch.nn.Module) -> str | None:
    """Return the reason why a layer cannot be traced, or None if it may be."""
    kind = next((kind for kind in type(module).__mro__ if _is_pyg(kind) and kind.__name__ in REFUSED), None)
    if kind is None:
        return None
    if kind.__name__ == "GPSConv" and getattr(module, "attn_type", None) == "performer":
        return None
    missing, nearest = REFUSED[kind.__name__]
    return f"{kind.__name__} is not supported, because it needs {missing}; the nearest that works is {nearest}"


def _is_pyg(kind: type) -> bool:
    return kind.__module__.startswith("torch_geometric.")


def _with_own_loops(tensors: EdgeTensors, edge_index: Tensor) -> Tensor:
    """Return the edges with one self-loop at each vertex, in place of those that are there."""
    rest, _ = loops.removed(tensors, tensors.meaning(edge_index), None)
    whole, _ = loops.added(tensors, rest, None, None)
    return tensors.index(whole)
