"""COMET: partitions are put into groups anew in each epoch, and a bucket is trained in any set that has its partitions."""

from __future__ import annotations

from planner.orders.beta import beta_sets
from planner.orders.draws import OrderDraws
from planner.orders.order import Bucket, EdgeOrder


def comet(partitions: int, capacity: int, groups: int, seed: int = 0, epoch: int = 0) -> EdgeOrder:
    """Return the order of COMET. BETA runs over the groups, and moves a whole group with each swap.

    Nothing moves on the disk: a group is a list of partitions. Each bucket draws one of the sets that have both of its
    partitions, all with the same probability. Source: Waleffe et al., MariusGNN (EuroSys 2023), section 5.

    >>> order = comet(8, 4, 4)
    >>> len(order.sets), {len(held) for held in order.sets}
    (6, {4})

    Args:
        partitions: The number of partitions.
        capacity: The partitions that are in memory at one time: whole groups, at least two unless there is one.
        groups: The number of groups, which divides `partitions`.
        seed: The seed of the draws.
        epoch: The epoch, which has groups and an order of its own.

    Raises:
        ValueError: If the groups are not equal, or do not fill the capacity.
    """
    if groups < 1 or partitions % groups or capacity % (partitions // groups):
        raise ValueError(
            f"{groups} groups of {partitions} partitions, {capacity} of them in memory; expected groups of the same size, and "
            "room for whole groups"
        )
    draws, size = OrderDraws(seed, epoch), partitions // groups
    placed = draws.shuffled(range(partitions))
    members = [placed[start : start + size] for start in range(0, partitions, size)]
    of_groups = beta_sets(groups, capacity // size, draws)
    sets = tuple(tuple(sorted(one for group in held for one in members[group])) for held in of_groups)
    where: dict[Bucket, list[int]] = {}
    for number, held in enumerate(sets):
        for bucket in ((a, b) for a in held for b in held):
            where.setdefault(bucket, []).append(number)
    chosen: list[list[Bucket]] = [[] for _ in sets]
    for bucket in sorted(where):
        numbers = where[bucket]
        chosen[numbers[draws.below(len(numbers))]].append(bucket)
    return EdgeOrder(sets, tuple(map(tuple, chosen)))
