"""The loss, its gradient and metrics over chunks. All of them are computed from sums, so chunks merge by addition.

Statistics are a float64 array [splits, k], one row for each of planner.spec.SPLITS. Its columns are

    classification  loss, weight, vertices, correct, then for each class true positives, predicted, actual
    multilabel      loss, weight, vertices, all labels right, true positives, predicted, actual
    regression      loss, weight, vertices, absolute errors, then for each target squared errors, values, squared values

The mean loss is loss / weight.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from planner.physical import Counts
from planner.spec import SPLITS, LossSpec, Task

Sums = NDArray[np.float64]

METRICS: Mapping[Task, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1"),
    "multilabel": ("micro_f1", "accuracy"),
    "regression": ("mse", "mae", "r2"),
}
"""The metrics of each task beside "loss". Epochs are compared by the first one unless another is chosen."""

_SHARED = 4  # columns before those of each class or target


def width(loss: LossSpec) -> int:
    """Return the number of columns of the statistics."""
    return _SHARED + (3 if loss.task == "multilabel" else 3 * loss.outputs)


def loss_gradient(loss: LossSpec, logits: Tensor, label: Tensor, split: Tensor) -> Tensor:
    """Return the gradient of the training loss by the logits, float32 [rows, outputs]. It is zero outside the training rows."""
    rows = _rows_of(0, label, split)
    chosen, target = logits.index_select(0, rows), label.index_select(0, rows)
    match loss.task:
        case "classification":
            weight = _class_weight(loss, target).div_(loss.normalizer)
            part = functional.softmax(chosen, 1)
            part[torch.arange(rows.numel()), target] -= 1
            part *= weight[:, None]
        case "multilabel":
            part = torch.sigmoid(chosen).sub_(target).mul_(_label_weight(loss) / loss.normalizer)
        case "regression":
            part = (chosen - target.view_as(chosen)).mul_(2 / loss.normalizer)
    return torch.zeros_like(logits).index_copy_(0, rows, part)


def statistics(loss: LossSpec, logits: Tensor, label: Tensor, split: Tensor, counts: Counts = "all") -> Sums:
    """Return sums over a chunk's rows, by split. Rows without a split or a label are not counted.

    Args:
        loss: The loss, with its task.
        logits: The model's output, float32 [rows, outputs].
        label: The labels, int64 [rows] or float32 [rows, outputs].
        split: The split of each row, int8 [rows].
        counts: The splits that count; "train" leaves the other splits zero.
    """
    sums = np.zeros((len(SPLITS), width(loss)))
    for number in range(1 if counts == "train" else len(SPLITS)):
        rows = _rows_of(number, label, split)
        if rows.numel():
            sums[number] = _sums(loss, logits.index_select(0, rows), label.index_select(0, rows))
    return sums


def _rows_of(split_number: int, label: Tensor, split: Tensor) -> Tensor:
    """Return the positions of the labelled rows of a split, int64 [chosen]."""
    labelled = label >= 0 if not label.is_floating_point() else ~label.isnan()
    if labelled.dim() > 1:
        labelled = labelled.all(1)
    return (labelled & (split == split_number)).nonzero().view(-1)


def _class_weight(loss: LossSpec, target: Tensor) -> Tensor:
    if loss.class_weights is None:
        return torch.ones(target.numel())
    return torch.tensor(loss.class_weights, dtype=torch.float32).index_select(0, target)


def _label_weight(loss: LossSpec) -> Tensor:
    return torch.tensor(loss.class_weights or [1.0] * loss.outputs, dtype=torch.float32)


def _sums(loss: LossSpec, logits: Tensor, label: Tensor) -> Sums:
    match loss.task:
        case "classification":
            return _classification(loss, logits, label)
        case "multilabel":
            return _multilabel(loss, logits, label)
    return _regression(logits, label.view_as(logits))


def _classification(loss: LossSpec, logits: Tensor, label: Tensor) -> Sums:
    weight = _class_weight(loss, label)
    terms = functional.cross_entropy(logits, label, reduction="none") * weight
    guess = logits.argmax(1)
    hits = guess[guess == label]
    shared: list[Tensor | int] = [terms.double().sum(), weight.double().sum(), label.numel(), hits.numel()]
    counts = [torch.bincount(classes, minlength=loss.outputs) for classes in (hits, guess, label)]
    return np.concatenate([np.array([float(x) for x in shared]), *(c.numpy().astype(np.float64) for c in counts)])


def _multilabel(loss: LossSpec, logits: Tensor, label: Tensor) -> Sums:
    terms = functional.binary_cross_entropy_with_logits(logits, label, _label_weight(loss), reduction="none")
    guess, actual = logits > 0, label > 0.5
    hits = guess & actual
    exact = (guess == actual).all(1)
    counts: list[Tensor | int] = [label.numel(), label.shape[0], exact.sum(), hits.sum(), guess.sum(), actual.sum()]
    return np.array([float(x) for x in (terms.double().sum(), *counts)])


def _regression(prediction: Tensor, label: Tensor) -> Sums:
    values = label.double()
    errors = prediction.double() - values
    squares = errors.square().sum(0)
    shared = [float(squares.sum()), label.numel(), label.shape[0], float(errors.abs().sum())]
    return np.concatenate([np.array(shared), squares.numpy(), values.sum(0).numpy(), values.square().sum(0).numpy()])


def metrics(loss: LossSpec, sums: Sums) -> dict[str, dict[str, float]]:
    """Return the metrics of each split that has a labelled row, by split and name.

    Their names are "loss" and, for each task:

    - classification: "accuracy" and "macro_f1"
    - multilabel: "accuracy" (the share of vertices with all labels right) and "micro_f1"
    - regression: "mse", "mae" and "r2"
    """
    names = {name: row for name, row in zip(SPLITS, sums, strict=True) if row[2] > 0}
    return {name: {"loss": float(row[0] / row[1]), **_scores(loss, row)} for name, row in names.items()}


def _scores(loss: LossSpec, row: Sums) -> Mapping[str, float]:
    match loss.task:
        case "classification":
            hits, guesses, actual = row[_SHARED:].reshape(3, loss.outputs)
            return {"accuracy": float(row[3] / row[2]), "macro_f1": _macro_f1(hits, guesses + actual)}
        case "multilabel":
            hits, guesses, actual = row[_SHARED:]
            return {"accuracy": float(row[3] / row[2]), "micro_f1": float(2 * hits / max(guesses + actual, 1))}
    squares, values, value_squares = row[_SHARED:].reshape(3, loss.outputs)
    spread = value_squares - values**2 / row[2]
    return {"mse": float(row[0] / row[1]), "mae": float(row[3] / row[1]), "r2": _r2(squares, spread)}


def _macro_f1(hits: Sums, total: Sums) -> float:
    """Return the mean F1 over the classes that occur, as label or as prediction."""
    seen = total > 0
    return float(np.mean(2 * hits[seen] / total[seen]))


def _r2(squares: Sums, spread: Sums) -> float:
    """Return the mean over targets of the explained share of the variance. A constant target counts 1 if it is met, else 0."""
    constant = spread <= 0
    scores = 1 - squares / np.where(constant, 1, spread)
    return float(np.mean(np.where(constant, squares == 0, scores)))
