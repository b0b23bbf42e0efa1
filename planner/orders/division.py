"""The division of a graph into partitions, chosen for the bytes that there are."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Literal

from planner.orders.beta import beta
from planner.orders.comet import comet
from planner.orders.order import EdgeOrder

OrderName = Literal["beta", "comet"]

BLOCK = 16 << 10
"""The bytes of a read that is long enough to keep a disk busy. A shorter one takes as long."""

MOST_PARTITIONS = 256
GROUP = 8
"""The partitions of a group at most. More make no batch more mixed, and more buckets to open."""

NEARLY = 1.05
"""The bytes that a division may move, divided by the least, if its batches are more mixed."""

WORKED = 6
"""The copies of the links of a set while its batches are made: as read, their order and its keys, and both sorted."""

UNEVEN = 2
"""The links of the largest set, divided by the mean."""

VERTEX_BYTES = 96
"""The bytes of a vertex in the graph of a set beside its rows: numbers, keys, labels, and the first of its edges."""

EDGE_BYTES = 100
"""The bytes of an edge in the graph of a set, while the edges are read and sorted."""

EDGE_NUMBER_BYTES = 16
"""The bytes of each weight or attribute of such an edge: as read, by themselves, with reverses, and sorted."""

EVALUATED = 3
"""The partitions that an evaluation holds beside the buffer: the rows as read, the model's output, and a copy."""


@dataclass(frozen=True)
class Sizes:
    """The bytes of what lies on the disk."""

    vertices: int
    rows: int  # learned rows of all vertices, with the optimizer's state
    links: int  # of training
    states: int = 0  # the numbers of the optimizer for each number of a row
    features: int = 0  # of all vertices, if the model reads them
    messages: int = 0  # the number of edges along which messages pass; 0 without an encoder
    edge_numbers: int = 0  # the numbers of such an edge: its weight, and its attributes

    @property
    def buffered(self) -> int:
        """The bytes of all vertices that the buffer holds of some."""
        return self.rows + self.features


@dataclass(frozen=True)
class Division:
    """A division of a graph into partitions, of which some are in memory."""

    order: OrderName
    partitions: int
    capacity: int  # the partitions that are trained on at one time
    groups: int  # that COMET puts the partitions into; for BETA as many as there are partitions

    @property
    def group(self) -> int:
        """The partitions of a group, which are swapped together."""
        return self.partitions // self.groups

    @property
    def slots(self) -> int:
        """The partitions that there is room for: those trained on, and a group that is read ahead."""
        return self.capacity + (self.group if self.capacity < self.partitions else 0)

    def of_epoch(self, seed: int, epoch: int) -> EdgeOrder:
        """Return the order of an epoch."""
        if self.order == "beta":
            return beta(self.partitions, self.capacity, seed, epoch)
        return comet(self.partitions, self.capacity, self.groups, seed, epoch)

    def buffer_bytes(self, sizes: Sizes) -> int:
        """Return the bytes of the rows in memory."""
        largest = -(-sizes.vertices // self.partitions) / max(1, sizes.vertices)
        return int(self.slots * largest * sizes.buffered)

    def graph_bytes(self, sizes: Sizes) -> int:
        """Return the estimated bytes of the graph of a set, from which an encoder's batches are sampled."""
        share = self.capacity / self.partitions
        return set_graph_bytes(share, sizes.vertices, sizes.messages, sizes.edge_numbers) if sizes.messages else 0

    @property
    def sets(self) -> int:
        """The number of sets of an epoch. Of COMET's groups, two of which are in memory, each pair is one."""
        if self.capacity == self.partitions:
            return 1
        if self.order == "comet":
            return self.groups * (self.groups - 1) // 2
        return len(self.of_epoch(0, 0).sets)

    def moved_bytes(self, sizes: Sizes) -> int:
        """Return about the bytes that an epoch of COMET reads and writes. Each bucket takes as long as a block, at least.

        >>> sizes = Sizes(vertices=1000, rows=480_000_000, links=12_000)
        >>> Division("comet", 48, 2, 48).moved_bytes(sizes) > 2 * Division("comet", 160, 16, 20).moved_bytes(sizes)
        True
        """
        turned = self.capacity + (self.sets - 1) * self.group
        buckets = self.partitions**2 * max(BLOCK, sizes.links // self.partitions**2)
        return turned * (sizes.buffered + sizes.rows) // self.partitions + buckets

    def bytes(self, sizes: Sizes) -> int:
        """Return the estimated bytes in memory: the buffer, the links of a set, and an evaluation."""
        links = min(sizes.links, UNEVEN * sizes.links // self.sets)
        evaluated = EVALUATED * sizes.rows // (1 + sizes.states) // self.partitions
        return self.buffer_bytes(sizes) + WORKED * links + evaluated + self.graph_bytes(sizes)

    def __str__(self) -> str:
        groups = f", in {self.groups} groups" if self.order == "comet" else ""
        return f"{self.order}, {self.capacity} of {self.partitions} partitions in memory{groups}"


def set_graph_bytes(share: float, vertices: int, edges: int, numbers: int = 0) -> int:
    """Return the estimated bytes of the graph of a set of partitions.

    Args:
        share: The share of the partitions that are in the set.
        vertices: The number of all vertices.
        edges: The number of all edges.
        numbers: The weights and attributes of an edge.
    """
    of_edge = EDGE_BYTES + EDGE_NUMBER_BYTES * numbers
    return int(VERTEX_BYTES * share * vertices + of_edge * min(1.0, UNEVEN * share**2) * edges)


def divide(order: OrderName, sizes: Sizes, room: int) -> Division:
    """Return the division that moves least among those that fit into some bytes.

    Of COMET's divisions that move nearly as little, it is the one of most partitions, whose batches are most mixed.

    Source: Waleffe et al., MariusGNN (EuroSys 2023), section 6, with the optimizer's state and the group that is read ahead
    counted. There buckets are at least as long as a block of the disk. Here a short bucket counts as a block, because links
    may be few beside the rows.

    Args:
        order: The order.
        sizes: The bytes on the disk.
        room: The bytes for all of it.

    Returns:
        The division; the one of the least bytes if none fits.
    """
    found = _betas(sizes) if order == "beta" else _comets(sizes)
    fitting = [one for one in found if one.bytes(sizes) <= room]
    if not fitting:
        return min(found, key=lambda one: one.bytes(sizes))
    if order == "beta":
        return fitting[0]
    most = NEARLY * min(one.moved_bytes(sizes) for one in fitting)
    return max((one for one in fitting if one.moved_bytes(sizes) <= most), key=lambda one: one.partitions)


def _betas(sizes: Sizes) -> list[Division]:
    """Return the divisions to try, from the one with most in memory to the one with least."""
    fine = min(sizes.buffered // BLOCK, isqrt(sizes.links // BLOCK), MOST_PARTITIONS, sizes.vertices)
    found = []
    for partitions in dict.fromkeys(
        max(1, min(sizes.vertices, most)) for most in (min(32, max(4, fine)), max(4, fine))
    ):
        found += [Division("beta", partitions, capacity, partitions) for capacity in range(partitions, 1, -1)]
    return found or [Division("beta", 1, 1, 1)]


def _comets(sizes: Sizes) -> list[Division]:
    """Return the divisions to try. Two groups are in memory, and a third is read ahead."""
    most = min(sizes.buffered // BLOCK, MOST_PARTITIONS, sizes.vertices)
    found = [Division("comet", 1, 1, 1)]
    for groups in (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64):
        if groups <= sizes.vertices:
            largest = max(1, min(GROUP, most // groups))
            found += [Division("comet", groups * size, 2 * size, groups) for size in range(1, largest + 1)]
    return found
