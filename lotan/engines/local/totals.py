"""Reductions of a column over all vertices, and their gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from lotan.engines.local.crew import Crew
from lotan.engines.local.products import Chunks
from planner.spec import TotalKind, divisor

PIECE = 512
"""The rows that are summed in float32. Sums of pieces are added in float64."""
SAMPLED = 256
"""The rows whose mean is taken from all rows before they are squared, which keeps the digits of a small variance."""


def total(column: Tensor, kind: TotalKind, chunks: Chunks, crew: Crew, scale: Tensor | None = None) -> Tensor:
    """Reduce a column over all vertices.

    Sums of chunks are added in their order. So the result has the same bits whichever thread sums a chunk.

    Args:
        column: The column, float32 [vertices, *shape].
        kind: One of `planner.spec.TOTALS`.
        chunks: The chunks of all vertices.
        crew: The threads that share the chunks.
        scale: A number for each vertex, float32 [vertices, 1], by which its row is multiplied first; None: rows as they are.

    Returns:
        One row, float32 [width], or [width * 2] for "moments", with mean and variance side by side.
    """
    flat, vertices = column.reshape(len(column), -1), chunks.rows
    near = flat[:: max(1, vertices // SAMPLED)]
    if scale is not None:
        near = near * scale[:: max(1, vertices // SAMPLED)]
    near = _folded(near.clone()) / len(near)  # [width]; a row near the mean
    sums = crew.run(len(chunks), lambda number: _sums(flat, scale, chunks[number], near, kind == "moments"))
    apart, *squares = (torch.stack(parts).sum(0) for parts in zip(*sums, strict=True))  # float64 [width]
    mean = near + apart / vertices
    if kind != "moments":
        return reduced(mean * vertices, kind, vertices)
    variance = (squares[0] / vertices - (apart / vertices).square()).clamp_(min=0)
    return torch.stack([mean, variance], dim=-1).flatten().float()


def _sums(flat: Tensor, scale: Tensor | None, rows: slice, near: Tensor, squared: bool) -> list[Tensor]:
    """Return the sum over some rows of their distances from a row, and of the squares of these if asked. float64 [width]."""
    found = [torch.zeros(len(near), dtype=torch.float64) for _ in range(1 + squared)]
    memory, more = (torch.empty(PIECE, len(near)) for _ in range(2))
    for piece in _pieces(rows):
        some = flat[piece]
        apart = memory[: len(some)]
        if scale is None:
            torch.sub(some, near, out=apart)
        else:
            torch.mul(some, scale[piece], out=apart).sub_(near)
        if squared:
            found[1] += _folded(torch.mul(apart, apart, out=more[: len(some)]))
        found[0] += _folded(apart)
    return found


def _folded(rows: Tensor) -> Tensor:
    """Return the sum of one or more rows [rows, width], which are overwritten.

    The last half is added to the first one again and again. torch's own sums have another order for other widths, and a
    model of a batch must have the bits that it has alone.
    """
    count = len(rows)
    while count > 1:
        half = count // 2
        rows[:half] += rows[count - half : count]
        count -= half
    return rows[0]


def _pieces(rows: slice) -> Iterator[slice]:
    for start in range(rows.start, rows.stop, PIECE):
        yield slice(start, min(start + PIECE, rows.stop))


def sum_of_rows(columns: Iterable[Tensor]) -> Tensor:
    """Return the sum of all rows of some columns [rows, *shape], float64 [width]. The columns may have any number of rows."""
    return _folded(torch.stack([_folded(column.reshape(len(column), -1).double()) for column in columns]))


def reduced(summed: Tensor, kind: TotalKind, vertices: int) -> Tensor:
    """Return a total that is a sum times a number, float32 [width], from the sum of all rows, float64 [width]."""
    return (summed / divisor(kind, vertices)).float()


class Spread:
    """The gradient of a column from the summed gradient of its total.

    Args:
        gradient: The summed gradient, float64 [width], or [width * 2] for moments.
        kind: The kind of the total.
        vertices: The number of vertices.
        moments: The total, float32 [width * 2], for moments.
    """

    def __init__(self, gradient: Tensor, kind: TotalKind, vertices: int, moments: Tensor | None = None) -> None:
        self._mean = self._factor = None  # both [width], for moments only
        if moments is not None:
            of_mean, of_variance = (gradient / vertices).view(-1, 2).t()
            self._mean, self._factor = moments.view(-1, 2)[:, 0].contiguous(), (2 * of_variance).float()
            self._row = of_mean.float()
        else:
            self._row = reduced(gradient, kind, vertices)

    def write(self, x: Tensor | None, scale: Tensor | None, plus: Sequence[Tensor], out: Tensor) -> None:
        """Write the gradient of some rows.

        Args:
            x: The rows of the column, [rows, width], for moments.
            scale: The scales of these rows, [rows, 1], or None.
            plus: Other parts of the gradient, each [rows, width].
            out: Memory for the result, [rows, width].
        """
        for piece in _pieces(slice(0, len(out))):
            self._write(
                None if x is None else x[piece],
                None if scale is None else scale[piece],
                [part[piece] for part in plus],
                out[piece],
            )

    def _write(self, x: Tensor | None, scale: Tensor | None, plus: Sequence[Tensor], out: Tensor) -> None:
        if x is None or self._mean is None or self._factor is None:
            out.copy_(self._row)
        else:
            if scale is None:
                torch.sub(x, self._mean, out=out)
            else:
                torch.mul(x, scale, out=out).sub_(self._mean)
            torch.addcmul(self._row, out, self._factor, out=out)
        if scale is not None:
            out.mul_(scale)
        for part in plus:
            out.add_(part)
