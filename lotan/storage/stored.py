"""A link task that trains from a disk, as it is planned: its sizes, its partitions, and the schedule of an epoch."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lotan.storage.feature_files import StoredFeatures
from lotan.storage.partitioned_graph import RECORD, LinkReader, Summary
from planner.explain import duration, size
from planner.footprint import Footprint
from planner.orders import least_swaps
from planner.orders.division import Division, Sizes
from planner.orders.order import EdgeOrder

GENERATIONS = 3
"""The files of all rows on the disk: those of the last checkpoint, those of the epoch that runs, and the best ones."""

SHOWN_SETS = 8
"""The sets that the brief form of explain shows."""

PROBE = 16 << 20
"""The bytes that are written to measure a disk."""


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
    states: int  # the numbers of the optimizer for each number of a row
    footprint: Footprint
    scoring_seconds: float  # the estimated seconds of an epoch in which pairs are scored and rows are changed
    seed: int  # of the regime, which draws partitions and orders
    batch_size: int
    folder: Path | None  # the folder of the partitions; None: a temporary one

    @property
    def disk_bytes(self) -> int:
        """The most bytes on the disk."""
        rows = GENERATIONS * self.sizes.rows + self.sizes.features
        if self.sizes.messages:  # an evaluation on the whole graph gathers what the buffer holds of some
            rows += self.sizes.buffered
        return rows + self.sizes.links + 4 * (RECORD + 4) * self.summary.others

    def order(self, epoch: int) -> EdgeOrder:
        """Return the order of an epoch."""
        return self.division.of_epoch(self.seed, epoch)

    def lines(self, compute_seconds: float, whole: bool) -> list[str]:
        """Return the schedule of the first epoch in words, for explain.

        Args:
            compute_seconds: The estimated seconds of the epoch's computation.
            whole: True to show all sets.
        """
        order, division = self.order(1), self.division
        first = min(division.capacity, division.partitions)
        turned = (first + order.reads) / division.partitions
        read, written = int(turned * self.sizes.buffered), int(turned * self.sizes.rows)
        links = self.sizes.links
        if self.sizes.messages:  # besides, each set reads all edges between its partitions
            links += int(len(order.sets) * (division.capacity / division.partitions) ** 2 * self.sizes.links)
        speed = disk_speed(str(self.folder or tempfile.gettempdir()))
        moving = (read + written + links) / speed
        least = least_swaps(division.groups, max(1, division.capacity // division.group)) * division.group
        ahead = (
            f"; {division.slots - division.capacity} more are read ahead" if division.slots > division.capacity else ""
        )
        rows = "rows and features" if self.sizes.features else "rows"
        lines = [
            f"Storage  {division}{ahead}: {size(division.buffer_bytes(self.sizes))} of {size(self.sizes.buffered)}",
            f"         an epoch has {len(order.sets)} sets and {order.reads} swaps of a partition (at least {least})",
            f"         reads {size(read)} of {rows} and {size(links)} of links, writes {size(written)}",
            f"         {duration(moving)} of disk at {size(int(speed))}/s beside {duration(compute_seconds)} of computation; "
            f"{duration(max(0.0, moving - compute_seconds))} that training waits for",
            f"         on the disk: at most {size(self.disk_bytes)} in {self.folder or 'a temporary folder'}",
        ]
        shown = order.sets if whole else order.sets[:SHOWN_SETS]
        for number, held in enumerate(shown):
            lines.append(f"         S{number + 1}  {' '.join(map(str, held))}  | {len(order.buckets[number])} buckets")
        if len(shown) < len(order.sets):
            lines.append(f"         ... {len(order.sets) - len(shown)} more sets, which stage 'all' shows")
        return lines


@cache
def disk_speed(folder: str) -> float:
    """Return the bytes a second that a short file was written with. It is measured once a folder.

    If nothing can be written there, a run says so; here it counts as the folder of temporary files.
    """
    place = folder if os.path.isdir(folder) and os.access(folder, os.W_OK) else None
    data = os.urandom(PROBE)
    with tempfile.TemporaryFile(dir=place) as file:
        started = time.perf_counter()
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        return PROBE / max(1e-9, time.perf_counter() - started)
