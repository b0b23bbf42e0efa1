"""The choice between one pass that trains and evaluates and two passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.beside import Beside, each_beside
from planner.cost import Pricing, pass_seconds
from planner.draft import Draft
from planner.physical import Plan
from planner.steps.step import Step

NOTHING_ALIKE = "training computes nothing that evaluation does"
PRUNED_APART = (
    "training by itself computes few vertices; both apart are estimated to take less than one pass on all of them"
)


def anywhere(pricing: Pricing) -> Pricing:
    """The pricing that is the same on any machine and in any run: a result's last digits depend on what is chosen."""
    return Pricing(pricing.traits)


def evaluate_beside(draft: Draft) -> Plan | str:
    """The plan with a pass that trains and evaluates, where that is estimated to pay; else what speaks against it."""
    statistics = draft.statistics
    # What is compared with another plan is the same anywhere, too.
    pricing = anywhere(draft.options.pricing) if draft.apart else draft.options.pricing
    own = pricing.rates.passes * pricing.corrections.fixed  # of a pass, whatever its steps

    def seconds(plan: Plan, steps: Sequence[Step]) -> float:
        return pass_seconds(plan, steps, statistics, pricing).seconds - own if steps else 0.0

    found = beside_training(draft.plan, seconds, 0.0 if pricing.traits.in_process else own)
    return PRUNED_APART if draft.apart and isinstance(found, str) else found


def beside_training(plan: Plan, seconds: Callable[[Plan, Sequence[Step]], float], job: float = 0.0) -> Plan | str:
    """Evaluate in the pass that trains, where training draws random numbers: what stands before the first is made once.

    A pass of training that is to evaluate as well makes that once, and then the rest of both, if that is estimated to pay.
    On Spark it may pay also where nothing is alike, for a pass is a job. Where a stage of training computes what is alike on
    the way to something else, it may put it out for evaluation.

    Args:
        plan: complete, but for that pass.
        seconds: what steps of a plan are estimated to take, but for what a pass takes by itself.
        job: seconds of that, as of a job on Spark; 0 in one process.

    Returns:
        The plan with the pass; where it spares too little, what speaks against it.
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
