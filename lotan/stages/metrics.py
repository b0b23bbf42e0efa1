"""The loss, its gradient and metrics over chunks. All of them are computed from sums, so chunks merge by addition.

Statistics are a float64 array [splits, k], one row for each of planner.spec.SPLITS. Its columns are

    classification  loss, weight, vertices, correct, then for each class true positives, predicted, actual
    multilabel      loss, weight, vertices, all labels right, then for each label true positives, predicted, actual
    regression      loss, weight, vertices, absolute errors, then for each target squared errors, values, squared values

and, if a metric needs the order of scores, the counts of `lotan.stages.ranking`. The mean loss is loss / weight. Entries
of a multi-label target that are unknown (NaN) count in nothing. Weights of vertices count in the loss and the weight only.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from lotan.settings.metric_names import FURTHER, METRICS, RANKED
from lotan.stages import ranking
from lotan.stages.losses import loss_terms, terms_gradient
from planner.loss import LossSpec
from planner.physical import Counts
from planner.spec import SPLITS

Sums = NDArray[np.float64]

_SHARED = 4  # columns before those of each class, label or target


def width(loss: LossSpec, counts: Counts = "all") -> int:
    """Return the number of columns of the statistics. Those of training alone have no counts of scores."""
    ranked = ranking.width(loss) if counts == "all" and _ranks(loss) else 0
    return _SHARED + 3 * loss.classes + ranked


def _ranks(loss: LossSpec) -> bool:
    return not RANKED.isdisjoint(loss.metrics)


def loss_gradient(loss: LossSpec, logits: Tensor, label: Tensor, split: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the gradient of the training loss by the logits, float32 [rows, outputs]. It is zero outside the training rows.

    Args:
        loss: The loss, with its task.
        logits: The model's output, float32 [rows, outputs], and behind it what the loss reads beside it.
        label: The labels, int64 [rows] or float32 [rows, outputs].
        split: The split of each row, int8 [rows].
        weight: The weight of each row, float32 [rows]; None: 1.
    """
    rows = _rows_of(0, label, split)
    chosen, target = logits.index_select(0, rows), label.index_select(0, rows)
    gradient = _gradient(loss, chosen, target)
    if weight is not None:
        gradient = gradient.mul_(weight.index_select(0, rows)[:, None])
    return torch.zeros_like(logits).index_copy_(0, rows, gradient)


def _gradient(loss: LossSpec, chosen: Tensor, target: Tensor) -> Tensor:
    """Return the gradient by the outputs of labelled training rows."""
    if loss.form is not None:
        whole = loss.task == "classification"
        return terms_gradient(loss, chosen, target if whole else target.view(len(target), loss.outputs))
    if loss.binary:
        weight = _class_weight(loss, target).div_(loss.normalizer)
        return torch.sigmoid(chosen).sub_(target[:, None]).mul_(weight[:, None])
    match loss.task:
        case "classification":
            weight = _class_weight(loss, target).div_(loss.normalizer)
            part = functional.softmax(chosen, 1)
            part[torch.arange(len(target)), target] -= 1
            return part.mul_(weight[:, None])
        case "multilabel":
            target = target.view_as(chosen)
            part = torch.sigmoid(chosen).sub_(target).mul_(_label_weight(loss) / loss.normalizer)
            return part.masked_fill_(target.isnan(), 0.0)
    return (chosen - target.view_as(chosen)).mul_(2 / loss.normalizer)


def statistics(
    loss: LossSpec,
    logits: Tensor,
    label: Tensor,
    split: Tensor,
    weight: Tensor | None = None,
    counts: Counts = "all",
) -> Sums:
    """Return sums over a chunk's rows, by split. Rows without a split or a label are not counted.

    Args:
        loss: The loss, with its task.
        logits: The model's output, float32 [rows, outputs].
        label: The labels, int64 [rows] or float32 [rows, outputs].
        split: The split of each row, int8 [rows].
        weight: The weight of each row in the loss, float32 [rows]; None: 1.
        counts: The splits that count; "train" leaves the other splits zero.
    """
    sums = np.zeros((len(SPLITS), width(loss, counts)))
    for number in range(1 if counts == "train" else len(SPLITS)):
        rows = _rows_of(number, label, split)
        if rows.numel():
            chosen, target = logits.index_select(0, rows), label.index_select(0, rows)
            found = _sums(loss, chosen, target, None if weight is None else weight.index_select(0, rows))
            sums[number, : len(found)] = found
            if sums.shape[1] > len(found):
                sums[number, len(found) :] = ranking.counts(loss, chosen[:, : loss.outputs], target)
    return sums


def _rows_of(split_number: int, label: Tensor, split: Tensor) -> Tensor:
    """Return the positions of the labelled rows of a split, int64 [chosen]."""
    labelled = label >= 0 if not label.is_floating_point() else ~label.isnan()
    if labelled.dim() > 1:
        labelled = labelled.any(1)
    return (labelled & (split == split_number)).nonzero().view(-1)


def _class_weight(loss: LossSpec, target: Tensor) -> Tensor:
    if loss.class_weights is None:
        return torch.ones(target.numel())
    return torch.tensor(loss.class_weights, dtype=torch.float32).index_select(0, target)


def _label_weight(loss: LossSpec) -> Tensor:
    return torch.tensor(loss.class_weights or [1.0] * loss.outputs, dtype=torch.float32)


def _cuts(loss: LossSpec) -> Tensor:
    """Return the outputs above which labels count as predicted, float32 [1] or [outputs]."""
    return torch.tensor(loss.cuts or [0.0], dtype=torch.float32)


def _sums(loss: LossSpec, rows: Tensor, label: Tensor, of_vertex: Tensor | None) -> Sums:
    """Return the sums over labelled rows, without the counts of scores.

    The weights of vertices count in the first two columns, which are the loss. Other metrics count vertices alike.
    """
    logits = rows[:, : loss.outputs]
    label = label if loss.task == "classification" else label.view_as(logits)
    terms = None if loss.form is None else loss_terms(loss, rows, label)
    match loss.task:
        case "classification":
            return _classification(loss, logits, label, of_vertex, terms)
        case "multilabel":
            return _multilabel(loss, logits, label, of_vertex, terms)
    return _regression(loss, logits, label, of_vertex, terms)


def _of_vertices(terms: Tensor, of_vertex: Tensor | None) -> Tensor:
    """Return the terms of rows, [rows] or [rows, k], times the weights of the rows, in float64."""
    terms = terms.double()
    return terms if of_vertex is None else terms * of_vertex.double().view(-1, *[1] * (terms.dim() - 1))


def _classification(
    loss: LossSpec, logits: Tensor, label: Tensor, of_vertex: Tensor | None, terms: Tensor | None
) -> Sums:
    weight = _class_weight(loss, label)
    if terms is None and loss.binary:
        target = label.to(logits.dtype)
        terms = functional.binary_cross_entropy_with_logits(logits[:, 0], target, weight, reduction="none")
    elif terms is None:
        terms = functional.cross_entropy(logits, label, reduction="none") * weight
    guess = (logits[:, 0] > _cuts(loss)).long() if loss.binary else logits.argmax(1)
    hits = guess[guess == label]
    weights = _of_vertices(weight, of_vertex).sum() * loss.terms
    shared: list[Tensor | int] = [_of_vertices(terms, of_vertex).sum(), weights, label.numel(), hits.numel()]
    counts = [torch.bincount(classes, minlength=loss.classes) for classes in (hits, guess, label)]
    return np.concatenate([np.array([float(x) for x in shared]), *(c.numpy().astype(np.float64) for c in counts)])


def _multilabel(loss: LossSpec, logits: Tensor, label: Tensor, of_vertex: Tensor | None, terms: Tensor | None) -> Sums:
    known = ~label.isnan()
    if terms is None:
        weight = _label_weight(loss)
        entries = functional.binary_cross_entropy_with_logits(logits, label.nan_to_num(), weight, reduction="none")
        terms = torch.where(known, entries, 0.0)
    counted = known.sum(1) if loss.terms == loss.outputs else known.all(1) * loss.terms
    count = _of_vertices(counted, of_vertex).sum()
    guess, actual = (logits > _cuts(loss)) & known, label > 0.5
    hits = guess & actual
    exact = (guess == actual).all(1)
    shared = [float(x) for x in (_of_vertices(terms, of_vertex).sum(), count, label.shape[0], exact.sum())]
    return np.concatenate([np.array(shared), *(of_all.double().sum(0).numpy() for of_all in (hits, guess, actual))])


def _regression(
    loss: LossSpec, prediction: Tensor, label: Tensor, of_vertex: Tensor | None, terms: Tensor | None
) -> Sums:
    values = label.double()
    errors = prediction.double() - values
    squares = errors.square().sum(0)
    terms = errors.square() if terms is None else terms
    counted = torch.full((label.shape[0],), loss.terms)
    weights = _of_vertices(counted, of_vertex).sum()
    total = _of_vertices(terms, of_vertex).sum()
    shared = [float(total), float(weights), label.shape[0], float(errors.abs().sum())]
    return np.concatenate([np.array(shared), squares.numpy(), values.sum(0).numpy(), values.square().sum(0).numpy()])


_OF_PAIRS = ("loss", "terms", "links", *METRICS["link"], *FURTHER["link"])
"""The columns of the statistics of a link task. Metrics are multiplied by the number of links, so that they add up."""


def statistics_of_pairs(loss: float, terms: int) -> Sums:
    """Return the statistics of a training pass over pairs, [splits, columns].

    Args:
        loss: The sum of the terms of the loss.
        terms: Their number.
    """
    sums = np.zeros((len(SPLITS), len(_OF_PAIRS)))
    sums[0, :2] = loss, terms
    return sums


def statistics_of_links(split: str, links: int, found: Mapping[str, float]) -> Sums:
    """Return the statistics of the links of a split, [splits, columns].

    Args:
        split: The name of the split.
        links: The number of its links.
        found: The metrics by name. NaN stands for those that are not there.
    """
    sums = np.zeros((len(SPLITS), len(_OF_PAIRS)))
    values = [found.get(name, np.nan) for name in _OF_PAIRS[3:]] if links else []
    sums[SPLITS.index(split), 2 : 3 + len(values)] = links, *(links * value for value in values)
    return sums


def _of_links(sums: Sums) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for name, (loss, terms, links, *values) in zip(SPLITS, sums, strict=True):
        if terms or links:
            found[name] = {"loss": float(loss / terms)} if terms else {}
        if links:
            named = zip(_OF_PAIRS[3:], values, strict=True)
            found[name] |= {metric: float(value / links) for metric, value in named if not np.isnan(value)}
    return found


def metrics(loss: LossSpec, sums: Sums) -> dict[str, dict[str, float]]:
    """Return the metrics of each split that has a labelled row, by split and name.

    Their names are "loss" and, for each task:

    - classification: "accuracy" and "macro_f1"
    - multilabel: "accuracy" (the share of vertices with all known labels right), "micro_f1" and "macro_f1"
    - regression: "mse", "mae" and "r2"

    and those of `loss.metrics`, if the sums have what they need: see `lotan.settings.metric_names`.
    """
    if loss.of_pairs:
        return _of_links(sums)
    names = {name: row for name, row in zip(SPLITS, sums, strict=True) if row[2] > 0}
    return {name: {"loss": float(row[0] / row[1]), **_scores(loss, row)} for name, row in names.items()}


def _scores(loss: LossSpec, row: Sums) -> Mapping[str, float]:
    own, ranked = np.split(row, [width(loss, "train")])
    parts = own[_SHARED:].reshape(3, loss.classes)
    if loss.task == "regression":
        return _regression_scores(own, *parts)
    hits, guesses, actual = parts
    shared = {"accuracy": float(own[3] / own[2]), "macro_f1": _macro_f1(hits, guesses + actual)}
    if loss.task == "multilabel":
        micro = float(2 * hits.sum() / max(guesses.sum() + actual.sum(), 1))
        shared = {"accuracy": shared["accuracy"], "micro_f1": micro, "macro_f1": shared["macro_f1"]}
    of_class = _f1(hits, guesses + actual) if "f1" in loss.metrics else ()
    of_classes = {f"f1_{number}": float(score) for number, score in enumerate(of_class)}
    return {**shared, **(ranking.scores(loss, ranked) if len(ranked) else {}), **of_classes}


def _regression_scores(own: Sums, squares: Sums, values: Sums, value_squares: Sums) -> Mapping[str, float]:
    spread = value_squares - values**2 / own[2]
    count = own[2] * len(squares)
    return {"mse": float(squares.sum() / count), "mae": float(own[3] / count), "r2": _r2(squares, spread)}


def _f1(hits: Sums, total: Sums) -> Sums:
    """Return the F1 of each class, 0 for one that is neither label nor prediction."""
    return np.asarray(2 * hits / np.maximum(total, 1))


def _macro_f1(hits: Sums, total: Sums) -> float:
    """Return the mean F1 over the classes that occur, as label or as prediction."""
    seen = total > 0
    return float(np.mean(2 * hits[seen] / total[seen]))


def _r2(squares: Sums, spread: Sums) -> float:
    """Return the mean over targets of the explained share of the variance. A constant target counts 1 if it is met, else 0."""
    constant = spread <= 0
    scores = 1 - squares / np.where(constant, 1, spread)
    return float(np.mean(np.where(constant, squares == 0, scores)))
