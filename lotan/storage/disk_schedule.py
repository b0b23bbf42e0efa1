"""The schedule of an epoch that trains from a disk: its sets of partitions, and the bytes and seconds of moving them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from lotan.storage.disk_probe import disk_of
from lotan.storage.divided import other_division
from lotan.storage.folder import refusal, remote_notes
from lotan.storage.schedule_picture import picture
from planner.explain.sizes import counted, duration, memory, size
from planner.orders.disk import Disk
from planner.orders.order import Set, swaps

SHOWN_SETS = 8
"""The sets that the brief form of explain shows."""


@dataclass(frozen=True)
class DiskSchedule:
    """The sets of partitions of an epoch, and what is estimated to be moved."""

    partitions: str  # their order and their numbers, in words
    read_ahead: int  # the partitions that there is room for beside those that train
    buffer_bytes: int  # in memory
    all_bytes: int  # of all partitions
    columns: str  # "rows", "features" or "rows and features": what partitions have
    edges: str  # "links" or "edges"
    sets: tuple[Set, ...]
    examples: tuple[str, ...]  # of each set, in words
    least_swaps: int | None  # the number that no order is below; None: there is no such bound
    read_bytes: int  # of columns
    edge_bytes: int  # that are read
    written_bytes: int  # of columns
    accesses: int  # the reads and writes, each of which begins at another place
    compute_seconds: float
    disk_bytes: int  # the most on the disk
    folder: Path | None  # None: a temporary one
    division: Mapping[str, Any]  # the entries of a manifest that say how vertices are divided
    evaluation: str  # where columns and edges lie when the whole graph is evaluated, in words; "": it never is
    note: str = ""  # on what is read
    reason: str = ""  # why the planner has chosen these partitions, in words; "": the order has their numbers

    @property
    def swaps(self) -> int:
        """The number of partitions that are read after those of the first set."""
        return swaps(self.sets)

    @property
    def disk(self) -> Disk:
        """The disk, as it was measured."""
        return disk_of(self.folder)

    @property
    def disk_seconds(self) -> float:
        """The estimated seconds of reading and writing."""
        return self.disk.seconds(self.read_bytes + self.edge_bytes + self.written_bytes, self.accesses)

    @property
    def wait_seconds(self) -> float:
        """The estimated seconds that training waits for the disk, which works beside it."""
        return max(0.0, self.disk_seconds - self.compute_seconds)

    def lines(self, whole: bool) -> list[str]:
        """Return the schedule in words, with its sets.

        Args:
            whole: True to show all sets.
        """
        lines, count = self._words(), len(self.sets) if whole else SHOWN_SETS
        for number, (held, examples) in enumerate(zip(self.sets[:count], self.examples, strict=False)):
            lines.append(f"         S{number + 1}  {' '.join(map(str, held))}  | {examples}")
        if count < len(self.sets):
            lines.append(f"         ... {len(self.sets) - count} more sets, which stage 'all' shows")
        return lines

    def section(self) -> str:
        """Return the schedule as a section of a page, in words and as a picture."""
        words = escape("\n".join(line[9:] for line in self._words()))
        return (
            f'<section class="below"><h2>Storage</h2><pre>{words}</pre><figure>{picture(self.sets)}</figure></section>'
        )

    def _words(self) -> list[str]:
        ahead = f"; {self.read_ahead} more are read ahead" if self.read_ahead else ""
        least = "" if self.least_swaps is None else f" (at least {self.least_swaps})"
        written = f", writes {size(self.written_bytes)}" if self.written_bytes else ""
        lines = [
            f"Storage  {self.partitions}{ahead}: {memory(self.buffer_bytes)} of {memory(self.all_bytes)} of {self.columns}",
            f"         an epoch has {counted(len(self.sets), 'set')} and {counted(self.swaps, 'swap')} of a partition{least}",
            f"         reads {size(self.read_bytes)} of {self.columns} and about {size(self.edge_bytes)} of {self.edges}{written}"
            f" in the first epoch{self.note}",
            f"         {duration(self.disk_seconds)} of disk at {size(int(self.disk.bytes_per_second))}/s, with "
            f"{duration(self.disk.access_seconds)} for each of {self.accesses:,} reads and writes, beside "
            f"{duration(self.compute_seconds)} of computation; {duration(self.wait_seconds)} that training waits for",
            f"         on the disk: at most {size(self.disk_bytes)} in {self.folder or 'a temporary folder'}",
        ]
        if self.reason:
            lines.insert(1, f"         {self.reason}")
        if self.evaluation:
            lines.append(f"         evaluates on the whole graph, with {self.evaluation}")
        refused = refusal(self.folder, self.disk_bytes, not self.written_bytes)
        refused = refused or other_division(self.folder, self.division)
        notes = remote_notes(self.folder) if refused is None else (f"a run would be refused: {refused}",)
        return lines + [f"         {note}" for note in notes]

    def data(self) -> dict[str, Any]:
        """Return the schedule as plain data for JSON."""
        return {
            "partitions": self.partitions,
            "reason": self.reason,
            "buffer_bytes": self.buffer_bytes,
            "all_bytes": self.all_bytes,
            "sets": [list(held) for held in self.sets],
            "swaps": self.swaps,
            "least_swaps": self.least_swaps,
            "estimated_read_bytes": self.read_bytes,
            "estimated_edge_bytes": self.edge_bytes,
            "estimated_written_bytes": self.written_bytes,
            "accesses": self.accesses,
            "disk_bytes_per_second": round(self.disk.bytes_per_second),
            "disk_access_seconds": self.disk.access_seconds,
            "disk_block_bytes": self.disk.block,
            "estimated_disk_seconds": self.disk_seconds,
            "estimated_compute_seconds": self.compute_seconds,
            "estimated_wait_seconds": self.wait_seconds,
            "disk_bytes": self.disk_bytes,
            "evaluation": self.evaluation,
            "folder": None if self.folder is None else str(self.folder),
        }


def evaluation_words(on_disk: bool, edges_on_disk: bool) -> str:
    """Return where columns and edges lie when the whole graph is evaluated.

    Args:
        on_disk: True if columns lie in files.
        edges_on_disk: True if edges then lie in files too.
    """
    if not on_disk:
        return "columns and edges in memory"
    return "columns and edges in files" if edges_on_disk else "columns in files, and all edges in memory"


def turned_bytes(row_bytes: int, vertices: int, sets: Sequence[Set], partitions: int, held: Set = ()) -> int:
    """Return the bytes of the partitions of the first set that are not in memory, and of those that are read after them.

    Args:
        row_bytes: The bytes of a vertex.
        vertices: The number of all vertices. Partitions differ by one vertex where they cannot be equal.
        sets: The sets.
        partitions: The number of partitions.
        held: The partitions in memory before the first set.

    >>> turned_bytes(100, 8, [(0, 1), (0, 2), (1, 2)], partitions=4)
    800
    >>> turned_bytes(100, 9, [(0, 1), (2, 3)], partitions=4)
    900
    >>> turned_bytes(100, 8, [(0, 1), (0, 2), (1, 2)], partitions=4, held=(1, 3))
    600
    """
    turned = [
        *(one for one in sets[0] if one not in held),
        *(one for before, held in pairwise(sets) for one in held if one not in before),
    ]
    return row_bytes * sum((one + 1) * vertices // partitions - one * vertices // partitions for one in turned)


def bytes_of_sets(edge_bytes: int, sets: Sequence[Set], partitions: int) -> int:
    """Return about how many bytes of edges lie between the partitions of each set, in all sets together.

    >>> bytes_of_sets(1600, [(0, 1), (2, 3)], partitions=4)
    800
    """
    return int(sum((len(held) / partitions) ** 2 for held in sets) * edge_bytes)
