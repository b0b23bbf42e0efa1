"""The settings of the blocks engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from messenger.settings import Settings
from planner.chunks import CHUNK_ROWS


@dataclass(frozen=True)
class BlocksSettings:
    """The settings for the placement and the exchange of blocks."""

    # partitions of the graph; None: as many as Spark runs tasks at once, or more if blocks would be too large
    partitions: int | None = None
    chunk_rows: int = CHUNK_ROWS  # vertices that a stage processes at a time
    at_least: int = 1  # least number of partitions, if none is given
    together: int = 4  # chunks that travel in one message, if the stage reads no edges
    shuffled: bool = False  # True to exchange rows by shuffles even if all partitions are in one JVM
    in_turn: bool = False  # in one JVM, sums over edges read other partitions one at a time; the sums are the same
    attempts: int = 2  # attempts at a pass's lineage, if Spark's own retries were not enough
    stall_seconds: float = 900.0  # seconds without any task starting or ending after which a pass is given up
    messenger: Settings = field(default_factory=Settings)
