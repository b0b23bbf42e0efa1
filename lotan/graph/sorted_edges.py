"""The sort of edges by one end and then by the other, without the order of edges where nothing else needs it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ends = npt.NDArray[np.int64]


def runs_of_ends(counts: Ends, most: int) -> list[range]:
    """Return all vertices in runs at which at most so many edges end, if no vertex has more.

    Args:
        counts: the number of edges that end at each vertex [vertices].
        most: the edges of a run, at most.

    >>> runs_of_ends(np.array([2, 1, 0, 5, 1]), 3)
    [range(0, 3), range(3, 4), range(4, 5)]
    """
    ends, found, start = counts.cumsum(), [], 0
    while start < len(counts):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        found.append(range(start, stop))
        start = stop
    return found


def packed(columns: Sequence[Ends], sizes: Sequence[int]) -> Ends | None:
    """Return a number for each row of some columns, which ascend as the rows do; None if int64 has no room for them.

    Args:
        columns: Columns of numbers that are not negative, of which the first counts first. [rows] each
        sizes: For each column a number that all of its numbers are below.

    >>> packed([np.array([0, 1]), np.array([2, 0])], [2, 3]).tolist()
    [2, 3]
    """
    if math.prod(map(int, sizes)) > np.iinfo(np.int64).max:
        return None
    found: Ends = columns[0].astype(np.int64)
    for column, size in zip(columns[1:], sizes[1:], strict=True):
        found *= size
        found += column
    return found


def sort_ends(first: Ends, then: Ends, vertices: int) -> tuple[Ends, Ends]:
    """Sort edges by one end and then by the other, and return these ends. Edges that are alike have no order.

    The two ends are packed into one number, and numbers are sorted where they are. So this takes 16 bytes an edge beside what was
    given, and less time than the order of the edges.

    Args:
        first: the ends to sort by [edges].
        then: the other ends [edges], by which edges of one end are sorted.
        vertices: the number of vertices, which is greater than any end.

    >>> sort_ends(np.array([1, 0, 1]), np.array([2, 5, 0]), 6)
    (array([0, 1, 1]), array([5, 0, 2]))
    """
    key = packed((first, then), (vertices, vertices))
    if key is None:
        order = np.lexsort((then, first))
        return first[order], then[order]
    key.sort()
    found = np.empty_like(key)
    np.divmod(key, vertices, out=(found, key))
    return found, key
