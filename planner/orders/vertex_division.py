"""The division into partitions of a graph whose vertices are the examples, chosen for the bytes that there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.orders.cached_nodes import cached_nodes
from planner.orders.division import set_graph_bytes
from planner.orders.each_once import each_once
from planner.orders.order import VertexOrder

VertexOrderName = Literal["cached_nodes", "each_once"]

PARTITIONS = (64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2)
"""The numbers of partitions to try. More of them fill a given memory more closely, and are shorter to read."""


@dataclass(frozen=True)
class VertexSizes:
    """The sizes of a graph on which a division depends."""

    vertices: int
    edges: int
    examples: int  # vertices that are trained on
    row_bytes: int  # of a vertex's features
    edge_bytes: int  # of all edges on the disk
    edge_numbers: int = 0  # the numbers of an edge: its weight, and its attributes
    learned_bytes: int = 0  # of a vertex's learned rows, with the optimizer's state

    @property
    def buffered(self) -> int:
        """The bytes of a vertex in the buffer."""
        return self.row_bytes + self.learned_bytes

    def least_training(self, partitions: int) -> int:
        """Return the number of partitions that the examples fill, if they come first."""
        return -(-self.examples * partitions // self.vertices)


@dataclass(frozen=True)
class VertexDivision:
    """A division of a graph into partitions, of which some are in memory."""

    order: VertexOrderName
    partitions: int
    capacity: int  # the partitions that batches are sampled from at one time
    training: int  # the first partitions, which have all examples; for each_once, all partitions

    @property
    def slots(self) -> int:
        """The partitions that there is room for: those that are sampled from, and one that is read ahead."""
        return self.capacity + (self.order == "each_once" and self.capacity < self.partitions)

    @property
    def sets(self) -> int:
        """The number of sets of an epoch."""
        return 1 if self.order == "cached_nodes" else 1 + self.partitions - self.capacity

    def accesses(self, sizes: VertexSizes) -> int:
        """Return the number of reads and writes of an epoch: of the files of partitions, and of the buckets of each set."""
        files = bool(sizes.row_bytes) + 2 * bool(sizes.learned_bytes)
        return files * (self.capacity + self.sets - 1) + self.sets * self.capacity**2

    def of_epoch(self, seed: int, epoch: int) -> VertexOrder:
        """Return the order of an epoch."""
        if self.order == "cached_nodes":
            return cached_nodes(self.partitions, self.capacity, self.training, seed, epoch)
        return each_once(self.partitions, self.capacity, seed, epoch)

    def buffer_bytes(self, sizes: VertexSizes) -> int:
        """Return the bytes of the features and learned rows in memory."""
        return self.slots * -(-sizes.vertices // self.partitions) * sizes.buffered

    def bytes(self, sizes: VertexSizes) -> int:
        """Return the estimated bytes in memory: the buffer, and the graph of a set."""
        of_set = set_graph_bytes(self.capacity / self.partitions, sizes.vertices, sizes.edges, sizes.edge_numbers)
        return self.buffer_bytes(sizes) + of_set

    @property
    def call(self) -> str:
        """The order with these sizes, as a regime takes it.

        >>> VertexDivision("each_once", 8, 4, 8).call
        'each_once(partitions=8, buffer=4)'
        """
        return f"{self.order}(partitions={self.partitions}, buffer={self.capacity})"

    def __str__(self) -> str:
        first = f", {self.training} of them with all training vertices" if self.order == "cached_nodes" else ""
        return f"{self.order}, {self.capacity} of {self.partitions} partitions in memory{first}"


def divide_vertices(
    order: VertexOrderName,
    sizes: VertexSizes,
    room: int,
    block: int,
    earlier: str | None = None,
    there: int | None = None,
) -> VertexDivision:
    """Return the division with most of the graph in memory among those that fit into some bytes.

    Neighbours on the disk do not exist for a batch. So the share in memory comes before the seconds of the disk, of which
    longer partitions of the same share take fewer.

    Args:
        order: The order.
        sizes: The sizes of the graph.
        room: The bytes for all of it.
        block: The bytes of a block of the disk, which the features and rows of a partition have at least.
        earlier: The division of the run that goes on, in words. It is taken again if it fits; None: a new run.
        there: The number of partitions that are on the disk already, which is taken if a division of so many fits; None: there
            are none.

    Returns:
        The division; the one of the least bytes if none fits.
    """
    found, written = _divisions(order, sizes, block), [] if there is None else _of_so_many(order, sizes, there)
    fitting, usable = ([one for one in some if one.bytes(sizes) <= room] for some in (found, written))
    if kept := [one for one in (*fitting, *usable) if str(one) == earlier]:
        return kept[0]
    fitting = usable or fitting
    if fitting:  # of equal shares the one with longer partitions, which comes later
        return max(fitting, key=lambda one: (one.capacity / one.partitions, -one.partitions))
    return min((*found, *written), key=lambda one: one.bytes(sizes))


def _divisions(order: VertexOrderName, sizes: VertexSizes, block: int) -> list[VertexDivision]:
    fine = max(2, sizes.vertices * sizes.buffered // block)
    found = [VertexDivision(order, 1, 1, 1)]
    for partitions in PARTITIONS:
        if partitions > min(fine, sizes.vertices):
            continue
        found += _of_so_many(order, sizes, partitions)
    return found


def _of_so_many(order: VertexOrderName, sizes: VertexSizes, partitions: int) -> list[VertexDivision]:
    if partitions == 1:
        return [VertexDivision(order, 1, 1, 1)]
    training = sizes.least_training(partitions) if order == "cached_nodes" else partitions
    least = training if order == "cached_nodes" else 2
    return [VertexDivision(order, partitions, most, training) for most in range(least, partitions + 1)]
