"""The Hilbert curve through the buckets, an order that other systems use. It is here to be compared with."""

from __future__ import annotations

from planner.orders.order import Bucket, EdgeOrder, Set, check_capacity


def hilbert(partitions: int, capacity: int, symmetric: bool = False) -> EdgeOrder:
    """Return the order in which buckets are trained along a Hilbert curve. The partition that is needed last is evicted.

    Source of the curve: Warren, Hacker's Delight (2012), chapter 16; of the eviction: Belady (1966).

    >>> hilbert(4, 2).reads
    9

    Args:
        partitions: The number of partitions, a power of 2.
        capacity: The partitions that are in memory at one time.
        symmetric: True to train the bucket (b, a) directly after (a, b).

    Raises:
        ValueError: If the number of partitions is no power of 2.
    """
    check_capacity(partitions, capacity)
    if partitions & (partitions - 1):
        raise ValueError(f"{partitions} partitions; expected a power of 2")
    walk = [_cell(partitions, step) for step in range(partitions * partitions)]
    if symmetric:
        walk = list(dict.fromkeys(cell for a, b in walk for cell in ((a, b), (b, a))))
    held: set[int] = set()
    sets: list[Set] = []
    buckets: list[list[Bucket]] = []
    for step, bucket in enumerate(walk):
        for needed in bucket:
            if needed in held:
                continue
            if len(held) == capacity:
                held.remove(max((one for one in held if one not in bucket), key=lambda one: _next_use(walk, step, one)))
            held.add(needed)
        now = tuple(sorted(held))
        if sets and (sets[-1] == now or set(sets[-1]) <= held):  # the first places are being filled
            sets[-1] = now
        else:
            sets.append(now)
            buckets.append([])
        buckets[-1].append(bucket)
    return EdgeOrder(tuple(sets), tuple(map(tuple, buckets)))


def _next_use(walk: list[Bucket], step: int, partition: int) -> int:
    return next((later for later in range(step, len(walk)) if partition in walk[later]), len(walk))


def _cell(side: int, step: int) -> Bucket:
    """Return the cell of a square that the curve reaches after some steps."""
    a = b = 0
    size = 1
    while size < side:
        right = 1 & (step // 2)
        up = 1 & (step ^ right)
        if not up:
            if right:
                a, b = size - 1 - a, size - 1 - b
            a, b = b, a
        a, b = a + size * right, b + size * up
        step //= 4
        size *= 2
    return a, b
