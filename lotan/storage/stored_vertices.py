"""A vertex task that trains from a disk, as it is planned: its sizes, its partitions, and the schedule of an epoch."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from lotan.storage.partitioned_graph import RECORD
from lotan.storage.stored import SHOWN_SETS, disk_speed
from planner.explain import duration, size
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
        return self.sizes.vertices * self.sizes.row_bytes + RECORD * self.sizes.edges

    @property
    def bytes(self) -> int:
        """The estimated bytes in memory."""
        return self.division.bytes(self.sizes)

    def lines(self, compute_seconds: float, whole: bool) -> list[str]:
        """Return the schedule of the first epoch in words, for explain.

        Args:
            compute_seconds: The estimated seconds of the epoch's computation.
            whole: True to show all sets.
        """
        division, sizes = self.division, self.sizes
        order = division.of_epoch(self.seed, 1)
        partition = sizes.vertices * sizes.row_bytes // division.partitions
        rows = partition * (min(division.capacity, division.partitions) + order.reads)
        share = (division.capacity / division.partitions) ** 2
        edges = int(len(order.sets) * share * RECORD * sizes.edges)
        speed = disk_speed(str(self.folder or tempfile.gettempdir()))
        ahead = "; 1 more is read ahead" if division.slots > division.capacity else ""
        features = size(sizes.vertices * sizes.row_bytes)
        later = " in the first epoch; those with training vertices stay" if division.order == "cached_nodes" else ""
        lines = [
            f"Storage  {division}{ahead}: {size(division.buffer_bytes(sizes))} of {features} of features",
            f"         an epoch has {len(order.sets)} {'set' if len(order.sets) == 1 else 'sets'} and {order.reads} swaps of a "
            "partition; neighbours are drawn within a set",
            f"         reads {size(rows)} of features and about {size(edges)} of edges{later}",
            f"         {duration((rows + edges) / speed)} of disk at {size(int(speed))}/s beside {duration(compute_seconds)} of "
            "computation",
            f"         on the disk: {size(self.disk_bytes)} in {self.folder or 'a temporary folder'}",
        ]
        shown = order.sets if whole else order.sets[:SHOWN_SETS]
        for number, held in enumerate(shown):
            lines.append(
                f"         S{number + 1}  {' '.join(map(str, held))}  | examples of "
                f"{' '.join(map(str, order.partitions[number])) or 'none'}"
            )
        if len(shown) < len(order.sets):
            lines.append(f"         ... {len(order.sets) - len(shown)} more sets, which stage 'all' shows")
        return lines
