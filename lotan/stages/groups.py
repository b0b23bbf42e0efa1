"""Sums and greatest numbers of a chunk's rows, for all of them or for each group of vertices."""

from __future__ import annotations

import torch
from torch import Tensor


def group_sums(x: Tensor, group: Tensor, groups: int) -> Tensor:
    """Return the sum of the rows of each group, as one row.

    Args:
        x: the rows, [rows, *shape].
        group: the group of each row, int64 [rows].
        groups: the number of groups.

    Returns:
        [1, groups, *shape], with zeros for a group without rows.
    """
    return x.new_zeros((groups, *x.shape[1:])).index_add(0, group, x).unsqueeze(0)


def greatest(x: Tensor) -> Tensor:
    """Return the greatest of each number of some rows [rows, *shape], as one row [1, *shape]; -inf without rows."""
    x = x.detach()
    return torch.cat([x.new_full((1, *x.shape[1:]), -torch.inf), x]).amax(0, keepdim=True)


def greatest_of_groups(x: Tensor, group: Tensor, groups: int) -> Tensor:
    """Return the greatest of each number for each group, as one row.

    Args:
        x: the rows, [rows, *shape].
        group: the group of each row, int64 [rows].
        groups: the number of groups.

    Returns:
        [1, groups, *shape], with -inf for a group without rows.
    """
    x = x.detach()
    start = x.new_full((groups, *x.shape[1:]), -torch.inf)
    index = group.view(-1, *[1] * (x.dim() - 1)).expand_as(x)
    return start.scatter_reduce(0, index, x, "amax").unsqueeze(0)
