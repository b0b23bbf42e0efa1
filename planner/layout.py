"""How a job is spread over a host: what its memory and its seconds depend on beside the plan."""

from __future__ import annotations

from dataclasses import dataclass

from planner.shares import Crew


@dataclass(frozen=True)
class Layout:
    """How a job is spread over this host."""

    crew: Crew
    partitions: int
    saved: int | None = None  # bytes that each worker may keep, where that is settled
    cores: int = 2
    chunk_rows: int | None = None  # vertices a stage runs on at a time; None: as engines do
    shuffled: bool = False  # whether partitions lie in several JVMs

    @property
    def workers(self) -> int:
        """DL workers; those that are started elsewhere, nobody counts: taken for as many as there are cores."""
        return self.crew.workers or self.cores

    @property
    def at_once(self) -> float:
        """Of a column, the part that tasks have as rows at one time."""
        return min(1.0, self.crew.tasks / self.partitions)
