"""The division of a graph into partitions, chosen for the bytes that there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.orders.beta import beta, swaps_of_beta
from planner.orders.comet import comet
from planner.orders.disk import LINK_SET_EDGE_SECONDS, Disk, making_seconds
from planner.orders.order import EdgeOrder

OrderName = Literal["beta", "comet"]

MOST_PARTITIONS = 256
COUNTS = (*range(2, 33), 40, 48, 64, 96, 128, 192, MOST_PARTITIONS)
"""The numbers of partitions to try for BETA."""

GROUPS = (*range(2, 17), 20, 24, 32, 48, 64)
"""The numbers of groups to try for COMET."""

GROUP = 8
"""The partitions of a group at most. More make no batch more mixed, and more buckets to open."""

NEARLY = 1.05
"""The seconds that an epoch of COMET may take, divided by the least with as many groups, if its batches are more mixed."""

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
        return 1 + swaps_of_beta(self.groups, self.capacity // self.group)

    @property
    def turned(self) -> int:
        """The number of partitions that an epoch reads: those of the first set, and those that are swapped for others."""
        return self.capacity + (self.sets - 1) * self.group

    def accesses(self, sizes: Sizes) -> int:
        """Return the number of reads and writes of an epoch: of the files of partitions, and of buckets."""
        files = 2 * bool(sizes.rows) + bool(sizes.features)
        return files * self.turned + self._buckets(sizes)

    def disk_seconds(self, sizes: Sizes, disk: Disk) -> float:
        """Return the estimated seconds in which an epoch reads and writes. Each access moves a block, at least.

        >>> sizes, disk = Sizes(vertices=1000, rows=480_000_000, links=12_000), Disk(1e9, 1e-4, 4096)
        >>> Division("comet", 48, 2, 48).disk_seconds(sizes, disk) > Division("comet", 40, 4, 20).disk_seconds(sizes, disk)
        True
        """
        rows, features = (
            max(disk.block, -(-of // self.partitions)) if of else 0 for of in (sizes.rows, sizes.features)
        )
        bucket = max(disk.block, -(-sizes.links // self.partitions**2))
        moved = self.turned * (2 * rows + features) + self._buckets(sizes) * bucket
        return disk.seconds(moved, self.accesses(sizes))

    def making_seconds(self, sizes: Sizes) -> float:
        """Return the estimated seconds in which the sets of an epoch are made."""
        return making_seconds(self.sets, self.capacity / self.partitions, sizes.messages, LINK_SET_EDGE_SECONDS)

    def epoch_seconds(self, sizes: Sizes, disk: Disk, compute_seconds: float) -> float:
        """Return the estimated seconds of an epoch. The disk works while sets are made and batches are computed.

        Args:
            sizes: The bytes on the disk.
            disk: The disk.
            compute_seconds: The estimated seconds of the epoch's batches.
        """
        return max(compute_seconds + self.making_seconds(sizes), self.disk_seconds(sizes, disk))

    def _buckets(self, sizes: Sizes) -> int:
        """Return the number of buckets read: each once, and those of each set once more if the model reads neighbours."""
        return self.partitions**2 + (self.sets * self.capacity**2 if sizes.messages else 0)

    def bytes(self, sizes: Sizes) -> int:
        """Return the estimated bytes in memory: the buffer, the links of a set, and an evaluation."""
        links = min(sizes.links, UNEVEN * sizes.links // self.sets)
        evaluated = EVALUATED * sizes.rows // (1 + sizes.states) // self.partitions
        return self.buffer_bytes(sizes) + WORKED * links + evaluated + self.graph_bytes(sizes)

    @property
    def call(self) -> str:
        """The order with these sizes, as a regime takes it.

        >>> Division("comet", 8, 4, 4).call, Division("beta", 7, 3, 7).call
        ('comet(partitions=8, buffer=4, groups=4)', 'beta(partitions=7, buffer=3)')
        """
        groups = f", groups={self.groups}" if self.order == "comet" else ""
        return f"{self.order}(partitions={self.partitions}, buffer={self.capacity}{groups})"

    def __str__(self) -> str:
        groups = f", in {self.groups} group{'s' * (self.groups > 1)}" if self.order == "comet" else ""
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


def divide(
    order: OrderName,
    sizes: Sizes,
    room: int,
    disk: Disk,
    compute_seconds: float = 0.0,
    there: int | None = None,
) -> Division:
    """Return the division whose epoch is estimated to take the fewest seconds among those that fit into some bytes.

    Of equal ones it is the one of the fewest partitions. But of COMET's divisions with as many groups, it is the one of most
    partitions whose epoch takes nearly as few seconds, because its batches are most mixed.

    Source: Waleffe et al., MariusGNN (EuroSys 2023), section 6, with the optimizer's state and the group that is read ahead
    counted. There buckets are at least as long as a block of the disk. Here a short bucket counts as a block, because links
    may be few beside the rows.

    Args:
        order: The order.
        sizes: The bytes on the disk.
        room: The bytes for all of it.
        disk: The disk.
        compute_seconds: The estimated seconds of an epoch's batches, beside which the disk works; 0: they are not known.
        there: The number of partitions that are on the disk already, which is taken if a division of so many fits; None: there
            are none.

    Returns:
        The division; the one of the least bytes if none fits.
    """
    found = divisions(order, sizes, disk.block)
    fitting = [one for one in found if one.bytes(sizes) <= room]
    if there is not None:
        fitting = [one for one in divisions_of(order, there) if one.bytes(sizes) <= room] or fitting
    if not fitting:  # nor would a division of so many
        return min(found, key=lambda one: one.bytes(sizes))
    seconds = {one: one.epoch_seconds(sizes, disk, compute_seconds) for one in fitting}
    best = min(fitting, key=lambda one: (seconds[one], one.partitions, -one.capacity))
    alike = [one for one in fitting if one.groups == best.groups and seconds[one] <= NEARLY * seconds[best]]
    return best if order == "beta" else max(alike, key=lambda one: one.partitions)


def divisions_of(order: OrderName, partitions: int) -> list[Division]:
    """Return the divisions into a number of partitions.

    >>> [(one.capacity, one.groups) for one in divisions_of("comet", 9)]
    [(2, 9), (6, 3), (9, 1)]
    >>> [one.capacity for one in divisions_of("beta", 4)], [one.capacity for one in divisions_of("comet", 1)]
    ([2, 3, 4], [1])
    """
    if partitions == 1:
        return [Division(order, 1, 1, 1)]
    if order == "beta":
        return [Division("beta", partitions, held, partitions) for held in range(2, partitions + 1)]
    sizes = [size for size in range(1, partitions + 1) if partitions % size == 0]
    return [Division("comet", partitions, min(2 * size, partitions), partitions // size) for size in sizes]


def divisions(order: OrderName, sizes: Sizes, block: int) -> list[Division]:
    """Return the divisions to try.

    Args:
        order: The order.
        sizes: The bytes on the disk.
        block: The bytes of a block of the disk. A group is not divided into partitions of fewer bytes.
    """
    found = [Division(order, 1, 1, 1)]
    if order == "beta":
        few = [count for count in COUNTS if count <= sizes.vertices]
        return [*found, *(Division("beta", count, held, count) for count in few for held in range(2, count + 1))]
    most = min(sizes.buffered // block, MOST_PARTITIONS, sizes.vertices)
    for groups in GROUPS:  # of which two are in memory, and a third is read ahead
        if groups <= sizes.vertices:
            largest = max(1, min(GROUP, most // groups))
            found += [Division("comet", groups * size, 2 * size, groups) for size in range(1, largest + 1)]
    return found
