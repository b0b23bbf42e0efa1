"""Keep in memory what spares most time in backward, and write to a file or compute again what does not fit."""

from __future__ import annotations

from dataclasses import replace

from planner.draft import Draft
from planner.keeping import kept_bytes, seconds_again, spill_seconds
from planner.physical import Overflow, Stage
from planner.places import stages_of
from planner.rule import DraftRule
from planner.statistics import Statistics
from planner.steps.pipe import PipeStep

ALL_KEPT = "on local, what backward reads stays in memory"


def keep_or_recompute(stage: Stage, statistics: Statistics) -> Stage:
    """A value kept = the same value read from a file = the same value computed again.

    What lies between the forward and the backward of an epoch is all there at the turn, so memory is one knapsack. Chunks
    are kept one by one: filling it by seconds spared for a byte is the best that can be done, whatever its size, which is
    why no plan needs to know that. Beyond memory, a file or another run, whichever takes less time.
    """
    kept = kept_bytes(stage, statistics)
    if not kept:
        return stage
    file = None if stage.run_by_autograd else spill_seconds(kept)
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


# --- the rule --------------------------------------------------------------------------------------------------------


def _apply(draft: Draft) -> Draft:
    """The epoch, its stages that run backward with what is to become of what they keep."""
    if draft.options.traits.memory == "process":
        return draft.stopped(RULE.name, ALL_KEPT)
    epoch = draft.epoch
    backward = {step.stage for step in epoch.steps if isinstance(step, PipeStep) and step.mode == "backward"}
    stages = [keep_or_recompute(one, draft.statistics) if one.name in backward else one for one in epoch.stages]
    return replace(draft, epoch=replace(epoch, stages=tuple(stages)))


def _count(draft: Draft) -> int:
    return sum(stage.worth > 0 for stage in draft.epoch.stages)


def _where(draft: Draft, _: str) -> list[str]:
    """The stages of training that keep something for their backward."""
    return [stage.name for stage in stages_of(draft.plan, draft.plan.train) if stage.worth > 0]


RULE = DraftRule(
    name="keep_or_recompute",
    phase="epoch",
    apply=_apply,
    count=_count,
    where=_where,
    idle="no stage keeps anything for its backward",
    unseen="it matters beyond a worker's memory",
)
