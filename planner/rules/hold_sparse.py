"""Multiply only the features that are not zero."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from planner.draft import Draft
from planner.estimate import SPARSE_TIMES
from planner.linear_maps import LINEAR
from planner.physical import Plan, Stage, StageInput
from planner.places import stages_of
from planner.rule import DraftRule
from planner.spec import Ability, Ref
from planner.statistics import Statistics

FEATURES = "features"
BY_AUTOGRAD = (
    "autograd runs the stages that multiply the features, and has all numbers of a row; kernels alone skip zeros"
)
UNABLE = "this engine gives stages all numbers of a row"
HOISTED = "stages read what hoist_invariant holds in place of the features, which is not sparse"


def hold_sparse(plan: Plan) -> Plan:
    """x W = the sum of x_k W_k over the x_k that are not zero, so a linear map of the features can skip the zeros.

    In bags of words, some ten numbers among thousands are not zero. The sums differ only in the order of their terms.
    """
    return replace(plan, stages=tuple(map(_held, plan.stages)))


def declined(
    plan: Plan, statistics: Statistics, abilities: Collection[Ability], hoisted: Collection[str] = ()
) -> str | None:
    """Return the reason why the features are not held sparse, or None.

    There is a reason only if stages multiply the features, or a hoisted column.

    Args:
        plan: The plan without the steps that run once.
        statistics: The statistics of the graph.
        abilities: The abilities of the engine.
        hoisted: The names of the columns that the steps that run once make.
    """
    multiplied = {i.column for stage in plan.stages for i in stage.inputs if _is_multiplied(i, stage)}
    if multiplied.isdisjoint([FEATURES, *hoisted]):
        return None
    if "sparse_rows" not in abilities:
        return UNABLE
    if statistics.profile is None:
        return "nobody has counted how many of the features are zero"
    if not pays_sparse(statistics):
        return f"{statistics.density:.1%} of the features are not zero; it pays below {1 / SPARSE_TIMES:.1%}"
    if FEATURES not in multiplied:
        return HOISTED
    return None if any(_could_be(i, stage) for stage in plan.stages for i in stage.inputs) else BY_AUTOGRAD


def pays_sparse(statistics: Statistics) -> bool:
    """Return True if so few features are not zero that sparse products take less time than dense ones."""
    return statistics.density <= 1 / SPARSE_TIMES


def _held(stage: Stage) -> Stage:
    return replace(stage, inputs=tuple(replace(i, sparse=True) if _could_be(i, stage) else i for i in stage.inputs))


def _could_be(i: StageInput, stage: Stage) -> bool:
    """Return True if an input is the features, and only linear maps with kernels read it.

    If autograd runs the stage, it needs all numbers of a row.
    """
    return i.column == FEATURES and _is_multiplied(i, stage) and not stage.run_by_autograd


def _is_multiplied(i: StageInput, stage: Stage) -> bool:
    """Return True if only linear maps read an input, and the stage neither reads edges nor hands the input on."""
    if i.role != "vertex" or stage.edge_sets or any(i.value == o.value for o in stage.outputs):
        return False
    readers = stage.readers.get(i.value, ())
    return bool(readers) and all(
        call.op == LINEAR and call.arguments[0] == Ref(i.value) and len(call.reads) == len(set(call.reads))
        for call in readers
    )


# --- the rule --------------------------------------------------------------------------------------------------------


def _apply(draft: Draft) -> Draft:
    hoisted = [column.name for column in draft.held.values()]
    reason = declined(draft.plan, draft.statistics, draft.options.traits.abilities, hoisted)
    return replace(draft, plan=hold_sparse(draft.plan)) if reason is None else draft.stopped(RULE.name, reason)


def _count(draft: Draft) -> int:
    """Return the number of inputs that are held sparse.

    Stages that only a pass with both training and evaluation runs do not count.
    """
    stages = {stage.name for stage in (*draft.epoch.stages, *draft.inference.stages)}
    return sum(i.sparse for stage in draft.plan.stages if stage.name in stages for i in stage.inputs)


def _where(draft: Draft, _: str) -> list[str]:
    """Return the names of the stages of training and evaluation that read the features sparse."""
    plan = draft.plan
    return [one.name for one in stages_of(plan, (*plan.train, *plan.evaluate)) if any(i.sparse for i in one.inputs)]


RULE = DraftRule(
    name="hold_sparse",
    phase="plan",
    apply=_apply,
    count=_count,
    where=_where,
    idle="no stage reads the features for linear maps alone",
    in_general_plan=False,
)
