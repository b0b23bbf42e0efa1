"""The edge set "self_loops" and GCN's scale as tensors. `planner.spec` defines what they are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SelfLoops:
    """The edge set "self_loops" in terms of the graph's own edges."""

    index: Tensor  # int64 [2, edges]: the edges that are no self-loops, then the self-loop of each vertex
    others: Tensor  # int64: the positions of the graph's edges that are no self-loops
    chosen: Tensor  # int64 [vertices]: the position of the self-loop that each vertex keeps, or -1 if it had none

    def weights(self, weight: Tensor) -> Tensor:
        """Return the edges' weights. A loop that was added weighs 1."""
        return self._joined(weight, weight.new_ones(len(self.chosen)))

    def column(self, values: Tensor, destinations: Tensor, fill: float | str) -> Tensor:
        """Return a column of the edges, [edges, *shape], as PyG's add_remaining_self_loops does.

        Args:
            values: the column of the graph's own edges.
            destinations: the destinations of these edges, int64.
            fill: the value of a loop that was added: a number, or "mean", "add", "max" or "min" of the values of the
                vertex's in-edges, which is 0 for a vertex without in-edges.
        """
        shape = len(self.chosen), *values.shape[1:]
        added = reduced(values, destinations, shape[0], fill) if isinstance(fill, str) else values.new_full(shape, fill)
        return self._joined(values, added)

    def _joined(self, values: Tensor, added: Tensor) -> Tensor:
        had = self.chosen >= 0
        added[had] = values[self.chosen[had]]
        return torch.cat([values[self.others], added])


def reduced(values: Tensor, destinations: Tensor, vertices: int, reduction: str) -> Tensor:
    """Return the mean, sum ("add"), maximum or minimum of edges' values for each destination, 0 where there are none.

    Args:
        values: float32 [edges, width].
        destinations: destination of each edge, int64 [edges].
        vertices: number of vertices.
        reduction: one of `planner.edge_columns.REDUCTIONS`.

    Returns:
        [vertices, width]. Sums are taken in float64, so that the order of the edges does not matter.
    """
    if reduction in ("max", "min"):
        index = destinations.view(-1, 1).expand_as(values)
        start = values.new_zeros(vertices, values.shape[1])
        return start.scatter_reduce(0, index, values, f"a{reduction}", include_self=False)
    total = values.new_zeros(vertices, values.shape[1], dtype=torch.float64).index_add(0, destinations, values.double())
    if reduction == "mean":
        total /= torch.bincount(destinations, minlength=vertices).clamp(min=1).view(-1, 1)
    return total.to(values.dtype)


def self_loops(index: Tensor, vertices: int) -> SelfLoops:
    """Replace all self-loops by exactly one for each vertex: the last that it had, or a new one.

    PyG keeps the last as well. Tables have no order, but the edges of `lotan.graph.GraphArrays` are sorted: there, the
    last is the one of the greatest weight; among equal weights, of the greatest type; then of the greatest attributes.

    Args:
        index: int64 [2, edges], sources above destinations.
        vertices: number of vertices.

    >>> found = self_loops(torch.tensor([[1, 0, 1], [1, 1, 1]]), 2)
    >>> found.index.tolist(), found.weights(torch.tensor([2.0, 3.0, 4.0])).tolist()
    ([[0, 0, 1], [1, 0, 1]], [3.0, 1.0, 4.0])
    """
    is_loop = index[0] == index[1]
    loops, others = is_loop.nonzero().view(-1), (~is_loop).nonzero().view(-1)
    chosen = torch.full((vertices,), -1).scatter_reduce(0, index[0, loops], loops, "amax")  # the last, -1 for none
    return SelfLoops(torch.cat([index[:, others], torch.arange(vertices).expand(2, -1)], dim=1), others, chosen)


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
    return inverse_root(weight.new_zeros(vertices, dtype=torch.float64).index_add(0, destinations, weight.double()))


def inverse_root(sums: Tensor) -> Tensor:
    """Return sums^-1/2, or 0 where that is not finite."""
    scale = sums.pow(-0.5)
    return torch.where(scale.isfinite(), scale, 0.0)
