"""Rule: what a forward run keeps for its backward stays in memory where that spares most, and else costs as little as it can."""

from __future__ import annotations

from dataclasses import replace

from planner.keeping import kept_bytes, seconds_again, spill_seconds
from planner.physical import Stage
from planner.spec import Statistics


def keep_or_recompute(stage: Stage, statistics: Statistics) -> Stage:
    """A value kept = the same value read from a file = the same value computed again.

    What lies between the forward and the backward of an epoch is all there at the turn, so memory is one sack to fill. Chunks
    are kept one by one: filling it by seconds spared for a byte is the best that can be done, whatever its size, which is
    why no plan needs to know that. Beyond memory, a file or another run, whichever takes less time.
    """
    kept = kept_bytes(stage, statistics)
    if not kept:
        return stage
    again, file = seconds_again(stage, statistics), spill_seconds(kept)
    if stage.edge_sets or again <= file:  # autograd's graphs lie in no file
        return replace(stage, overflow="recompute", worth=again / kept)
    return replace(stage, overflow="file", worth=file / kept)
