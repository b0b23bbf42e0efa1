"""PyG's linear attention between all pairs of vertices, with one row for each vertex first.

Such attention takes products of keys and values summed over all vertices, so that no pair of vertices is ever formed. PyG's
layers take the vertices in the second dimension, one graph after the other in the first. Here all vertices are one graph, and
`to_dense_batch` gives rows as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lotan.tracing.pyg.edge_tensors import EdgeTensors

ONE_GROUP = (
    "attends between all vertices of a group, which is supported for one group: give batch=None, or a column of zeros"
)
NOT_ROWS = "takes rows of vertices as [num_vertices, channels], or as [1, num_vertices, channels] by x.unsqueeze(0)"

Attend = Callable[[Any, Tensor], Tensor]


def to_dense_batch(
    tensors: EdgeTensors, original: Any, x: Tensor, batch: Tensor | None = None, *args: Any, **kwargs: Any
) -> tuple[Tensor, Tensor]:
    """Return rows of vertices as they are, and a mask that chooses all of them.

    Raises:
        ModelError: there are several groups, or the rows are not those of vertices.
    """
    known = batch is None or tensors.groups.get(batch) is not None
    several = batch is not None and tensors.number_of_groups != 1
    if not known or several or not _is_rows(x) or args or kwargs:
        raise tensors.refuse(ONE_GROUP)
    mask = torch.ones_like(x if x.dim() == 1 else x.select(1, 0), dtype=torch.bool)
    return x, tensors.mark_all(mask)


def _is_rows(x: Tensor) -> bool:
    return x.dim() > 0 and isinstance(x.shape[0], torch.SymInt)


def _on_rows(attend: Attend) -> Callable[..., Tensor]:
    """Return the replacement of a layer's forward by a function of the layer and rows [num_vertices, channels]."""

    def call(tensors: EdgeTensors, original: Any, layer: Any, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None and not tensors.chooses_all(mask):
            raise tensors.refuse(ONE_GROUP)
        if x.dim() == 2 and _is_rows(x):
            return attend(layer, x)
        if x.dim() == 3 and isinstance(x.shape[0], int) and x.shape[0] == 1:
            return attend(layer, x.squeeze(0)).unsqueeze(0)
        raise tensors.refuse(NOT_ROWS)

    return call


def _sgformer(layer: Any, x: Tensor) -> Tensor:
    q, k, v = (part(x).reshape(x.size(0), layer.heads, layer.head_channels) for part in (layer.q, layer.k, layer.v))
    q, k = (torch.where(rows == 0, 1e-6, rows) for rows in (q, k))
    q, k = (rows / torch.linalg.vector_norm(rows, dim=-1, keepdim=True) for rows in (q, k))
    count = torch.ones_like(x.select(1, 0)).sum()
    outs = []
    for head in range(layer.heads):
        own_q, own_k, own_v = (rows.select(1, head) for rows in (q, k, v))
        numerator = own_q @ (own_k.t() @ own_v) + count * own_v
        outs.append(numerator / ((own_q * own_k.sum(0)).sum(-1, keepdim=True) + count))
    return torch.stack(outs, dim=1).mean(dim=1)


def _polynormer(layer: Any, x: Tensor) -> Tensor:
    h = layer.h_lins(x)
    shape = x.size(0), layer.head_channels, layer.heads
    k = layer.k(x).sigmoid().view(shape)
    q = k if layer.qk_shared else F.sigmoid(layer.q(x)).view(shape)
    v = layer.v(x).view(shape)
    outs = []
    for head in range(layer.heads):
        own_q, own_k, own_v = (rows.select(2, head) for rows in (q, k, v))
        numerator = own_q @ (own_k.t() @ own_v)
        outs.append(numerator / ((own_q * own_k.sum(0)).sum(-1, keepdim=True) + 1e-6))
    out = torch.stack(outs, dim=2).reshape(x.size(0), layer.head_channels * layer.heads)
    out = F.relu(layer.lin_out(layer.lns(out) * (h + layer.beta)))
    return layer.dropout(out)  # type: ignore[no-any-return]


def _performer(layer: Any, x: Tensor) -> Tensor:
    q, k, v = (part(x).reshape(x.size(0), layer.heads, layer.head_channels) for part in (layer.q, layer.k, layer.v))
    projection, kernel = layer.fast_attn.projection_matrix.t(), layer.fast_attn.kernel
    outs = []
    for head in range(layer.heads):
        own_q, own_k = (kernel(rows.select(1, head) @ projection) + 0.001 for rows in (q, k))
        numerator = own_q @ (own_k.t() @ v.select(1, head))
        outs.append(numerator * (1.0 / (own_q * own_k.sum(0)).sum(-1, keepdim=True)))
    out = torch.stack(outs, dim=1).reshape(x.size(0), layer.heads * layer.head_channels)
    return layer.dropout(layer.attn_out(out))  # type: ignore[no-any-return]


ATTENTION: dict[str, tuple[str, Callable[..., Tensor]]] = {
    "SGFormerAttention": ("torch_geometric.nn.attention.sgformer", _on_rows(_sgformer)),
    "PolynormerAttention": ("torch_geometric.nn.attention.polynormer", _on_rows(_polynormer)),
    "PerformerAttention": ("torch_geometric.nn.attention.performer", _on_rows(_performer)),
}
"""The module that defines each kind of attention, and the function in place of its forward."""
