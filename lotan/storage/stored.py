"""A link task that trains from a disk, as it is planned: its sizes, its partitions, and the schedule of an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lotan.storage.disk_schedule import DiskSchedule, bytes_of_sets, evaluation_words, turned_bytes
from lotan.storage.divided import division_entries
from lotan.storage.edge_readers import OTHER, LinkReader, Summary
from lotan.storage.feature_files import StoredFeatures
from lotan.storage.row_files import GENERATIONS
from planner.explain.sizes import counted
from planner.footprint import Footprint
from planner.orders.disk import LINK_SECONDS
from planner.orders.division import Division, Sizes
from planner.orders.order import EdgeOrder, least_swaps


@dataclass(frozen=True)
class Stored:
    """The partitions of a link task."""

    reader: LinkReader
    summary: Summary
    division: Division
    sizes: Sizes
    learned: Mapping[str, int]  # the numbers in a row of each parameter that has a row for each vertex
    features: StoredFeatures | None  # None: the model reads none
    evaluates_on_disk: bool  # True if the columns of an evaluation on the whole graph lie in files
    edges_on_disk: bool  # True if its edges then lie there too, and are read a part at a time
    states: int  # the numbers of the optimizer for each number of a row
    footprint: Footprint
    seed: int  # of the regime, which draws partitions and orders
    batch_size: int
    folder: Path | None  # the folder of the partitions; None: a temporary one
    reason: str = ""  # why the planner has chosen the division, in words; "": the order has its numbers

    @property
    def disk_bytes(self) -> int:
        """The most bytes on the disk."""
        rows = GENERATIONS * self.sizes.rows + self.sizes.features
        if self.sizes.messages:  # an evaluation on the whole graph gathers what the buffer holds of some
            rows += self.sizes.buffered
        return rows + self.sizes.links + 4 * OTHER * self.summary.others

    def order(self, epoch: int) -> EdgeOrder:
        """Return the order of an epoch."""
        return self.division.of_epoch(self.seed, epoch)

    @property
    def making_seconds(self) -> float:
        """The estimated seconds in which the sets of an epoch, and the links of their batches, are made ready."""
        return self.division.making_seconds(self.sizes) + LINK_SECONDS * self.summary.training

    def schedule(self, compute_seconds: float, epoch: int = 1) -> DiskSchedule:
        """Return the schedule of an epoch. After the first one, partitions of the epoch before are in memory.

        Args:
            compute_seconds: The estimated seconds of the epoch's computation.
            epoch: The number of the epoch, from 1.
        """
        order, division, sizes = self.order(epoch), self.division, self.sizes
        held = self.order(epoch - 1).sets[-1] if epoch > 1 else ()
        partitions = division.partitions
        # besides its own links, each set reads all edges between its partitions, if the model reads neighbours
        edges = bytes_of_sets(sizes.links, order.sets, partitions) if sizes.messages else 0
        return DiskSchedule(
            partitions=str(division),
            read_ahead=division.slots - division.capacity,
            buffer_bytes=division.buffer_bytes(sizes),
            all_bytes=sizes.buffered,
            columns="rows and features" if sizes.features else "rows",
            edges="links",
            sets=order.sets,
            examples=tuple(counted(len(buckets), "bucket") for buckets in order.buckets),
            least_swaps=least_swaps(division.groups, max(1, division.capacity // division.group)) * division.group,
            read_bytes=turned_bytes(sizes.buffered // sizes.vertices, sizes.vertices, order.sets, partitions, held),
            edge_bytes=sizes.links + edges,
            written_bytes=turned_bytes(sizes.rows // sizes.vertices, sizes.vertices, order.sets, partitions),
            accesses=division.accesses(sizes),
            compute_seconds=compute_seconds,
            disk_bytes=self.disk_bytes,
            folder=self.folder,
            division=division_entries(partitions, self.seed, examples_first=False),
            evaluation=evaluation_words(self.evaluates_on_disk, self.edges_on_disk) if sizes.messages else "",
            reason=self.reason,
        )
