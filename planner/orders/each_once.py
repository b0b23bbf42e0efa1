"""Training vertices everywhere: each partition is read once an epoch, and takes the place of one that was drawn."""

from __future__ import annotations

from planner.orders.draws import OrderDraws
from planner.orders.order import Set, VertexOrder, check_capacity


def each_once(partitions: int, capacity: int, seed: int = 0, epoch: int = 0) -> VertexOrder:
    """Return an order in which every partition is read once. Its vertices are the examples of a drawn set that has it.

    Source: Waleffe, PhD thesis (2024), algorithm 7.

    >>> order = each_once(8, 2)
    >>> len(order.sets), order.reads
    (7, 6)

    Args:
        partitions: The number of partitions.
        capacity: The partitions that are in memory at one time.
        seed: The seed of the draws.
        epoch: The epoch, which has an order of its own.
    """
    check_capacity(partitions, capacity)
    draws = OrderDraws(seed, epoch)
    every = draws.shuffled(range(partitions))
    held = every[:capacity]
    sets = [tuple(sorted(held))]
    for new in every[capacity:]:
        held[draws.below(capacity)] = new
        sets.append(tuple(sorted(held)))
    chosen: list[list[int]] = [[] for _ in sets]
    for partition in range(partitions):
        numbers = [number for number, one in enumerate(sets) if partition in one]
        chosen[numbers[draws.below(len(numbers))]].append(partition)
    found: list[Set] = [tuple(one) for one in chosen]
    return VertexOrder(tuple(sets), tuple(found))
