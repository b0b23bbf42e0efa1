"""The part of an engine's interface that measures its passes step by step, as `explain` with `analyze` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.steps.step import Step


@dataclass(frozen=True)
class Extent:
    """The size of a step's results."""

    rows: int
    bytes: int


class Observed:
    """The methods that only measuring needs. An engine that knows none of their answers inherits them unchanged."""

    def do_one_by_one(self) -> bool:
        """Switch to running each step completely before its method returns, so that it can be timed.

        Returns:
            False if the engine runs passes only as a whole.
        """
        return False

    def extent(self, step: Step, made: Mapping[str, Any]) -> Extent | None:
        """Return the rows and bytes of a finished step's results, or None if unknown. A pipe's rows are those that it ran on.

        Args:
            step: The step that was run.
            made: The handles of its columns and collections, by name.
        """
        return None

    def piped(self) -> Sequence[Extent]:
        """Return for each pipe of the last pass the rows that it ran on and the bytes sent and received.

        Empty if none are sent.
        """
        return ()
