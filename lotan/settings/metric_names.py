"""The names of the metrics of each task, and the direction in which each is better."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lotan.arguments import described
from lotan.errors import ConfigurationError
from planner.loss import Task

METRICS: Mapping[Task, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1"),
    "multilabel": ("micro_f1", "accuracy", "macro_f1"),
    "regression": ("mse", "mae", "r2"),
    "link": ("mrr", "hits@1", "hits@3", "hits@10", "raw_mrr", "raw_hits@1", "raw_hits@3", "raw_hits@10"),
}
"""The metrics of each task beside "loss". Epochs are compared by the first one unless another is chosen."""

FURTHER: Mapping[Task, tuple[str, ...]] = {
    "classification": ("roc_auc", "average_precision", "f1"),
    "multilabel": ("roc_auc", "average_precision", "f1"),
    "regression": (),
    "link": ("auc",),
}
"""The metrics that are computed if they are asked for. "f1" stands for the F1 of each class: f1_0, f1_1 and so on."""

RANKED = frozenset({"roc_auc", "average_precision"})
"""The metrics that need the order of the scores."""

LOWER_IS_BETTER = frozenset({"loss", "mse", "mae"})
_OF_CLASS = re.compile(r"f1_(\d+)")


def check_metrics(given: object) -> None:
    """Refuse further metrics that are not a list of names.

    Raises:
        ConfigurationError: If they are not.
    """
    known = sorted({name for names in FURTHER.values() for name in names})
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigurationError(f"metrics is {described(given)}; expected a list of names, among {', '.join(known)}")
    for name in given:
        if name not in known and not any(name in names for names in METRICS.values()):
            raise ConfigurationError(f"unknown metric {described(name)}; further ones are {', '.join(known)}")


def main_metric(monitor: str | None, task: Task) -> str:
    """Return the metric that compares epochs: the one that was chosen, or the task's first.

    Raises:
        ConfigurationError: If the task has no metric of that name.
    """
    if monitor is None:
        return METRICS[task][0]
    names = (*METRICS[task], *(name for name in FURTHER[task] if name != "f1"), "loss")
    if monitor not in names and not (_OF_CLASS.fullmatch(monitor) and "f1" in FURTHER[task]):
        of_class = ["f1_0, f1_1 ..."] if "f1" in FURTHER[task] else []
        there = ", ".join([*names, *of_class])
        raise ConfigurationError(f"unknown metric {monitor!r} to monitor; {task} has {there}")
    return monitor


def further_metrics(given: Sequence[str], monitor: str | None, task: Task, classes: int) -> tuple[str, ...]:
    """Return the further metrics to count for, in a fixed order.

    Args:
        given: The metrics that were asked for. Those that the task has anyhow are left out.
        monitor: The metric that compares epochs, which is computed too.
        task: The task.
        classes: The number of classes or labels.

    Raises:
        ConfigurationError: If the task has no such metric, or if there is no such class.

    >>> further_metrics(["f1"], "roc_auc", "classification", 3)
    ('roc_auc', 'f1')
    """
    of_class = _OF_CLASS.fullmatch(monitor or "")
    if of_class is not None and int(of_class.group(1)) >= classes:
        raise ConfigurationError(f"monitor is {monitor!r}, but there are {classes} classes, from 0")
    asked = {*given, "f1" if of_class else monitor}
    unknown = [name for name in given if name not in (*METRICS[task], *FURTHER[task])]
    if unknown:
        there = ", ".join([*METRICS[task], *FURTHER[task]])
        raise ConfigurationError(f"metrics has {unknown[0]!r}, which {task} has not; it has {there}")
    return tuple(name for name in FURTHER[task] if name in asked)
