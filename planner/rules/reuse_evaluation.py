"""Count the metrics of the last step's weights in the forward half of the next epoch."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from planner.choices.evaluation import evaluate_beside
from planner.draft import TRAIN, Draft
from planner.nodes import Draw, Node, topological
from planner.physical import Plan
from planner.places import forward_half, names
from planner.rule import DraftRule
from planner.steps.edge_dropout import EdgeDropout
from planner.steps.pipe import PipeStep
from planner.steps.step import Step

OF_PAIRS = "an epoch scores pairs of training, and evaluation ranks all vertices"
OF_BATCHES = "an epoch trains on sampled batches, and its evaluation runs on the whole graph"


def reuse_evaluation(train: Node, evaluate: Node) -> bool:
    """evaluate(w after step t) = forward(w before step t + 1), if both are the same graph. Then one pass does for both.

    The last stage of training then counts the metrics of all splits, and not of the training vertices alone. Only the
    last epoch needs an evaluation of its own. Random numbers in training make the two graphs differ. For such models
    see `planner.choices.evaluation`. An evaluation that draws itself has a pass of its own, because its numbers belong to
    its epoch.

    Args:
        train: The graph of training as it will run.
        evaluate: The graph of evaluation as it will run.

    Returns:
        True if both are the same graph, without random numbers.

    >>> from planner.nodes import Dropout, StaticColumn
    >>> from planner.spec import ValueType
    >>> x = StaticColumn("features", ValueType("vertex", (3,)))
    >>> dropped = Dropout(x, 0.5, key=0)
    >>> reuse_evaluation(x, x), reuse_evaluation(dropped, x), reuse_evaluation(dropped, dropped)
    (True, False, False)
    """
    return train is evaluate and not _draws(evaluate)  # equal graphs are one object


def _draws(root: Node) -> bool:
    return any(isinstance(node, (Draw, EdgeDropout)) for node in topological(root))


# --- the rule --------------------------------------------------------------------------------------------------------


def _apply(draft: Draft) -> Draft:
    if draft.options.sampling is not None:
        return draft.stopped(RULE.name, OF_BATCHES)
    if draft.model.loss.of_pairs:
        return draft.stopped(RULE.name, OF_PAIRS)
    if not reuse_evaluation(draft.train, draft.evaluate):
        return draft
    return replace(draft, may_evaluate_as_well=True)


def _beside(draft: Draft) -> Draft:
    """Add a pass that evaluates beside training, if the graphs differ and the pass is estimated to save time."""
    apart = draft.options.sampling is not None or draft.model.loss.of_pairs
    if draft.evaluates_as_well or _draws(draft.evaluate) or apart:
        return draft
    found = evaluate_beside(draft)
    return replace(draft, plan=found) if isinstance(found, Plan) else draft.stopped(RULE.name, found)


def _where(draft: Draft, _: str) -> list[str]:
    """Return the names of the steps of training that evaluation does not run again.

    These are the whole forward half, or in a pass that trains and evaluates, the steps that evaluation's steps depend on.
    """
    plan = draft.plan
    if not plan.train_and_evaluate:
        return names(forward_half(plan))
    own = frozenset(plan.train)
    trains = [_is_of_training(step, own) for step in plan.train_and_evaluate]
    both = list(zip(plan.train_and_evaluate, trains, strict=True))
    needed = {name for step, is_training in both if not is_training for name in step.reads}
    shared: list[Step] = []
    for step, is_training in reversed(both):
        if is_training and needed.intersection(step.makes):
            shared.append(step)
            needed.update(step.reads)
    return names(shared[::-1]) or ["one pass for both, without common steps"]


def _is_of_training(step: Step, own: Set[Step]) -> bool:
    """Return True if a step of the pass that trains and evaluates belongs to training.

    The step need not be one of `own`, the steps of training, because its stage may have more outputs in this pass.
    """
    return step.stage.startswith(f"{TRAIN}.") if isinstance(step, PipeStep) else step in own


RULE = DraftRule(
    name="reuse_evaluation",
    phase="rewritten",
    apply=_apply,
    later=("physical", _beside),
    count=lambda draft: draft.plan.reuses_evaluation,
    where=_where,
    idle="training and evaluation compute nothing alike",
    in_general_plan=False,
    of_evaluation=True,
)
