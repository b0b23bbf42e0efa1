"""Running statistics inside a stage: what a buffer is updated with is handed in as if it were the buffer's gradient."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Track(Function):
    """Returns rows as they are. The "gradient" of the buffer is their sum over a chunk, of which all rows are alike.

    So the statistics of a training pass reach the driver as gradients do: once for each partition, in a fixed order of
    sums, on every engine.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, buffer: Tensor, count: int) -> Tensor:
        """Return a view of the rows [rows, *shape], or of one row that stands for all `count` rows of the chunk.

        The buffer has the shape of one row.
        """
        ctx.save_for_backward(rows)
        ctx.count = count
        return rows.view_as(rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradient of the rows, and the sum of the chunk's rows [*shape]."""
        (rows,) = ctx.saved_tensors
        return gradient, rows[:1].sum(0) * ctx.count, None  # exact but for one rounding, as all rows are alike
