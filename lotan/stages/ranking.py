"""Metrics that depend on the order of scores, from counts of bounded size: the area under the ROC curve and average precision.

An exact order needs all scores in one place, which grows with the graph. Here each chunk counts its scores in bins with
fixed bounds, apart for rows of the class and for others, and counts add up. Every result is the exact one for scores that
are rounded to their bin: it does not depend on chunks or partitions. A pair of rows in one bin counts one half, as a tie
does, so the area is off by at most half the share of such pairs. It is reported as "roc_auc_error".

A score is the logarithm of the odds of a class against the others. The bins of its magnitude are 1/128 of an octave
wide, from 2^-12 to 2^6. Smaller magnitudes share one bin, and larger ones have the outermost.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from planner.loss import LossSpec

Sums = NDArray[np.float64]

LOWEST, HIGHEST, PER_OCTAVE = -12, 6, 128
HALF = (HIGHEST - LOWEST) * PER_OCTAVE
BINS = 2 * HALF + 1
"""The number of bins: those of negative scores, the one around 0, those of positive scores."""


def width(loss: LossSpec) -> int:
    """Return the number of counts: for each ranked class, the others and its own rows in each bin."""
    return ranked_classes(loss) * 2 * BINS


def ranked_classes(loss: LossSpec) -> int:
    """Return the number of classes whose scores are ranked. Of two classes, it is the second one alone."""
    return 1 if loss.task == "classification" and loss.classes == 2 else loss.classes


def bins_of(scores: Tensor) -> Tensor:
    """Return the bin of each score, int64 of the same shape. The bins are in the order of the scores."""
    magnitude = scores.double().abs()
    octaves = (torch.log2(magnitude.clamp(2.0**LOWEST, 2.0**HIGHEST)) - LOWEST) * PER_OCTAVE
    place = octaves.floor().long().clamp_(max=HALF - 1) + 1
    place = torch.where(magnitude < 2.0**LOWEST, 0, place)
    return HALF + torch.where(scores < 0, -place, place)


def log_odds(loss: LossSpec, logits: Tensor) -> Tensor:
    """Return the score of each ranked class, float64 [rows, ranked classes]."""
    logits = logits.double()
    if loss.binary or loss.task == "multilabel":
        return logits
    if loss.classes == 2:
        return logits[:, 1:] - logits[:, :1]
    above = logits - logits.amax(1, keepdim=True)
    shares = above.exp()
    top = above.argmax(1, keepdim=True)
    others = shares.scatter(1, top, 0.0).sum(1, keepdim=True)  # of the likeliest class; exact where all are small
    rest = (others + 1 - shares).scatter(1, top, others)
    return above - rest.log()


def counts(loss: LossSpec, logits: Tensor, label: Tensor) -> Sums:
    """Return the counts of labelled rows, [width]. Unknown entries of several labels are not counted.

    Args:
        loss: The loss, with its task.
        logits: The model's output, float32 [rows, outputs].
        label: The labels, int64 [rows] or float32 [rows, outputs].
    """
    bins, classes = bins_of(log_odds(loss, logits)), ranked_classes(loss)
    if loss.task == "multilabel":
        label = label.view_as(logits)
        known, own = ~label.isnan(), label > 0.5
    else:
        of_class = torch.ones(1, dtype=torch.int64) if classes == 1 else torch.arange(classes)
        own = label[:, None] == of_class
        known = torch.ones_like(own)
    place = (torch.arange(classes) * 2 + own.long()) * BINS + bins
    found: Sums = torch.bincount(place[known], minlength=width(loss)).numpy().astype(np.float64)
    return found


def scores(loss: LossSpec, sums: Sums) -> dict[str, float]:
    """Return the metrics that were asked for, as means over the classes that have rows of both kinds; NaN if none has."""
    classes = [(own, others) for others, own in sums.reshape(-1, 2, BINS) if own.any() and others.any()]
    found = {}
    if "roc_auc" in loss.metrics:
        found["roc_auc"] = _mean([area(own, others) for own, others in classes])
        found["roc_auc_error"] = _mean([ties(own, others) / 2 for own, others in classes])
    if "average_precision" in loss.metrics:
        found["average_precision"] = _mean([precision(own, others) for own, others in classes])
    return found


def area(own: Sums, others: Sums) -> float:
    """Return the share of pairs of a row of the class and another one in which the former has the higher score.

    Args:
        own: The number of rows of the class in each bin, [BINS].
        others: The number of other rows in each bin, [BINS].
    """
    below = np.cumsum(others) - others
    return float((own * (below + others / 2)).sum() / (own.sum() * others.sum()))


def ties(own: Sums, others: Sums) -> float:
    """Return the share of such pairs that are in one bin."""
    return float((own * others).sum() / (own.sum() * others.sum()))


def precision(own: Sums, others: Sums) -> float:
    """Return the average precision: the precision at each bin from above, weighted by the rows of the class in it."""
    found, all_above = np.cumsum(own[::-1]), np.cumsum((own + others)[::-1])
    return float((own[::-1] * found / np.maximum(all_above, 1)).sum() / own.sum())


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
