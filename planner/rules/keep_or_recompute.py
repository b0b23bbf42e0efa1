"""Rule: what a forward run keeps for its backward stays in memory where that spares most, and else costs as little as it can."""

from __future__ import annotations

from dataclasses import replace

from planner.keeping import kept_bytes, seconds_again, spill_seconds
from planner.kernels import run_by_autograd
from planner.physical import Overflow, Stage
from planner.statistics import Statistics


def keep_or_recompute(stage: Stage, statistics: Statistics) -> Stage:
    """A value kept = the same value read from a file = the same value computed again.

    What lies between the forward and the backward of an epoch is all there at the turn, so memory is one knapsack. Chunks
    are kept one by one: filling it by seconds spared for a byte is the best that can be done, whatever its size, which is
    why no plan needs to know that. Beyond memory, a file or another run, whichever takes less time.
    """
    kept = kept_bytes(stage, statistics)
    if not kept:
        return stage
    file = None if run_by_autograd(stage) else spill_seconds(kept)
    overflow, seconds = choose_overflow(seconds_again(stage, statistics), file)
    return replace(stage, overflow=overflow, worth=seconds / kept)


def choose_overflow(again: float, file: float | None) -> tuple[Overflow, float]:
    """What takes least time beyond memory, and how long: what room in memory would spare.

    Args:
        again: seconds of another run.
        file: seconds to write and read a file; None: it takes none of it, as of autograd's graphs.
    """
    if file is None or again <= file:
        return "recompute", again
    return "file", file
