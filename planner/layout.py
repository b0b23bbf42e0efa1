"""The spread of a job over a host. Its memory and its seconds depend on it, and on the plan."""

from __future__ import annotations

from dataclasses import dataclass

from planner.shares import Crew


@dataclass(frozen=True)
class Layout:
    """The spread of a job over this host."""

    crew: Crew
    partitions: int
    saved: int | None = None  # bytes for saved values in each worker, if decided already
    cores: int = 2
    chunk_rows: int | None = None  # most vertices in a chunk; None: the engine's default
    shuffled: bool = False  # True if partitions lie in several JVMs
    within: int | None = None  # bytes of a process some of whose columns lie in files; None: none does
    storage: int | None = None  # bytes of Spark's heaps that hold columns; None: not known, or there is room for all
    in_turn: bool = False  # True if sums over edges read other partitions one at a time, in one JVM
    rows_in_spark: bool = False  # True if learned rows lie in Spark, with the state of their optimizer
    rows_in_checkpoints: bool = False  # True if such rows come to the driver for checkpoints

    @property
    def workers(self) -> int:
        """The number of DL workers. Workers started elsewhere are unknown here, so the number of cores stands for them."""
        return self.crew.workers or self.cores

    @property
    def at_once(self) -> float:
        """The part of a column's rows that tasks have in hand at one time."""
        return min(1.0, self.crew.tasks / self.partitions)
