"""A vertex task that trains from a disk, as it is planned: its sizes, its partitions, and the schedule of an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lotan.storage.disk_schedule import DiskSchedule, bytes_of_sets, turned_bytes
from planner.orders.vertex_division import VertexDivision, VertexSizes


@dataclass(frozen=True)
class StoredVertices:
    """The partitions of a vertex task."""

    division: VertexDivision
    sizes: VertexSizes
    seed: int  # of the regime, which draws partitions and orders
    folder: Path | None  # the folder of the partitions; None: a temporary one

    @property
    def disk_bytes(self) -> int:
        """The bytes on the disk: features and edges, each once."""
        return self.sizes.vertices * self.sizes.row_bytes + self.sizes.edge_bytes

    @property
    def bytes(self) -> int:
        """The estimated bytes in memory."""
        return self.division.bytes(self.sizes)

    def schedule(self, compute_seconds: float) -> DiskSchedule:
        """Return the schedule of the first epoch.

        Args:
            compute_seconds: The estimated seconds of the epoch's computation.
        """
        division, sizes = self.division, self.sizes
        order, partitions = division.of_epoch(self.seed, 1), division.partitions
        features = sizes.vertices * sizes.row_bytes
        return DiskSchedule(
            partitions=str(division),
            read_ahead=division.slots - division.capacity,
            buffer_bytes=division.buffer_bytes(sizes),
            all_bytes=features,
            columns="features",
            edges="edges",
            sets=order.sets,
            examples=tuple(f"examples of {' '.join(map(str, some)) or 'none'}" for some in order.partitions),
            least_swaps=None,
            read_bytes=turned_bytes(features, order.sets, partitions),
            edge_bytes=bytes_of_sets(sizes.edge_bytes, order.sets, partitions),
            written_bytes=0,
            compute_seconds=compute_seconds,
            disk_bytes=self.disk_bytes,
            folder=self.folder,
            note=" in the first epoch; those with training vertices stay" if division.order == "cached_nodes" else "",
        )
