"""Statistics of a graph's labels, which determine the task and its loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lotan.errors import ConfigurationError, GraphError
from lotan.graph.arrays import GraphArrays
from planner.spec import SPLITS, LossSpec, Task


@dataclass(frozen=True)
class LabelStatistics:
    """Counts of the labelled vertices, and the task that their labels suggest."""

    task: Task  # classification for integers, multilabel for arrays of 0 and 1, regression for other floats
    outputs: int  # number of classes (largest label + 1), or width of the label arrays; 0 without labels
    labelled: tuple[int, ...]  # number of labelled vertices of each split, in the order of planner.spec.SPLITS
    # The texts that stand for classes 0, 1, ...; empty if labels are numbers. They are left out of the printed form, by
    # which checkpoints compare graphs, since the graph's fingerprint has them.
    classes: tuple[str, ...] = field(default=(), repr=False)


def label_statistics(graph: GraphArrays) -> LabelStatistics:
    """Count the labels of a graph in memory."""
    known = has_label(graph)
    labelled = tuple(int(np.count_nonzero(known & (graph.split == code))) for code in range(len(SPLITS)))
    if graph.label.ndim == 1:
        return LabelStatistics("classification", int(graph.label.max(initial=-1)) + 1, labelled, graph.classes)
    binary = bool(np.isin(graph.label[known], (0, 1)).all())
    return LabelStatistics("multilabel" if binary else "regression", graph.label.shape[1], labelled)


def has_label(graph: GraphArrays) -> np.ndarray:
    """Return a mask of the vertices that have a label, bool [vertices]."""
    if graph.label.ndim == 1:
        return np.asarray(graph.label != -1)
    return ~np.asarray(np.isnan(graph.label).any(axis=1))


def training_weight(graph: GraphArrays, weights: Sequence[float]) -> float:
    """Return the sum of the class weights of the labelled training vertices."""
    labels = graph.label[has_label(graph) & (graph.split == SPLITS.index("train"))]
    return float(np.asarray(weights, dtype=np.float64)[labels].sum())


def require_training_labels(labels: LabelStatistics) -> None:
    """Raise a GraphError if no training vertex has a label."""
    if labels.labelled[SPLITS.index("train")] == 0:
        raise GraphError(
            "vertices.split: the training set is empty: no vertex with a label is in 'train'. Set split to 'train' "
            "('val', 'test', or null for the others) and name both columns where the graph is made."
        )


def check_class_weights(task: Task, outputs: int, class_weights: Sequence[float]) -> tuple[float, ...]:
    """Return the class weights as floats.

    Raises:
        ConfigurationError: the weights do not fit the task or the number of outputs.
    """
    weights = tuple(float(weight) for weight in class_weights)
    if task == "regression":
        raise ConfigurationError("class_weights: regression has no classes. Leave class_weights out.")
    if len(weights) != outputs or not all(0 <= weight < float("inf") for weight in weights):
        raise ConfigurationError(
            f"class_weights: {list(weights)}, expected {outputs} finite numbers of at least 0, one per output."
        )
    return weights


def loss_spec(
    labels: LabelStatistics, task: Task, outputs: int, weights: tuple[float, ...] | None, weight_sum: float | None
) -> LossSpec:
    """Return the loss over the training vertices, with torch's reduction="mean".

    Args:
        labels: statistics of the graph's labels.
        task: the task.
        outputs: width of the model's output.
        weights: class weights that were checked, or None.
        weight_sum: for classification with class weights, their sum over the training vertices; else None.
    """
    count = labels.labelled[SPLITS.index("train")]
    if task == "classification":
        return LossSpec(task, outputs, float(count if weight_sum is None else weight_sum), weights)
    return LossSpec(task, outputs, float(count * outputs), weights)
