"""Keep in memory the values that spare most time in backward, and write the others to a file or compute them again."""

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

    All values that forward saves for backward exist at the same time, at the turn. So memory is one knapsack, and it is
    filled chunk by chunk, first with the values that spare most seconds for a byte. This order does not depend on the
    size of memory, so the plan need not know that size. Values beyond memory go to a file or are computed again, whichever
    takes less time.

    Returns:
        The stage with its overflow and its worth in seconds a byte, or the same stage if it saves nothing.
    """
    kept = kept_bytes(stage, statistics)
    if not kept:
        return stage
    file = None if stage.run_by_autograd else spill_seconds(kept)
    overflow, seconds = choose_overflow(seconds_again(stage, statistics), file)
    return replace(stage, overflow=overflow, worth=seconds / kept)


def choose_overflow(again: float, file: float | None) -> tuple[Overflow, float]:
    """Return the faster way for values beyond memory, and its seconds, which room in memory would spare.

    Args:
        again: The seconds to compute the values again.
        file: The seconds to write and read a file. None: the values cannot go to a file, because autograd holds them.
    """
    if file is None or again <= file:
        return "recompute", again
    return "file", file


# --- the rule --------------------------------------------------------------------------------------------------------


def _apply(draft: Draft) -> Draft:
    """Return the draft with the overflow and the worth set in each stage of the epoch that runs backward."""
    if draft.options.traits.memory == "process":
        return draft.stopped(RULE.name, ALL_KEPT)
    epoch = draft.epoch
    backward = {step.stage for step in epoch.steps if isinstance(step, PipeStep) and step.mode == "backward"}
    stages = [keep_or_recompute(one, draft.statistics) if one.name in backward else one for one in epoch.stages]
    return replace(draft, epoch=replace(epoch, stages=tuple(stages)))


def _count(draft: Draft) -> int:
    return sum(stage.worth > 0 for stage in draft.epoch.stages)


def _where(draft: Draft, _: str) -> list[str]:
    """Return the names of the stages of training that keep values for their backward."""
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
