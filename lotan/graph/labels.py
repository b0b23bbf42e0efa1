"""Statistics of a graph's labels, which determine the task and its loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from lotan.errors import ConfigurationError, GraphError
from lotan.graph.arrays import GraphArrays
from lotan.settings.class_weights import by_class
from planner.loss import LossForm, LossSpec, Task
from planner.spec import SPLITS

ClassWeights = Sequence[float] | Mapping[int, float] | Mapping[str, float] | Literal["balanced"]
"""Class weights as users give them, see `weights_of`."""


MOST_CLASSES = 1 << 24
"""The most classes that labels may have. Numbers beyond it are ids or hashes."""


@dataclass(frozen=True)
class LabelStatistics:
    """Counts of the labelled vertices, and the task that their labels suggest."""

    task: Task  # classification for integers, multilabel for arrays of 0 and 1, regression for other floats
    outputs: int  # number of classes (largest label + 1), or width of the label arrays; 0 without labels
    labelled: tuple[int, ...]  # number of labelled vertices of each split, in the order of planner.spec.SPLITS
    # The texts that stand for classes 0, 1, ...; empty if labels are numbers. They are left out of the printed form, by
    # which checkpoints compare graphs, since the graph's fingerprint has them.
    classes: tuple[str, ...] = field(default=(), repr=False)
    # The number of known entries in the label arrays of the training vertices, and the number of training vertices all
    # entries of which are known. Both are left out of the printed form too.
    entries: int = field(default=0, repr=False)
    complete: int = field(default=0, repr=False)
    # the least class of a vertex, or 0 if there are no classes; left out of the printed form too
    least: int = field(default=0, repr=False)

    def checked(self) -> LabelStatistics:
        """Return these statistics, unless labels are no classes but ids or hashes: a model has an output for each number.

        Raises:
            GraphError: the greatest label is beyond any number of classes.
        """
        if self.task == "classification" and self.outputs > MOST_CLASSES:
            raise GraphError(
                f"vertices.label: classes are numbered up to {self.outputs - 1:,}, and a model has an output for each. Number "
                "the classes from 0, give them as texts, or give numbers to predict as floats."
            )
        return self


@dataclass(frozen=True)
class TrainingWeights:
    """Sums of the weights of training vertices that have a label."""

    total: float
    # for labels that are classes, the sum of each class, from class 0 to the largest that occurs among these vertices
    classes: tuple[float, ...] = ()
    entries: float = 0.0  # for label arrays, the sum over known entries
    complete: float = 0.0  # for label arrays, the sum over vertices all entries of which are known


def training_weights(graph: GraphArrays) -> TrainingWeights:
    """Return the sums of the weights that a graph in memory has."""
    assert graph.vertex_weight is not None, "the vertices have weights"
    rows = has_label(graph) & (graph.split == SPLITS.index("train"))
    weight, label = graph.vertex_weight[rows].astype(np.float64), graph.label[rows]
    total = float(weight.sum())
    if label.ndim == 1:
        return TrainingWeights(total, tuple(np.bincount(label, weight).tolist()))
    known = ~np.isnan(label)
    return TrainingWeights(total, (), float(weight @ known.sum(1)), float(weight[known.all(1)].sum()))


def with_vertex_weights(loss: LossSpec, sums: TrainingWeights) -> LossSpec:
    """Return a loss whose terms are multiplied by the weights of vertices, and divided by what these add up to.

    Raises:
        GraphError: all training vertices have weight 0.
    """
    if loss.task == "classification":
        each = loss.class_weights or (1.0,) * len(sums.classes)
        normalizer = sum(weight * of_class for weight, of_class in zip(sums.classes, each, strict=False)) * loss.terms
    elif loss.task == "multilabel":
        normalizer = sums.entries if loss.terms == loss.outputs else sums.complete * loss.terms
    else:
        normalizer = sums.total * loss.terms
    if not sums.total:
        raise GraphError(
            "vertices.vertex_weight: all training vertices have weight 0. Give some of them a weight above 0, or no weights: "
            "vertex_weight=None."
        )
    return replace(loss, normalizer=float(normalizer), vertex_weights=True)


def label_statistics(graph: GraphArrays) -> LabelStatistics:
    """Count the labels of a graph in memory."""
    known = has_label(graph)
    labelled = tuple(int(np.count_nonzero(known & (graph.split == code))) for code in range(len(SPLITS)))
    if graph.label.ndim == 1:
        greatest = int(graph.label.max(initial=-1))
        least = int(graph.label.min(where=graph.label >= 0, initial=max(0, greatest)))
        return LabelStatistics("classification", greatest + 1, labelled, graph.classes, least=least)
    given = ~np.isnan(graph.label)
    binary = bool(np.isin(graph.label[given], (0, 1)).all())
    of_training = given[graph.split == SPLITS.index("train")]
    return LabelStatistics(
        "multilabel" if binary else "regression",
        graph.label.shape[1],
        labelled,
        entries=int(np.count_nonzero(of_training)),
        complete=int(np.count_nonzero(of_training.all(axis=1))),
    )


def has_label(graph: GraphArrays) -> np.ndarray:
    """Return a mask of the vertices that have a label, bool [vertices]. Of a label array, some entry is known."""
    if graph.label.ndim == 1:
        return np.asarray(graph.label != -1)
    return ~np.asarray(np.isnan(graph.label).all(axis=1))


def class_counts(graph: GraphArrays) -> tuple[int, ...]:
    """Return the number of training vertices of each class, from class 0 to the largest that occurs among them."""
    labels = graph.label[has_label(graph) & (graph.split == SPLITS.index("train"))]
    return tuple(np.bincount(labels).tolist())


def class_notes(labels: LabelStatistics, column: str, outputs: int) -> tuple[str, ...]:
    """Return a note on classes that are numbered from 1, for which a model has been given an output too many.

    Args:
        labels: the labels of the graph.
        column: the user's name of the column of labels.
        outputs: the width of the model's output.

    Example:
        >>> class_notes(LabelStatistics("classification", 4, (5, 2, 2), least=1), "grade", 4)[0][:78]
        'vertices.grade: classes are numbered from 1 to 3, and no vertex has class 0, f'
        >>> class_notes(LabelStatistics("classification", 4, (5, 2, 2), least=0), "grade", 4)
        ()
    """
    if labels.task != "classification" or labels.least != 1 or outputs != labels.outputs or labels.classes:
        return ()
    return (
        f"vertices.{column}: classes are numbered from 1 to {outputs - 1}, and no vertex has class 0, for which the model has an "
        f"output too. Number them from 0, vertices[{column!r}] -= 1 (in Spark: vertices.withColumn({column!r}, "
        f"vertices[{column!r}] - 1)), and make the model with {outputs - 1} outputs.",
    )


def require_training_labels(labels: LabelStatistics) -> None:
    """Raise a GraphError if no training vertex has a label."""
    if labels.labelled[SPLITS.index("train")] == 0:
        raise GraphError(
            "vertices.split: the training set is empty: no vertex with a label is in 'train'. Set split to 'train' "
            "('val', 'test', or null for the others) and name both columns where the graph is made."
        )


def weights_of(
    given: ClassWeights, task: Task, classes: int, counts: Callable[[], Sequence[int]], texts: Sequence[str] = ()
) -> tuple[float, ...]:
    """Return class weights as one number for each class or label.

    Args:
        given: one weight for each class in order, or a mapping from classes to weights, in which missing classes weigh 1.
            Or "balanced", for the inverse of a class's share of the training vertices, as in scikit-learn.
        task: the task.
        classes: the number of classes or labels.
        counts: gives the number of training vertices of each class. It is called for "balanced" only.
        texts: the texts that stand for classes 0, 1, ..., which a mapping may have as keys (default: none).

    Raises:
        ConfigurationError: the weights do not fit the task or the number of classes.
    """
    if task == "regression":
        raise ConfigurationError("class_weights: regression has no classes. Leave class_weights out.")
    if isinstance(given, str):
        return _balanced(task, classes, counts)
    given = by_class(given)
    if isinstance(given, Mapping):
        numbers: dict[int | str, int] = {number: number for number in range(classes)}
        numbers.update(zip(texts, range(classes), strict=False))
        unknown = [key for key in given if key not in numbers]
        if unknown:
            there = f"the classes are {', '.join(texts)}" if texts else f"there are {classes} classes, from 0"
            raise ConfigurationError(f"class_weights has a weight for {unknown[0]!r}, but {there}.")
        named = {numbers[key]: float(weight) for key, weight in given.items()}
        return tuple(named.get(number, 1.0) for number in range(classes))
    weights = tuple(float(weight) for weight in given)
    if len(weights) != classes:
        raise ConfigurationError(
            f"class_weights: {list(weights)}, expected {classes} finite numbers of at least 0, one per output."
        )
    return weights


def _balanced(task: Task, classes: int, counts: Callable[[], Sequence[int]]) -> tuple[float, ...]:
    if task != "classification":
        raise ConfigurationError(
            "class_weights 'balanced' is for classes; for several labels, set pos_weight: "
            "loss='bce_with_logits(pos_weight=[...])'"
        )
    held = [*counts(), *[0] * classes][:classes]
    total, present = sum(held), sum(count > 0 for count in held)
    return tuple(total / (present * count) if count else 1.0 for count in held)


def loss_spec(
    labels: LabelStatistics,
    task: Task,
    outputs: int,
    weights: tuple[float, ...] | None = None,
    counts: Sequence[int] | None = None,
    form: LossForm | None = None,
    metrics: tuple[str, ...] = (),
) -> LossSpec:
    """Return the loss over the training vertices, with torch's reduction="mean".

    Args:
        labels: statistics of the graph's labels.
        task: the task.
        outputs: width of the model's output.
        weights: class weights that were checked, or None.
        counts: for classification with class weights, the number of training vertices of each class; else None.
        form: the loss, if it is not the task's own.
        metrics: further metrics to count for.
    """
    count = labels.labelled[SPLITS.index("train")]
    loss = LossSpec(task, outputs, 1.0, weights, form, metrics)
    if task == "classification":
        weighted = None if counts is None else sum(n * w for n, w in zip(counts, weights or (), strict=False))
        return replace(loss, normalizer=float(count if weighted is None else weighted) * loss.terms)
    if task == "multilabel":
        entries = labels.entries if loss.terms == outputs else labels.complete * loss.terms
        return replace(loss, normalizer=float(entries))
    return replace(loss, normalizer=float(count * loss.terms))
