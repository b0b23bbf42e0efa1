"""Rule: the evaluation after a step is the forward half of the next epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.nodes import Node
from planner.physical import Stage


def reuse_evaluation(train: Node, evaluate: Node, stages: Sequence[Stage]) -> tuple[Stage, ...] | None:
    """evaluate(w after step t) = forward(w before step t + 1), where both are the same graph: one pass does for both.

    So the last stage of training counts the metrics of all splits, not of the training vertices alone, and only the last
    epoch needs an evaluation of its own. Random numbers in training make the two graphs differ, and nothing is shared
    then, not even what stands before the first of them.

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
