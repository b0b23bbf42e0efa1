"""BETA: all partitions but one stay, and the others pass through the last place. Then those that stayed are replaced."""

from __future__ import annotations

from planner.orders.draws import OrderDraws
from planner.orders.order import EdgeOrder, Set, check_capacity, first_meeting


def beta_sets(partitions: int, capacity: int, draws: OrderDraws | None = None) -> tuple[Set, ...]:
    """Return sets in which every pair of partitions meets, with few swaps of one partition each.

    Source: Waleffe, PhD thesis (2024), algorithm 6; Mohoney et al., Marius (OSDI 2021).

    >>> ["".join(map(str, held)) for held in beta_sets(4, 2)]
    ['01', '02', '03', '13', '12', '23']

    Args:
        partitions: The number of partitions.
        capacity: The partitions that are in memory at one time.
        draws: The draws of the first set and of the order of the others; None: by their numbers.
    """
    check_capacity(partitions, capacity)
    every = list(range(partitions)) if draws is None else draws.shuffled(range(partitions))
    held, rest = every[:capacity], every[capacity:]
    sets = [tuple(sorted(held))]

    def swap(place: int, other: int) -> None:
        held[place], rest[other] = rest[other], held[place]
        sets.append(tuple(sorted(held)))

    while rest:
        for other in range(len(rest)):
            swap(-1, other)
        replaced = min(capacity - 1, len(rest))
        for place in range(replaced):  # those that stayed have met all others, and do not come back
            held[place] = rest[place]
            sets.append(tuple(sorted(held)))
        rest = rest[replaced:]
    return tuple(sets)


def beta(partitions: int, capacity: int, seed: int | None = None, epoch: int = 0) -> EdgeOrder:
    """Return the order of BETA. A bucket is trained in the first set that has both of its partitions.

    Args:
        partitions: The number of partitions.
        capacity: The partitions that are in memory at one time.
        seed: The seed of the order of partitions; None: by their numbers.
        epoch: The epoch, which has an order of its own.
    """
    sets = beta_sets(partitions, capacity, None if seed is None else OrderDraws(seed, epoch))
    return EdgeOrder(sets, first_meeting(sets))


def swaps_of_beta(partitions: int, capacity: int) -> int:
    """Return the number of swaps of BETA. Source: Waleffe, PhD thesis (2024), equation 5.2.

    >>> [swaps_of_beta(*sizes) for sizes in ((4, 2), (6, 3), (16, 4), (32, 8), (128, 32))]
    [5, 7, 42, 78, 294]
    """
    check_capacity(partitions, capacity)
    beyond = partitions - capacity
    if not beyond:
        return 0
    times = beyond // (capacity - 1)
    return beyond + (times + 1) * beyond - (capacity - 1) * times * (times + 1) // 2
