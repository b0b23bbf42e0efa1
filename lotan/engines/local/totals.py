"""Reductions of a column over all vertices."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lotan.engines.local.crew import Crew
from lotan.engines.local.products import Chunks
from planner.spec import TotalKind


def total(column: Tensor, kind: TotalKind, chunks: Chunks, crew: Crew) -> Tensor:
    """Reduce a column over all vertices.

    Each chunk is summed in float64, and the sums of chunks are added in their order. So the result has the same bits
    whichever thread sums a chunk.

    Args:
        column: The column, float32 [rows, *shape]. Rows that it lacks at the end count as zeros.
        kind: One of `planner.spec.TOTALS`.
        chunks: The chunks of all vertices.
        crew: The threads that share the chunks.

    Returns:
        One row, float32 [width], or [width * 2] for "moments", with mean and variance side by side.
    """
    flat = column.reshape(len(column), -1)
    vertices = chunks.rows
    summed = _summed(flat, chunks, crew, lambda rows: rows)
    match kind:
        case "sum":
            return summed.float()
        case "mean":
            return (summed / vertices).float()
        case "sample":
            return (summed / (vertices - 1)).float()
    mean = summed / vertices
    variance = _summed(flat, chunks, crew, lambda rows: (rows - mean).square_()) / vertices
    return torch.stack([mean, variance], dim=-1).flatten().float()


def _summed(flat: Tensor, chunks: Chunks, crew: Crew, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the sum of changed rows, float64 [width]."""
    parts = crew.run(len(chunks), lambda number: change(flat[chunks[number]].double()).sum(0))
    return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]
