"""Training vertices that all fit in memory: nothing is swapped inside an epoch."""

from __future__ import annotations

from planner.orders.draws import OrderDraws
from planner.orders.order import VertexOrder


def cached_nodes(partitions: int, capacity: int, training: int, seed: int = 0, epoch: int = 0) -> VertexOrder:
    """Return the order of one set, which has the training vertices and partitions that are drawn anew in each epoch.

    Source: Waleffe et al., MariusGNN (EuroSys 2023), section 5.2.

    >>> order = cached_nodes(8, 4, training=2)
    >>> order.reads, order.partitions, len(order.sets[0])
    (0, ((0, 1),), 4)

    Args:
        partitions: The number of partitions. The first ones have all training vertices.
        capacity: The partitions that are in memory at one time.
        training: The number of partitions with training vertices.
        seed: The seed of the draws.
        epoch: The epoch, which has other partitions beside those with training vertices.

    Raises:
        ValueError: If the training vertices do not fit, or there is less than one partition of them.
    """
    if not 1 <= training <= capacity <= partitions:
        raise ValueError(
            f"{training} partitions of training vertices and room for {capacity} of {partitions}; see each_once"
        )
    others = OrderDraws(seed, epoch).shuffled(range(training, partitions))
    held = tuple(sorted([*range(training), *others[: capacity - training]]))
    return VertexOrder((held,), (tuple(range(training)),))
