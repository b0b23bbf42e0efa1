"""Rows that are mostly zeros, stored as their nonzero numbers. A linear map of them, and its gradient, read this form."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional


class SparseRows:
    """The nonzero numbers of some rows, by row and by column.

    Args:
        rows: The dense rows, float32 [rows, width].
    """

    def __init__(self, rows: Tensor) -> None:
        places = rows.nonzero()  # [numbers, 2], row by row
        of_row, columns = places.unbind(1)
        self._hold(rows.shape, columns.int(), _ends(of_row, rows.shape[0]), rows[of_row, columns])

    def _hold(self, shape: torch.Size, columns: Tensor, ends: Tensor, values: Tensor) -> None:
        self.shape, self._by_row = shape, (columns, ends, values)

    @cached_property
    def _by_column(self) -> tuple[Tensor, Tensor, Tensor]:
        """The rows, ends and values of the numbers of each column, in the order of rows: only gradients read them."""
        from scipy.sparse import csr_array  # here, for other trainings need none

        columns, ends, values = (part.numpy() for part in self._by_row)
        matrix = csr_array((values, columns, ends), shape=tuple(self.shape)).tocsc()
        return torch.from_numpy(matrix.indices), torch.from_numpy(matrix.indptr), torch.from_numpy(matrix.data)

    def chosen(self, rows: Tensor) -> SparseRows:
        """Return some of the rows, in the given order, as sparse rows of their own.

        Args:
            rows: The rows, each from 0 on. int64 [chosen]
        """
        columns, ends, values = self._by_row
        first, after = ends.index_select(0, rows).long(), ends.index_select(0, rows + 1).long()
        begins = functional.pad((after - first).cumsum(0), (1, 0))  # int64 [chosen + 1]
        count = int(begins[-1])
        at = torch.arange(count) + torch.repeat_interleave(first - begins[:-1], after - first, output_size=count)
        found = SparseRows.__new__(SparseRows)
        shape = torch.Size((len(rows), self.shape[1]))
        found._hold(shape, columns.index_select(0, at), begins.int(), values.index_select(0, at))
        return found

    def product(self, weight: Tensor) -> Tensor:
        """Return x W^T, [rows, out], in memory of its own. `weight` is W, [out, width]."""
        return _sums(_by_input(weight), *self._by_row)

    def add_gradient(self, total: Tensor, gradient: Tensor) -> None:
        """Add g^T x to the gradient of W, [out, width], where g is the gradient of the product, [rows, out]."""
        total.add_(_sums(gradient.contiguous(), *self._by_column).t())

    @property
    def nbytes(self) -> int:
        """The number of bytes of memory that it takes."""
        return sum(part.nbytes for form in (self._by_row, self._by_column) for part in form)


def _ends(places: Tensor, count: int) -> Tensor:
    """Return the positions at which the numbers of each row (or column) begin, and the last end, int32 [count + 1]."""
    counts = torch.bincount(places, minlength=count)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()


def _sums(matrix: Tensor, positions: Tensor, ends: Tensor, factors: Tensor) -> Tensor:
    """Return sums of a matrix's rows times their factors, one sum between each two ends."""
    if not positions.numel():
        return matrix.new_zeros(ends.numel() - 1, matrix.shape[1])
    return torch.embedding_bag(matrix, positions, ends, False, 0, False, factors, True)[0]


def _by_input(weight: Tensor) -> Tensor:
    """Return W^T in memory of its own. It is made once for all chunks with the same tensor W."""
    made: tuple[int, Tensor] | None = vars(weight).get("_lotan_by_input")
    if made is None or made[0] != weight._version:
        made = weight._version, weight.t().contiguous()
        vars(weight)["_lotan_by_input"] = made  # lives as long as the tensor
    return made[1]
