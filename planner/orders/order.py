"""An order: sets of partitions that are in memory one after the other, and the examples of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Set = tuple[int, ...]
"""Partitions that are in memory at one time, ascending."""

Bucket = tuple[int, int]
"""The edges from one partition to another."""


@dataclass(frozen=True)
class EdgeOrder:
    """An order of an epoch whose examples are edges. Each bucket is trained once, while both of its partitions are there."""

    sets: tuple[Set, ...]
    buckets: tuple[tuple[Bucket, ...], ...]  # of each set

    @property
    def reads(self) -> int:
        """The number of partitions that are read after those of the first set."""
        return swaps(self.sets)


@dataclass(frozen=True)
class VertexOrder:
    """An order of an epoch whose examples are vertices. Those of each partition are trained in one set that has it."""

    sets: tuple[Set, ...]
    partitions: tuple[Set, ...]  # whose vertices are the examples of each set

    @property
    def reads(self) -> int:
        """The number of partitions that are read after those of the first set."""
        return swaps(self.sets)


def swaps(sets: Sequence[Set]) -> int:
    """Return how many partitions are read after those of the first set.

    >>> swaps([(0, 1), (0, 2), (1, 2)])
    2
    """
    return sum(len(set(now) - set(before)) for before, now in pairwise(sets))


def least_swaps(partitions: int, capacity: int) -> int:
    """Return a number of swaps that no order is below in which all pairs of partitions meet.

    A swap makes at most `capacity` - 1 new pairs. Source: Waleffe, PhD thesis (2024), equation 5.1.

    >>> least_swaps(6, 3), least_swaps(16, 4)
    (6, 38)
    """
    missing = partitions * (partitions - 1) // 2 - capacity * (capacity - 1) // 2
    return -(-missing // max(1, capacity - 1))


def first_meeting(sets: Sequence[Set]) -> tuple[tuple[Bucket, ...], ...]:
    """Return for each set the buckets whose partitions meet there for the first time.

    >>> first_meeting([(0, 1), (1, 2)])
    (((0, 0), (0, 1), (1, 0), (1, 1)), ((1, 2), (2, 1), (2, 2)))
    """
    seen: set[Bucket] = set()
    found = []
    for held in sets:
        new = tuple((a, b) for a in held for b in held if (a, b) not in seen)
        seen.update(new)
        found.append(new)
    return tuple(found)


def check_capacity(partitions: int, capacity: int) -> None:
    """Require room for a pair of partitions, and no more room than there are partitions.

    Raises:
        ValueError: If the numbers are others.
    """
    if not 1 <= capacity <= partitions or (capacity == 1 and partitions > 1):
        raise ValueError(f"{capacity} of {partitions} partitions in memory; expected at least 2, and at most all")
