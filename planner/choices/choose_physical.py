"""Take the way to run a plan that is estimated to take least time, of those that memory has room for."""

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
"""Of an epoch: what another plan has to spare. Estimates err by about as much, and the usual plan is the better known one."""

EVALUATES_APART = "evaluation in a pass of its own, for training to be pruned"


@dataclass(frozen=True)
class Candidate(Generic[Found]):
    """A way to run a plan: an engine, a number of partitions, or the plan that is made without a rule."""

    what: Found
    cost: float  # estimated seconds, or what these rise with
    fits: bool = True  # in memory


def choose_physical(candidates: Sequence[Candidate[Found]], least_gain: float = 0.0) -> Candidate[Found]:
    """The same numbers from any engine, layout, pass and set of rules: so the one runs that costs least and fits.

    The first candidate is the usual one: it stands unless it does not fit, or another spares more than `least_gain`.

    >>> choose_physical([Candidate("local", 20.0), Candidate("blocks", 9.0)], least_gain=15.0).what
    'local'
    >>> choose_physical([Candidate("usual", 1.0, fits=False), Candidate("4 partitions", 2.0), Candidate("8", 4.0)]).what
    '4 partitions'

    Args:
        candidates: at least one; where none fits, the first is what the caller will refuse.
        least_gain: in the unit of their costs.
    """
    first = candidates[0]
    best = min((one for one in candidates if one.fits), key=lambda one: one.cost, default=first)
    return best if best.fits and (not first.fits or first.cost - best.cost > least_gain) else first


# --- between plans for one engine -------------------------------------------------------------------------------------


def choose_plan(usual: Draft, again: Again, rules: Sequence[Rule]) -> Draft:
    """The plan with all rules that fire, or the one without a doubtful rule, if that is estimated to take less.

    Args:
        usual: the finished plan with all rules.
        again: makes it anew, without a rule or with evaluation apart.
        rules: those that are enabled.
    """
    usual = _in_passes(usual, again)
    fits = _fits(usual)
    doubts = [rule.name for rule in rules if rule.in_doubt is not None and rule.in_doubt(usual, fits)]
    if not doubts:
        return usual
    first = _candidate(usual)
    others = [_candidate(_in_passes(again(rule, False), again)) for rule in doubts]
    found = choose_physical([first, *others], LEAST_GAIN * first.cost)
    return usual if found is first else found.what.stopped(found.what.without, why_without(first, found))


def _in_passes(draft: Draft, again: Again) -> Draft:
    """The plan whose training evaluates as well, or the one where it is pruned: whichever is estimated to take less."""
    plan = draft.plan
    evaluates_whole = plan.reuses_evaluation and not plan.train_and_evaluate
    if not evaluates_whole or plan.levels is None or plan.targets != "train":
        return draft
    return choose_physical([_candidate(draft), _candidate(again(draft.without, True))]).what


def why_without(usual: Candidate[Found], found: Candidate[Found]) -> str:
    """The reason for the plan without a rule, in words, and how to have the usual one."""
    reason = f"an epoch is estimated to take {1 - found.cost / usual.cost:.0%} less without it"
    if not usual.fits:
        reason = "what it holds does not fit in the memory limit"
    return f"{reason}; --disable {RULE.name} has it all the same"


def _candidate(draft: Draft) -> Candidate[Draft]:
    """A plan with whether it fits, and what an epoch costs as on any machine and in any run."""
    return Candidate(draft, draft.seconds(anywhere(draft.options.pricing)), _fits(draft))


def _fits(draft: Draft) -> bool:
    """True if memory has room for a plan. Where it has too little on Spark, columns go to the disk, and partitions are more."""
    options = draft.options
    if options.memory_limit is None or options.traits.memory != "process":
        return True
    return footprint(options.traits, draft.plan, draft.statistics, options.pricing.layout).least <= options.memory_limit


def choices(draft: Draft) -> tuple[str, ...]:
    """The ways in which a plan is not as usual, in words."""
    return (*[f"without {draft.without}"] * bool(draft.without), *[EVALUATES_APART] * draft.apart)


RULE = ChoiceRule(
    name="choose_physical",
    apply=choose_plan,
    count=lambda draft: len(choices(draft)),
    where=lambda draft, _: [*draft.options.choices, *choices(draft)],
    idle="the usual plan is estimated to take no more than the others in question",
    of_evaluation=True,
)
