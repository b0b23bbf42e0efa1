"""Aggregations that take the in-edges of a vertex in their order, or each of them beside all others.

The neighbours of a vertex are put side by side, [vertices, places, *shape], for a few vertices at a time, so that memory is
bounded whatever the degrees are. Backward puts them side by side again, and keeps nothing but the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod, sqrt
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lotan.errors import StageError
from planner.neighbours import SEQUENCES, SIDE_BY_SIDE_BYTES, step_bytes

Pieces = Iterator[tuple[Tensor, int]]
"""Some rows, int64 [some rows], and the most in-edges that one of them has."""


def in_order(order: Tensor, destinations: Tensor) -> Tensor:
    """Return the positions of edges sorted by destination and then by their order. Equal ones stay as they are.

    Args:
        order: numbers for each edge, float32 [edges, numbers]: the first one counts first, and the next where it is equal.
        destinations: the destination row of each edge, int64 [edges].
    """
    found = torch.arange(len(destinations))
    for key in (*order.detach().flip(1).unbind(1), destinations):
        found = found[key[found].argsort(stable=True)]
    return found


def neighbour_rows(messages: Tensor, order: Tensor, destinations: Tensor, counts: Tensor, size: int) -> Tensor:
    """Return the messages of the first `size` in-edges of each row, side by side. Places without an in-edge hold zeros.

    Args:
        messages: edge rows [edges, *shape].
        order: numbers by which the edges of a row are sorted, [edges, numbers]: see `in_order`.
        destinations: the destination row of each edge, int64 [edges].
        counts: the number of in-edges of each row, int64 [rows].
        size: the number of places.

    Returns:
        [rows, size, *shape].
    """
    sorted_edges = in_order(order, destinations)
    place = torch.arange(len(messages)) - (counts.cumsum(0) - counts)[destinations[sorted_edges]]
    kept = place < size
    chosen = sorted_edges[kept]
    to = destinations[chosen] * size + place[kept]
    shape = messages.shape[1:]
    flat = messages.new_zeros(len(counts) * size, *shape).index_copy(0, to, messages.index_select(0, chosen))
    return flat.view(len(counts), size, *shape)


def neighbour_sequence(
    messages: Tensor,
    order: Tensor,
    destinations: Tensor,
    counts: Tensor,
    steps: int,
    kind: str,
    layers: int,
    both_ways: bool,
    weights: Sequence[Tensor],
) -> Tensor:
    """Return the last output of a recurrent network along the in-edges of each row, as LSTMAggregation of PyG does.

    Every row has a sequence of the same length. Zeros follow the messages of a row that has fewer in-edges.

    Args:
        messages: edge rows [edges, channels].
        order: numbers by which the edges of a row are sorted, [edges, numbers]: see `in_order`.
        destinations: the destination row of each edge, int64 [edges].
        counts: the number of in-edges of each row, int64 [rows].
        steps: the length of the sequences, which is the greatest number of in-edges of a vertex.
        kind: "lstm" or "gru".
        layers: the number of layers.
        both_ways: True if each layer runs in both directions.
        weights: the network's weights, in torch's order.

    Returns:
        [rows, size], or [rows, 2 * size] with both directions.

    Raises:
        StageError: a row has more in-edges than `steps`.
    """
    if len(counts) and int(counts.max()) > steps:
        raise StageError(f"a vertex has {int(counts.max()):,} in-edges, but sequences have {steps:,} steps")
    run = _Network(kind, layers, both_ways, len(weights) // (layers * (1 + both_ways)) == 4)
    size = weights[1].shape[1]
    rows = max(1, SIDE_BY_SIDE_BYTES // max(1, step_bytes(messages.shape[1], size, layers * (1 + both_ways)) * steps))
    pieces = [(part, steps) for part in torch.arange(len(counts)).split(rows)]
    sides = _Sides(in_order(order, destinations), counts, pieces)
    return cast(Tensor, _OverSides.apply(sides, run, (size * (1 + both_ways),), 1, messages, *weights))


class _Network:
    """The last output of a recurrent network over sequences [rows, steps, channels]."""

    def __init__(self, kind: str, layers: int, both_ways: bool, biased: bool) -> None:
        assert kind in SEQUENCES
        self._kind, self._settings = kind, (biased, layers, 0.0, torch.is_grad_enabled(), both_ways, True)
        self._states = layers * (1 + both_ways)

    def __call__(self, sides: Sequence[Tensor], weights: Sequence[Tensor], there: Tensor) -> Tensor:
        (x,) = sides
        size = weights[1].shape[1]
        state = x.new_zeros(self._states, len(x), size)
        given = [*weights]
        if self._kind == "lstm":
            return torch.lstm(x, [state, state], given, *self._settings)[0][:, -1]
        return torch.gru(x, state, given, *self._settings)[0][:, -1]


def neighbour_attention(queries: Tensor, keys: Tensor, values: Tensor, counts: Tensor) -> Tensor:
    """Let each in-edge of a row attend to all in-edges of that row: softmax(q k^T / sqrt(channels)) v.

    Args:
        queries: edge rows [edges, heads, channels], sorted by destination.
        keys: the same.
        values: the same.
        counts: the number of in-edges of each row, int64 [rows].

    Returns:
        [edges, heads, channels].
    """
    edges = torch.arange(len(queries))
    pieces = [*_by_degree(counts, queries.shape[1], prod(queries.shape[1:]))]
    sides = _Sides(edges, counts, pieces)
    return cast(Tensor, _OverSides.apply(sides, _attend, tuple(queries.shape[1:]), 3, queries, keys, values))


def _by_degree(counts: Tensor, heads: int, width: int) -> Pieces:
    """Yield rows beside others of up to twice as many in-edges, as many as memory allows."""
    size, most = 1, int(counts.max()) if len(counts) else 0
    while size < 2 * most:
        rows = ((counts <= size) & (counts > size // 2)).nonzero().squeeze(1)
        if len(rows):
            greatest = int(counts[rows].max())
            bytes_of_row = 4 * greatest * (4 * width + min(greatest, ROWS_OF_SCORES) * heads)
            yield from ((part, greatest) for part in rows.split(max(1, SIDE_BY_SIDE_BYTES // bytes_of_row)))
        size *= 2


ROWS_OF_SCORES = 1024
"""The in-edges of a vertex whose scores are in memory at one time."""


def _attend(sides: Sequence[Tensor], weights: Sequence[Tensor], there: Tensor) -> Tensor:
    """Attend within rows [rows, places, heads, channels], of which only the places in `there`, bool [rows, places], count."""
    queries, keys, values = (one.transpose(1, 2) for one in sides)  # [rows, heads, places, channels]
    hidden = torch.zeros(there.shape, dtype=queries.dtype).masked_fill(~there, -torch.inf)[:, None, None, :]
    outs = []
    for part in queries.split(ROWS_OF_SCORES, dim=2):
        scores = part @ keys.transpose(2, 3) / sqrt(queries.shape[-1]) + hidden
        outs.append(scores.softmax(-1) @ values)
    return torch.cat(outs, dim=2).transpose(1, 2)


class _Sides:
    """Edges by their destination rows, and the rows that are put side by side together."""

    def __init__(self, order: Tensor, counts: Tensor, pieces: Sequence[tuple[Tensor, int]]) -> None:
        self.order, self.counts, self.pieces = order, counts, pieces
        self._start = counts.cumsum(0) - counts

    def of(self, rows: Tensor, places: int) -> tuple[Tensor, Tensor]:
        """Return the edges of some rows, int64 [edges of these rows], and where they are, bool [some rows, places]."""
        steps = torch.arange(places)
        there = steps < self.counts[rows].unsqueeze(1)
        return self.order[(self._start[rows].unsqueeze(1) + steps)[there]], there


Run = Callable[[Sequence[Tensor], Sequence[Tensor], Tensor], Tensor]
"""A function of neighbours side by side, of weights, and of the places that count. It yields rows, or one for each place."""


class _OverSides(Function):
    """A function of messages side by side, row by row or place by place. Backward computes it again, a few rows at a time."""

    @staticmethod
    def forward(ctx: Any, sides: _Sides, run: Run, shape: tuple[int, ...], inputs: int, *tensors: Tensor) -> Tensor:
        ctx.sides, ctx.run, ctx.inputs = sides, run, inputs
        ctx.save_for_backward(*tensors)
        messages, weights = tensors[:inputs], tensors[inputs:]
        of_edges = inputs > 1
        out = messages[0].new_zeros(len(messages[0]) if of_edges else len(sides.counts), *shape)
        for rows, places in sides.pieces:
            edges, there = sides.of(rows, places)
            found = run([_beside(one, edges, there) for one in messages], weights, there)
            out[edges if of_edges else rows] = found[there] if of_edges else found
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        tensors, sides, inputs = ctx.saved_tensors, ctx.sides, ctx.inputs
        found = [torch.zeros_like(one) for one in tensors]
        for rows, places in sides.pieces:
            edges, there = sides.of(rows, places)
            with torch.enable_grad():
                given = [_beside(one, edges, there).requires_grad_() for one in tensors[:inputs]]
                weights = [one.detach().requires_grad_() for one in tensors[inputs:]]
                out = ctx.run(given, weights, there)
            own = _beside(gradient, edges, there) if inputs > 1 else gradient[rows]
            parts = torch.autograd.grad(out, [*given, *weights], own)
            for place, part in enumerate(parts):
                if place < inputs:
                    found[place][edges] = part[there]
                else:
                    found[place] += part
        wanted = ctx.needs_input_grad[4:]
        return (None, None, None, None, *(one if needed else None for one, needed in zip(found, wanted, strict=True)))


def _beside(rows: Tensor, edges: Tensor, there: Tensor) -> Tensor:
    """Return rows of edges [edges, *shape] side by side: [some rows, places, *shape]. Other places hold zeros."""
    out = rows.new_zeros(*there.shape, *rows.shape[1:])
    out[there] = rows[edges]
    return out


# In a trace, tensors have no numbers: an operator yields a tensor of the shape of its result, computed from all that it reads.


def _traced_rows(messages: Tensor, order: Tensor, index: Tensor, num_vertices: int, size: int, edges: str) -> Tensor:
    total = messages.new_zeros((num_vertices, *messages.shape[1:])).index_add(0, index[1], messages)
    return total.unsqueeze(1).expand(num_vertices, size, *messages.shape[1:]).clone()


def _traced_sequence(
    messages: Tensor,
    order: Tensor,
    steps: Tensor,
    index: Tensor,
    num_vertices: int,
    kind: str,
    layers: int,
    both_ways: bool,
    weights: Sequence[Tensor],
    edges: str,
) -> Tensor:
    total = messages.new_zeros((num_vertices, *messages.shape[1:])).index_add(0, index[1], messages)
    row = torch.cat([weights[1].sum(0)] * (1 + both_ways)) + sum(one.sum() for one in weights)
    return total.sum(1, keepdim=True) + row


def _traced_attention(queries: Tensor, keys: Tensor, values: Tensor, index: Tensor, edges: str) -> Tensor:
    return queries + keys + values


_LIBRARY = torch.library.Library("lotan", "FRAGMENT")
_LIBRARY.define(
    "neighbour_rows(Tensor messages, Tensor order, Tensor index, SymInt num_vertices, int size, str edges) -> Tensor"
)
_LIBRARY.define(
    "neighbour_sequence(Tensor messages, Tensor order, Tensor steps, Tensor index, SymInt num_vertices, str kind, "
    "int layers, bool both_ways, Tensor[] weights, str edges) -> Tensor"
)
_LIBRARY.define("neighbour_attention(Tensor queries, Tensor keys, Tensor values, Tensor index, str edges) -> Tensor")
_LIBRARY.impl("neighbour_rows", _traced_rows, "CompositeImplicitAutograd")
_LIBRARY.impl("neighbour_sequence", _traced_sequence, "CompositeImplicitAutograd")
_LIBRARY.impl("neighbour_attention", _traced_attention, "CompositeImplicitAutograd")
