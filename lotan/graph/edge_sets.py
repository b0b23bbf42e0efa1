"""The edge set "self_loops" and GCN's scale as tensors. `planner.spec` defines what they are."""

from __future__ import annotations

import torch
from torch import Tensor


def replace_self_loops(index: Tensor, weight: Tensor | None, vertices: int) -> tuple[Tensor, Tensor | None]:
    """Replace all self-loops by exactly one for each vertex.

    It has the weight of the vertex's last self-loop, or weight 1 if the vertex had none.

    Args:
        index: int64 [2, edges], sources above destinations.
        weight: weights [edges], or None if every edge weighs 1.
        vertices: number of vertices.

    Returns:
        Index and weight of the other edges, in their order, followed by the self-loops in the order of the vertices.

    >>> index, weight = replace_self_loops(torch.tensor([[1, 0, 1], [1, 1, 1]]), torch.tensor([2.0, 3.0, 4.0]), 2)
    >>> index.tolist(), weight.tolist()
    ([[0, 0, 1], [1, 0, 1]], [3.0, 1.0, 4.0])
    """
    is_loop = index[0] == index[1]
    replaced = torch.cat([index[:, ~is_loop], torch.arange(vertices).expand(2, -1)], dim=1)
    if weight is None:
        return replaced, None
    loops = is_loop.nonzero().view(-1)
    last = torch.full((vertices,), -1).scatter_reduce(0, index[0, loops], loops, "amax")  # [vertices], -1 for none
    of_loops = weight.new_ones(vertices)
    of_loops[last >= 0] = weight[last[last >= 0]]
    return replaced, torch.cat([weight[~is_loop], of_loops])


def gcn_scale(destinations: Tensor, weight: Tensor | None, vertices: int) -> Tensor:
    """Return (sum of the in-edges' weights)^-1/2, float64 [vertices], or 0 where that is not finite.

    Args:
        destinations: destination of each edge, int64 [edges].
        weight: weights [edges], or None if every edge weighs 1.
        vertices: number of vertices.

    >>> gcn_scale(torch.tensor([1, 1, 1, 1]), None, 2).tolist()
    [0.0, 0.5]
    """
    weight = torch.ones(len(destinations)) if weight is None else weight
    scale = weight.new_zeros(vertices, dtype=torch.float64).index_add(0, destinations, weight.double()).pow(-0.5)
    return torch.where(scale.isfinite(), scale, 0.0)
