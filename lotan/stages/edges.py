"""Movements of rows between vertices and edges within a chunk, with gradients that have the same bits in every run.

torch's own gradients of `index_select` add rows one at a time or in no fixed order. Here every sum over edges is a
product with a fixed sparse matrix, one row after the other.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lotan.errors import StageError
from lotan.stages.chunk import EdgeBlock
from lotan.stages.quantile import quantile_shares
from planner.spec import SOFTMAX_EPSILON, quantile_of


def reduce_edges(matrix: Tensor, rows: Tensor, kind: str = "sum") -> Tensor:
    """Reduce edge rows [edges, *shape] by sum, amax or amin to the groups of `matrix`, [groups, *shape]. Empty groups are 0."""
    shape = (matrix.shape[0], *rows.shape[1:])
    if not rows.numel() or not matrix.shape[0]:
        return rows.new_zeros(shape)
    flat = rows.reshape(rows.shape[0], -1).contiguous()  # [edges, width]
    return cast(Tensor, torch.sparse.mm(matrix, flat, kind)).view(shape)


class _GatherSource(Function):
    """The rows x[positions]. The gradient sums the edges of each source row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, block: EdgeBlock) -> Tensor:
        ctx.block, ctx.sources = block, x.shape[0]
        return x.index_select(0, block.positions)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return reduce_edges(ctx.block.by_source(ctx.sources), gradient), None


class _GatherDestination(Function):
    """The row x[destination] of each edge. The gradient sums the edges of each destination row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, block: EdgeBlock) -> Tensor:
        ctx.block = block
        return x.index_select(0, block.destinations)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return reduce_edges(ctx.block.by_destination, gradient), None


class _Sum(Function):
    """The sum of the in-edges' rows. The gradient is the row of each edge's destination."""

    @staticmethod
    def forward(ctx: Any, messages: Tensor, block: EdgeBlock) -> Tensor:
        ctx.block = block
        return reduce_edges(block.by_destination, messages)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.index_select(0, ctx.block.destinations), None


class _Extremum(Function):
    """The greatest or least of the in-edges' rows, number by number. Equal numbers share the gradient evenly."""

    @staticmethod
    def forward(ctx: Any, messages: Tensor, block: EdgeBlock, kind: str) -> Tensor:
        best = reduce_edges(block.by_destination, messages, kind)
        ctx.block = block
        ctx.save_for_backward(messages, best)
        return best

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        messages, best = ctx.saved_tensors
        destinations = ctx.block.destinations
        winners = (messages == best.index_select(0, destinations)).to(gradient.dtype)  # [edges, *shape]
        share = gradient / reduce_edges(ctx.block.by_destination, winners).clamp_(min=1)
        return winners.mul_(share.index_select(0, destinations)), None, None


class _Softmax(Function):
    """The `lotan.edge_softmax` of `planner.spec`. The subtraction of the greatest score has no gradient."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, block: EdgeBlock) -> Tensor:
        greatest = reduce_edges(block.by_destination, scores, "amax")
        shares = (scores - greatest.index_select(0, block.destinations)).exp_()
        total = reduce_edges(block.by_destination, shares).add_(SOFTMAX_EPSILON)
        shares.div_(total.index_select(0, block.destinations))
        ctx.block = block
        ctx.save_for_backward(shares)
        return shares

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (shares,) = ctx.saved_tensors
        product = shares * gradient
        mean = reduce_edges(ctx.block.by_destination, product)
        return product - shares * mean.index_select(0, ctx.block.destinations), None


def gather_source(x: Tensor, block: EdgeBlock) -> Tensor:
    """Return the row of each edge's source: [sources, *shape] to [edges, *shape]."""
    return cast(Tensor, _GatherSource.apply(x, block))


def gather_destination(x: Tensor, block: EdgeBlock) -> Tensor:
    """Return the row of each edge's destination: [rows, *shape] to [edges, *shape]."""
    return cast(Tensor, _GatherDestination.apply(x, block))


def aggregate(messages: Tensor, kind: str, block: EdgeBlock) -> Tensor:
    """Combine the in-edges of each row: [edges, *shape] to [rows, *shape]. Rows without in-edges are zero.

    Raises:
        StageError: If `kind` is neither one of planner.spec.AGGREGATES nor a quantile.
    """
    found = quantile_of(kind)
    if found is not None:
        shares = quantile_shares(messages, block.destinations, block.indptr.diff(), *found)
        return cast(Tensor, _Sum.apply(messages * shares, block))
    match kind:
        case "sum":
            return cast(Tensor, _Sum.apply(messages, block))
        case "mean":
            degree = block.in_degree.view(-1, *[1] * (messages.dim() - 1))
            return cast(Tensor, _Sum.apply(messages, block)) / degree
        case "max" | "min":
            return cast(Tensor, _Extremum.apply(messages, block, f"a{kind}"))
    raise StageError(f"lotan.aggregate of kind {kind!r}: expected sum, mean, max, min or a quantile")


def edge_softmax(scores: Tensor, block: EdgeBlock) -> Tensor:
    """Normalise edge rows [edges, *shape] over the in-edges of each destination."""
    return cast(Tensor, _Softmax.apply(scores, block))
