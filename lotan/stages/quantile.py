"""Quantiles over the in-edges of each vertex, as sums of messages of which each has a share."""

from __future__ import annotations

from math import inf, prod

import torch
from torch import Tensor

from planner.spec import quantile_of


def quantile_shares(messages: Tensor, destinations: Tensor, counts: Tensor, q: float, interpolation: str) -> Tensor:
    """Return the share that each message has in the quantile at its destination, number by number.

    The quantile is the sum of the shares times the messages. A share has no gradient, so that the gradient of a quantile
    goes to the messages that it is made of. Equal messages share it evenly.

    Args:
        messages: edge rows [edges, *shape], sorted by destination.
        destinations: the destination row of each edge, int64 [edges].
        counts: the number of in-edges of each row, int64 [rows].
        q: the quantile, from 0 to 1. With n in-edges, it lies at the place q (n - 1) of the sorted messages, from 0.
        interpolation: what is taken between two places: "lower", "higher", "midpoint" or "linear".

    Returns:
        [edges, *shape], zero for messages that the quantile is not made of.
    """
    shape = messages.shape
    flat = messages.detach().reshape(shape[0], prod(shape[1:]))  # [edges, width]
    place = q * (counts - 1).clamp(min=0).to(flat.dtype)
    low, high = place.floor(), place.ceil()
    fixed = {"lower": 0.0, "higher": 1.0, "midpoint": 0.5}.get(interpolation)
    part = place - low if fixed is None else torch.full_like(place, fixed)  # the share of the higher of both places
    shares = torch.zeros_like(flat)
    found = _ranked(flat, counts, torch.stack([low, high], dim=1).long())  # [rows, width, 2]
    for value, weight in zip(found.unbind(2), (1 - part, part), strict=True):
        chosen = (flat == value[destinations]).to(flat.dtype)
        alike = torch.zeros_like(value).index_add(0, destinations, chosen)
        shares += chosen * (weight.unsqueeze(1) / alike.clamp(min=1))[destinations]
    return shares.view(shape)


def _ranked(flat: Tensor, counts: Tensor, places: Tensor) -> Tensor:
    """Return the numbers at places of each row's sorted messages.

    Rows are sorted together with others of up to twice as many messages. A message is therefore copied twice at most.

    Args:
        flat: the messages [edges, width], sorted by row.
        counts: the number of messages of each row, int64 [rows].
        places: places from 0, int64 [rows, places].

    Returns:
        [rows, width, places], zero for rows without messages.
    """
    start, width = counts.cumsum(0) - counts, flat.shape[1]
    found = flat.new_zeros(len(counts), width, places.shape[1])
    size, most = 1, int(counts.max()) if len(counts) else 0
    while size < 2 * most:
        rows = ((counts <= size) & (counts > size // 2)).nonzero().squeeze(1)
        if len(rows):
            steps = torch.arange(size)
            at = (start[rows].unsqueeze(1) + steps).clamp(max=len(flat) - 1)  # [some rows, size]
            beyond = (steps >= counts[rows].unsqueeze(1)).unsqueeze(1)
            padded = flat[at].transpose(1, 2).masked_fill(beyond, inf)  # [some rows, width, size]
            taken = places[rows].unsqueeze(1).expand(-1, width, -1)
            found[rows] = padded.sort(dim=-1).values.gather(-1, taken)
        size *= 2
    return found


def quantile(messages: Tensor, index: Tensor, num_vertices: int, kind: str) -> Tensor:
    """Return a quantile of the in-edges' messages: [num_edges, *shape] to [num_vertices, *shape].

    Args:
        messages: edge rows [num_edges, *shape].
        index: int64 [2, num_edges], sources above destinations.
        num_vertices: the number of vertices.
        kind: the quantile, as in `planner.spec.quantile_of`.
    """
    found = quantile_of(kind)
    assert found is not None
    destinations, order = index[1].sort(stable=True)
    messages, counts = messages[order], torch.bincount(destinations, minlength=num_vertices)
    shares = quantile_shares(messages, destinations, counts, *found)
    return messages.new_zeros((num_vertices, *messages.shape[1:])).index_add(0, destinations, messages * shares)


def _in_a_trace(messages: Tensor, index: Tensor, num_vertices: int, kind: str, edges: str) -> Tensor:
    """Return a tensor of the shape of the quantile: a trace runs on tensors without numbers."""
    return messages.new_zeros((num_vertices, *messages.shape[1:])).index_add(0, index[1], messages)


_LIBRARY = torch.library.Library("lotan", "FRAGMENT")
_LIBRARY.define("quantile(Tensor messages, Tensor index, SymInt num_vertices, str kind, str edges) -> Tensor")
_LIBRARY.impl("quantile", _in_a_trace, "CompositeImplicitAutograd")
