"""A vertex task that trains from a disk, as it is planned: its sizes, its partitions, and the schedule of an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lotan.storage.disk_schedule import DiskSchedule, bytes_of_sets, evaluation_words, turned_bytes
from lotan.storage.divided import division_entries
from lotan.storage.row_files import GENERATIONS
from planner.orders.disk import SET_EDGE_SECONDS, making_seconds
from planner.orders.vertex_division import VertexDivision, VertexSizes


@dataclass(frozen=True)
class StoredVertices:
    """The partitions of a vertex task."""

    division: VertexDivision
    sizes: VertexSizes
    learned: Mapping[str, int]  # the numbers in a row of each parameter that has a row for each vertex
    seed: int  # of the regime, which draws partitions and orders
    folder: Path | None  # the folder of the partitions; None: a temporary one
    edges_on_disk: bool  # True if an evaluation whose columns lie in files has its edges there too
    evaluates_on_disk: bool = False  # True if the columns of an evaluation lie in files

    @property
    def disk_bytes(self) -> int:
        """The most bytes on the disk: features and edges, each once, and learned rows."""
        sizes = self.sizes
        return sizes.vertices * (sizes.row_bytes + GENERATIONS * sizes.learned_bytes) + sizes.edge_bytes

    @property
    def bytes(self) -> int:
        """The estimated bytes in memory."""
        return self.division.bytes(self.sizes)

    @property
    def making_seconds(self) -> float:
        """The estimated seconds in which the sets of an epoch are made."""
        division = self.division
        return making_seconds(
            division.sets, division.capacity / division.partitions, self.sizes.edges, SET_EDGE_SECONDS
        )

    def schedule(self, compute_seconds: float, epoch: int = 1) -> DiskSchedule:
        """Return the schedule of an epoch. After the first one, partitions of the epoch before are in memory.

        Args:
            compute_seconds: The estimated seconds of the epoch's computation.
            epoch: The number of the epoch, from 1.
        """
        division, sizes = self.division, self.sizes
        order, partitions = division.of_epoch(self.seed, epoch), division.partitions
        held = division.of_epoch(self.seed, epoch - 1).sets[-1] if epoch > 1 else ()
        buffered = sizes.vertices * sizes.buffered
        return DiskSchedule(
            partitions=str(division),
            read_ahead=division.slots - division.capacity,
            buffer_bytes=division.buffer_bytes(sizes),
            all_bytes=buffered,
            columns="rows and features" if self.learned else "features",
            edges="edges",
            sets=order.sets,
            examples=tuple(f"examples of {' '.join(map(str, some)) or 'none'}" for some in order.partitions),
            least_swaps=None,
            read_bytes=turned_bytes(sizes.buffered, sizes.vertices, order.sets, partitions, held),
            edge_bytes=bytes_of_sets(sizes.edge_bytes, order.sets, partitions),
            written_bytes=turned_bytes(sizes.learned_bytes, sizes.vertices, order.sets, partitions),
            accesses=division.accesses(sizes),
            compute_seconds=compute_seconds,
            disk_bytes=self.disk_bytes,
            folder=self.folder,
            division=division_entries(partitions, self.seed, division.order == "cached_nodes"),
            evaluation=evaluation_words(self.evaluates_on_disk, self.edges_on_disk),
            note="; those with training vertices stay" if division.order == "cached_nodes" else "",
        )
