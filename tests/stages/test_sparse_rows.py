"""Sparse rows: the products and gradients that all numbers of the rows would give."""

from __future__ import annotations

import pytest
import torch

from lotan.stages.sparse_rows import SparseRows


def rows_of(rows: int, width: int, share: float, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(rows, width) * (torch.rand(rows, width) < share)


@pytest.mark.parametrize("share", [0.0, 0.05, 1.0])
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (17, 40), (200, 9), (0, 5)])
def test_they_multiply_as_all_numbers_do(rows, width, share):
    x, weight, gradient = rows_of(rows, width, share), torch.randn(6, width), torch.randn(rows, 6)
    sparse, total = SparseRows(x), torch.ones(6, width)
    torch.testing.assert_close(sparse.product(weight), x @ weight.t())
    sparse.add_gradient(total, gradient)
    torch.testing.assert_close(total, 1 + gradient.t() @ x)


@pytest.mark.parametrize("chosen", [[3, 3, 0, 16], [], [5]])
def test_chosen_rows_multiply_as_they_do_alone(chosen):
    x, weight = rows_of(17, 40, 0.1), torch.randn(6, 40)
    rows = torch.tensor(chosen, dtype=torch.int64)
    sparse, total, gradient = SparseRows(x).chosen(rows), torch.zeros(6, 40), torch.randn(len(chosen), 6)
    torch.testing.assert_close(sparse.product(weight), x[rows] @ weight.t())
    sparse.add_gradient(total, gradient)
    torch.testing.assert_close(total, gradient.t() @ x[rows])


def test_a_weight_that_was_changed_in_place_is_read_anew():
    x, weight = rows_of(8, 5, 0.5), torch.randn(3, 5)
    sparse = SparseRows(x)
    first = sparse.product(weight)
    weight.mul_(2)
    torch.testing.assert_close(sparse.product(weight), 2 * first)


def test_memory_is_that_of_what_is_not_zero():
    x = torch.zeros(1000, 100)
    x[::10, 3] = 1.0
    assert SparseRows(x).nbytes <= 16 * 100 + 4 * (1001 + 101)
