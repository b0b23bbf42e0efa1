"""The choice between one pass that trains and evaluates and two passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.beside import Beside, each_beside
from planner.cost.seconds import Pricing, pass_seconds
from planner.draft import Draft
from planner.physical import Plan
from planner.steps.step import Step

NOTHING_ALIKE = "training computes nothing that evaluation does"
PRUNED_APART = (
    "training by itself computes few vertices; both apart are estimated to take less than one pass on all of them"
)


def anywhere(pricing: Pricing) -> Pricing:
    """Return the pricing of an engine without anything learnt from this machine or from earlier runs.

    Choices then are the same everywhere. This matters because the last digits of a result depend on them.
    """
    return Pricing(pricing.traits)


def evaluate_beside(draft: Draft) -> Plan | str:
    """Return the plan with a pass that trains and evaluates, or the reason, in words, why it would take more time."""
    statistics = draft.statistics
    # A plan with `apart` is compared with another one, so this choice too has to be the same everywhere.
    pricing = anywhere(draft.options.pricing) if draft.apart else draft.options.pricing
    own = pricing.rates.passes * pricing.corrections.fixed  # seconds of a pass besides its steps

    def seconds(plan: Plan, steps: Sequence[Step]) -> float:
        return pass_seconds(plan, steps, statistics, pricing).seconds - own if steps else 0.0

    found = beside_training(draft.plan, seconds, 0.0 if pricing.traits.in_process else own)
    return PRUNED_APART if draft.apart and isinstance(found, str) else found


def beside_training(plan: Plan, seconds: Callable[[Plan, Sequence[Step]], float], job: float = 0.0) -> Plan | str:
    """Add a pass that trains and evaluates, if it is estimated to take less time than two passes.

    Training draws random numbers and evaluation does not. All values before the first random number are the same in both,
    and the combined pass computes them once. A stage of training may output such a value for evaluation, even if training
    itself needs no column of it. On Spark the pass may save time even if no value is the same, because a pass is a job.

    Args:
        plan: The plan, complete but for that pass.
        seconds: A function that estimates the seconds of steps of a plan, without the fixed part of a pass.
        job: The seconds of that fixed part, for a job on Spark; 0 in one process.

    Returns:
        The plan with the pass, or the reason, in words, why it would take more time.
    """

    def spares(found: Beside) -> float:
        return seconds(plan, found.spared) - seconds(found.plan, found.instead)

    found = max(each_beside(plan), key=spares)
    spared = spares(found) + job
    if spared > 0:
        return found.plan
    return (
        f"one pass for both is estimated to take {abs(1e3 * spared):.2g} ms more than two"
        if found.spared
        else NOTHING_ALIKE
    )
