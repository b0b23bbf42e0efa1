"""Running statistics inside a stage: what a buffer is updated with is handed in as if it were the buffer's gradient."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Track(Function):
    """Returns rows as they are. The "gradient" of the buffer is the sum of the rows, all of which are alike.

    So the statistics of a training pass reach the driver as gradients do: once for each partition, in a fixed order of
    sums, on every engine.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, buffer: Tensor) -> Tensor:
        """Return a view of the rows [rows, *shape]; `buffer` has the shape of one row."""
        ctx.save_for_backward(rows)
        return rows.view_as(rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of the rows, and the sum of the rows [*shape]."""
        (rows,) = ctx.saved_tensors
        return gradient, rows[:1].sum(0) * len(rows)  # exact but for one rounding, as all rows are alike
