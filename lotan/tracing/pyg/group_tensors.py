"""The tensors of a trace that hold the numbers of groups of vertices, and the reductions by group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from lotan.errors import ModelError
from lotan.nn.edge_index import EdgeIndex
from lotan.tracing.fakes import GROUP
from lotan.tracing.pyg.meanings import Identities, beside

ROWS_BY_GROUP = (
    "takes rows of vertices or edges by the number of a group; take what was reduced by group, or a parameter"
)
FEW_GROUPS = "has {} rows for the groups of vertices, but the graph has {}; make it for as many"


class GroupTensors:
    """The groups of vertices of one trace.

    Args:
        graph: the graph of fake tensors.
        refuse: a function that returns the error for a reason, with the line that is running.
        number_of_groups: the number of groups of vertices, or None if the graph has none.
    """

    def __init__(self, graph: EdgeIndex, refuse: Callable[[str], ModelError], number_of_groups: int | None) -> None:
        self.graph, self.refuse, self.number_of_groups = graph, refuse, number_of_groups
        self._all: Identities[bool] = Identities()
        self.groups: Identities[bool] = Identities()  # the column `batch`, and views of it

    def group(self) -> Tensor:
        """Return the number of each vertex's group, int64 [num_vertices]."""
        return self.mark_group(self.graph.column(GROUP))

    def mark_group(self, tensor: Tensor) -> Tensor:
        """Note that a tensor has the numbers of groups, and return it."""
        self.groups[tensor] = True
        return tensor

    def mark_all(self, tensor: Tensor) -> Tensor:
        """Note that a tensor, a mask or an order of the vertices, chooses all of them in their order, and return it."""
        self._all[tensor] = True
        return tensor

    def chooses_all(self, value: object) -> bool:
        """Return True for a tensor that chooses all vertices in their order."""
        return self._all.get(value) is not None

    def group_rows(self, table: Tensor, index: Tensor) -> Tensor:
        """Return the entry of a table [groups, *shape] for each vertex's group, [num_vertices, *shape]."""
        first: Any = table.shape[0] if table.dim() else None
        if not isinstance(first, int):
            raise self.refuse(ROWS_BY_GROUP)
        if self.number_of_groups is not None and first < self.number_of_groups:
            raise self.refuse(FEW_GROUPS.format(first, self.number_of_groups))
        return cast(Tensor, torch.ops.lotan.group_rows(table, index))

    def group_total(self, x: Tensor, index: Tensor, groups: int, kind: str) -> Tensor:
        """Reduce the rows of each group, [groups, *shape]. A group without rows has 0.

        The rows that have the greatest or the least number of a group share its gradient evenly.

        Args:
            x: the rows, [num_vertices, *shape].
            index: the numbers of groups [num_vertices], perhaps in another shape.
            groups: the number of groups.
            kind: "sum", "mean", "max" or "min".
        """
        while index.dim() > 1:
            index = index.select(1, 0)
        if self.number_of_groups is not None and groups < self.number_of_groups:
            raise self.refuse(FEW_GROUPS.format(groups, self.number_of_groups))
        if not x.dtype.is_floating_point:
            x = x.to(torch.float32)
        if kind == "min":
            return -self.group_total(-x, index, groups, "max")
        if kind == "max":
            return self._greatest_of_groups(x, index, groups)
        total = cast(Tensor, torch.ops.lotan.group_total(x, index, groups, "sum"))
        if kind == "sum":
            return total
        ones = torch.ones_like(x.select(1, 0) if x.dim() > 1 else x)
        while ones.dim() > 1:
            ones = ones.select(1, 0)
        count = torch.ops.lotan.group_total(ones, index, groups, "sum").clamp(min=1)
        return total / beside(count, total)

    def _greatest_of_groups(self, x: Tensor, index: Tensor, groups: int) -> Tensor:
        rows = x.detach()
        found = torch.ops.lotan.group_total(rows, index, groups, "max")
        found = torch.where(found == -torch.inf, 0.0, found)
        here = (rows == torch.ops.lotan.group_rows(found, index)).to(x.dtype)
        count = torch.ops.lotan.group_total(here, index, groups, "sum").clamp(min=1)
        share = here / torch.ops.lotan.group_rows(count, index)
        again = torch.ops.lotan.group_total(x * share, index, groups, "sum")
        return cast(
            Tensor, found + (again - again.detach())
        )  # the value is exact, and the gradient is that of the shares
