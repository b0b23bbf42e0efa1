"""The sums of propagate, chunk by chunk: a thread makes the rows that the next stage reads while they are in the cache."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from lotan.memory.mapped import MappedMemory
from planner.chunks import chunks_in_group, even_chunks

PIECE_BYTES = 8 << 20
"""The most bytes of sums that are made at once, and copied out of a processor's own cache."""


class Chunks:
    """The rows of a column in runs of equal length, except for the last.

    Args:
        rows: The number of rows of the column.
        most: The largest number of rows in a chunk; see `planner.chunks.even_chunks`.
    """

    def __init__(self, rows: int, most: int) -> None:
        self.rows = rows
        count, self._length = even_chunks(rows, most)
        starts = range(0, count * self._length, self._length)
        self._runs = [slice(start, min(start + self._length, rows)) for start in starts]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[slice]:
        return iter(self._runs)

    def __getitem__(self, number: int) -> slice:
        return self._runs[number]

    def groups(self) -> list[range]:
        """Return groups of chunks. Parameter gradients are summed in float32 within a group, and in float64 across groups."""
        size = chunks_in_group(len(self), self._length)
        return [range(start, min(start + size, len(self))) for start in range(0, len(self), size)]


class Product:
    """A sparse matrix [rows, vertices], or its first rows, in chunks.

    torch's `embedding_bag` sums rows of a column by position. It has vector instructions and prefetching, and is
    several times as fast as a product with a CSR tensor. It adds in the order of the edges, and so yields the same
    bits.

    Args:
        matrix: The matrix in CSR form.
        weighted: True if its values are not all 1.
        chunks: The chunks of its rows, or of its first rows.
    """

    def __init__(self, matrix: Tensor, weighted: bool, chunks: Chunks) -> None:
        self.chunks = chunks
        ends, positions = matrix.crow_indices(), matrix.col_indices()
        self._bags: list[tuple[Tensor, Tensor, Tensor | None]] = []  # ends, positions and weights of each chunk
        for rows in chunks:
            of_rows = ends[rows.start : rows.stop + 1]
            some = slice(int(of_rows[0]), int(of_rows[-1]))
            weights = matrix.values()[some] if weighted else None
            self._bags.append((of_rows - of_rows[0], positions[some], weights))

    def __call__(self, number: int, column: Tensor) -> Tensor:
        """Return the sums of one chunk's rows, in memory of their own. [vertices, width] -> [rows, width]."""
        return _sums(column, *self._bags[number])

    def give_back(self, number: int, mapped: MappedMemory) -> None:
        """Take the pages of one chunk's positions and weights out of this process, if they lie in files."""
        _, positions, weights = self._bags[number]
        mapped.give_back(positions)
        if weights is not None:
            mapped.give_back(weights)

    def write(self, number: int, column: Tensor, out: Tensor) -> None:
        """Write the sums of one chunk's rows into a tensor, piece by piece. [vertices, width] -> out [rows, width].

        `embedding_bag` makes new memory for its sums. A piece that fits into the cache gets memory that was used before,
        and takes a quarter of the time of tens of megabytes that the operating system has to hand out first.
        """
        offsets, positions, weights = self._bags[number]
        length = max(1, PIECE_BYTES // (column.element_size() * column.shape[1]))
        for start in range(0, len(out), length):
            ends = offsets[start : start + length + 1]
            some = slice(int(ends[0]), int(ends[-1]))
            of_edges = None if weights is None else weights[some]
            out[start : start + length] = _sums(column, ends - ends[0], positions[some], of_edges)


def _sums(column: Tensor, offsets: Tensor, positions: Tensor, weights: Tensor | None) -> Tensor:
    """Return the sums of a column's rows at some positions, in new memory. [vertices, width] -> [rows, width].

    Args:
        column: The column.
        offsets: The place of each row's first position, and the number of positions. [rows + 1]
        positions: The positions, row by row. [edges]
        weights: The weight of each position [edges]; None: each is 1.
    """
    if not positions.numel():
        return torch.zeros(offsets.numel() - 1, column.shape[1])
    return torch.embedding_bag(column, positions, offsets, False, 0, False, weights, True)[0]
