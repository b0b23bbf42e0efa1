"""Rule: the evaluation after a step is the forward half of the next epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from planner.beside import Beside, each_beside
from planner.nodes import Node
from planner.physical import Plan, Stage
from planner.steps.step import Step

NOTHING_ALIKE = "training computes nothing that evaluation does"
PRUNED_APART = (
    "training by itself computes few vertices; both apart are estimated to take less than one pass on all of them"
)


def reuse_evaluation(train: Node, evaluate: Node, stages: Sequence[Stage]) -> tuple[Stage, ...] | None:
    """evaluate(w after step t) = forward(w before step t + 1), where both are the same graph: one pass does for both.

    So the last stage of training counts the metrics of all splits, not of the training vertices alone, and only the last
    epoch needs an evaluation of its own. Random numbers in training make the two graphs differ: see `beside_training`.

    Args:
        train: the graph of training as it will run.
        evaluate: that of evaluation.
        stages: of training, the last one with the loss.

    Returns:
        The stages with metrics of all splits; None where the graphs differ.

    >>> from planner.nodes import Dropout, StaticColumn
    >>> from planner.spec import LossSpec, ValueType
    >>> x = StaticColumn("features", ValueType("vertex", (3,)))
    >>> last = Stage("train.0", (), (), (), (), LossSpec("classification", 3, 10.0))
    >>> reuse_evaluation(x, x, [last])[-1].counts
    'all'
    >>> reuse_evaluation(Dropout(x, 0.5, key=0), x, [last]) is None
    True
    """
    if train is not evaluate:  # equal graphs are one object
        return None
    *others, last = stages
    return (*others, replace(last, counts="all"))


def beside_training(plan: Plan, seconds: Callable[[Plan, Sequence[Step]], float], job: float = 0.0) -> Plan | str:
    """The same identity where training draws random numbers: both passes compute alike what stands before the first.

    So a pass of training that is to evaluate as well makes that once, and then the rest of both, if that is estimated to pay:
    on Spark also where nothing is alike, for a pass is a job. Where a stage of training computes what is alike on the way to
    something else, it may put it out for evaluation.

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
