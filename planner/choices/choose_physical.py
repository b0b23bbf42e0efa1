"""Take the way to run a plan that is estimated to take least time, among those for which memory has room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from planner.choices.evaluation import anywhere
from planner.draft import Draft
from planner.footprint import footprint
from planner.rule import Again, ChoiceRule, Rule

Found = TypeVar("Found")

LEAST_GAIN = 0.1
"""The share of an epoch that another plan has to spare. Estimates err by about as much, and more is known of the usual plan."""

EVALUATES_APART = "evaluation in a pass of its own, for training to be pruned"


@dataclass(frozen=True)
class Candidate(Generic[Found]):
    """A way to run a plan: an engine, a number of partitions, or the plan that is made without a rule."""

    what: Found
    cost: float  # estimated seconds, or a number that rises with them
    fits: bool = True  # True if memory has room for it


def choose_physical(candidates: Sequence[Candidate[Found]], least_gain: float = 0.0) -> Candidate[Found]:
    """Any engine, layout, pass and set of rules gives the same numbers, so the cheapest that fits in memory is taken.

    The first candidate is the usual one. It is taken unless it does not fit, or another one spares more than `least_gain`.

    >>> choose_physical([Candidate("local", 20.0), Candidate("blocks", 9.0)], least_gain=15.0).what
    'local'
    >>> choose_physical([Candidate("usual", 1.0, fits=False), Candidate("4 partitions", 2.0), Candidate("8", 4.0)]).what
    '4 partitions'

    Args:
        candidates: The candidates, at least one. If none fits, the first is returned, and the caller has to refuse it.
        least_gain: The least gain, in the unit of their costs.
    """
    first = candidates[0]
    best = min((one for one in candidates if one.fits), key=lambda one: one.cost, default=first)
    return best if best.fits and (not first.fits or first.cost - best.cost > least_gain) else first


# --- between plans for one engine -------------------------------------------------------------------------------------


def choose_plan(usual: Draft, again: Again, rules: Sequence[Rule]) -> Draft:
    """Return the usual plan, or a plan without a doubtful rule.

    The latter is taken if it is estimated to take less time, or if it fits in memory and the usual plan does not.

    Args:
        usual: The finished plan with all enabled rules.
        again: A function that makes the plan anew, without a rule or with evaluation in a pass of its own.
        rules: The enabled rules.
    """
    first = _in_passes(usual, again)
    doubts = [rule.name for rule in rules if rule.in_doubt is not None and rule.in_doubt(first.what, first.fits)]
    if not doubts:
        return first.what
    others = [_in_passes(again(rule, False), again) for rule in doubts]
    found = choose_physical([first, *others], LEAST_GAIN * first.cost)
    return first.what if found is first else found.what.stopped(found.what.without, why_without(first, found))


def _in_passes(draft: Draft, again: Again) -> Candidate[Draft]:
    """Return the plan, or the one with evaluation in a pass of its own if that is estimated to take less time.

    The second plan is made only if training evaluates as well, and could be pruned without that.
    """
    plan = draft.plan
    evaluates_whole = plan.reuses_evaluation and not plan.train_and_evaluate
    if not evaluates_whole or plan.levels is None or plan.targets != "train":
        return _candidate(draft)
    return choose_physical([_candidate(draft), _candidate(again(draft.without, True))])


def why_without(usual: Candidate[Found], found: Candidate[Found]) -> str:
    """Return the reason for the plan without a rule, in words, and the option that brings back the usual one."""
    reason = f"an epoch is estimated to take {1 - found.cost / usual.cost:.0%} less without it"
    if not usual.fits:
        reason = "what it holds does not fit in the memory limit"
    return f"{reason}; --disable {RULE.name} has it all the same"


def _candidate(draft: Draft) -> Candidate[Draft]:
    """Return a plan as a candidate. Its cost is the same on any machine and in any run: see `anywhere`."""
    return Candidate(draft, draft.seconds(anywhere(draft.options.pricing)), _fits(draft))


def _fits(draft: Draft) -> bool:
    """Return True if memory has room for a plan.

    A plan on Spark always fits, because its columns may go to the disk and its partitions may be smaller.
    """
    options = draft.options
    if options.memory_limit is None or options.traits.memory != "process":
        return True
    return footprint(options.traits, draft.plan, draft.statistics, options.pricing.layout).least <= options.memory_limit


def choices(draft: Draft) -> tuple[str, ...]:
    """Return the ways in which a plan differs from the usual one, in words."""
    return (*[f"without {draft.without}"] * bool(draft.without), *[EVALUATES_APART] * draft.apart)


RULE = ChoiceRule(
    name="choose_physical",
    apply=choose_plan,
    count=lambda draft: len(choices(draft)),
    where=lambda draft, _: [*draft.options.choices, *choices(draft)],
    idle="the usual plan is estimated to take no more than the others in question",
    of_evaluation=True,
)
