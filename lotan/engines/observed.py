"""What can be asked of an engine whose passes are measured step by step, as `explain` with `analyze` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.physical import Step


@dataclass(frozen=True)
class Extent:
    """How much a step made."""

    rows: int
    bytes: int


class Observed:
    """The part of an engine's interface that only measuring needs. An engine that can tell nothing has it as it is."""

    def do_one_by_one(self) -> bool:
        """From now on, do all of a step before its method returns, for its time is taken; False: passes are done as a whole."""
        return False

    def extent(self, step: Step, made: Mapping[str, Any]) -> Extent | None:
        """Rows and bytes of what a step has `made`, which is done; a pipe's rows are those that it ran on. None: unknown.

        Args:
            step: that was run.
            made: the handles of its columns and collections, by name.
        """
        return None

    def piped(self) -> Sequence[Extent]:
        """For each pipe of the last pass, in order: the rows that it ran on, and the bytes that it sent and received.

        It is empty for an engine that sends none.
        """
        return ()
