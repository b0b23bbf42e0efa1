"""Sums over the entries of each row of a sparse matrix. The terms are rows of numbers that are made on the way.

Every step is an operator on whole rows in the cache, which adds numbers at the same position. So the bits are the same
however many threads share the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from lotan.engines.local.crew import Crew

RUN_ROWS = 1024
"""Rows summed at a time: at usual widths they stay in the cache, and cost more than the call of an operator."""

HUB_RANKS = 3
"""The cost of a row that is summed alone, in units of one more entry of many rows: the number of operator calls."""

Values = Callable[[Tensor, Tensor, Tensor], object]
"""A function that writes rows of numbers for entries, [n, width], to its last argument. Its first two arguments are the
entries' own rows, [n, width] or [1, width], and their columns, [n]."""

Columns = tuple[Tensor, ...]


class EntrySums:
    """The entries of a CSR matrix, in an order that makes their sums fast.

    Rows are sorted by degree and taken many at a time: the first entry of each row, then the second of those that have
    one, and so on. Rows with many entries, hubs, are summed alone; their number is chosen for the fewest operator
    calls.

    Args:
        matrix: The sparse matrix, [rows, columns]; its values are not read.
    """

    def __init__(self, matrix: Tensor) -> None:
        indptr, columns = matrix.crow_indices().long(), matrix.col_indices()
        degrees, self._rows = indptr.diff().sort(descending=True, stable=True)
        starts = indptr[self._rows]
        hubs = _hubs(degrees)
        self._linked = int(torch.count_nonzero(degrees))
        self._hubs = [_of_hub(starts[i], degrees[i], columns) for i in range(hubs)]
        self._runs = [slice(i, min(i + RUN_ROWS, self._linked)) for i in range(hubs, self._linked, RUN_ROWS)]
        self._of_runs = [_by_rank(starts[run], degrees[run], columns) for run in self._runs]

    def sum(self, values: Values, own: Tensor, out: Tensor, crew: Crew) -> None:
        """Write the sum of each row to `out`; 0 for a row without entries.

        Args:
            values: The function that makes the terms.
            own: The rows of numbers that `values` reads for an entry's row, [rows, width].
            out: The sums, [rows, width].
            crew: The threads that share the work.
        """
        out[self._rows[self._linked :]] = 0.0
        hubs = len(self._hubs)

        def work(number: int) -> None:
            summed: Callable[[Tensor, Columns, Values], Tensor]
            if number < hubs:
                rows, columns, summed = self._rows[number : number + 1], self._hubs[number], _sum_hub
            else:
                rows, columns, summed = self._rows[self._runs[number - hubs]], self._of_runs[number - hubs], _sum_run
            out.index_copy_(0, rows, summed(own.index_select(0, rows), columns, values))

        crew.run(hubs + len(self._runs), work)


def _hubs(degrees: Tensor) -> int:
    """Return how many of the first rows to sum alone, from the degrees in descending order. int64 [rows]."""
    left = torch.cat([degrees, degrees.new_zeros(1)])  # the largest degree of the other rows
    return int(torch.argmin(HUB_RANKS * torch.arange(len(left)) + left))


def _of_hub(start: Tensor, degree: Tensor, columns: Tensor) -> Columns:
    """Return the columns of a row's entries, in parts of RUN_ROWS."""
    return cast(Columns, columns[start : start + degree].split(RUN_ROWS))


def _by_rank(starts: Tensor, degrees: Tensor, columns: Tensor) -> Columns:
    """Return the columns of each row's first entry, of the second entry of rows that have one, and so on: a tensor per rank."""
    ranks = torch.arange(int(degrees[0]))[:, None]
    having = ranks < degrees  # [ranks, rows]
    return cast(Columns, columns[(starts + ranks)[having]].split(having.sum(1).tolist()))


def _sum_run(own: Tensor, by_rank: Columns, values: Values) -> Tensor:
    sums, more = torch.empty(2, *own.shape).unbind()
    values(own, by_rank[0], sums)
    for columns in by_rank[1:]:
        some = len(columns)
        values(own[:some], columns, more[:some])
        sums[:some] += more[:some]
    return sums


def _sum_hub(own: Tensor, in_parts: Columns, values: Values) -> Tensor:
    total, space = torch.zeros_like(own), own.new_empty(len(in_parts[0]), own.shape[1])
    for columns in in_parts:
        some = space[: len(columns)]
        values(own, columns, some)
        while len(some) > 1:  # pairwise: the second half is added to the first
            half = len(some) // 2
            some[:half] += some[len(some) - half :]
            some = some[: len(some) - half]
        total += some
    return total
