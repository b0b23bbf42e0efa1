"""Early stopping: it finds the best epoch so far, and decides when training stops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lotan.errors import ConfigurationError
from lotan.settings.metric_names import LOWER_IS_BETTER, main_metric
from planner.loss import Task

FLAT = 3
"""The evaluations in a row that do not better the best one at an elbow."""


def elbow(history: Sequence[Mapping[str, Any]], monitor: str) -> int | None:
    """Return the epoch at which a metric of the split "val" has flattened; None if it has not.

    Args:
        history: One entry for each epoch, as in the report.
        monitor: The name of the metric.

    >>> [elbow([{"epoch": n, "metrics": {"val": {"mrr": v}}} for n, v in enumerate(values, 1)], "mrr")
    ...  for values in ([0.1, 0.3, 0.2, 0.3, 0.3], [0.1, 0.3, 0.2, 0.4])]
    [5, None]
    """
    follow = EarlyStopping(monitor, FLAT)
    for entry in history:
        if "val" in entry.get("metrics", {}):
            follow.update(entry["epoch"], entry["metrics"])
            if follow.exhausted:
                return int(entry["epoch"])
    return None


@dataclass
class EarlyStopping:
    """Follows one metric of the validation vertices.

    The first of several equally good epochs is the best one, and any number is better than NaN. Without validation
    vertices there is nothing to follow: then every epoch counts as the best one, and training never stops early.
    """

    monitor: str  # name of the metric; metrics in LOWER_IS_BETTER should fall, all others should rise
    patience: int | None = None  # evaluations without improvement after which training stops; None: never
    best: float | None = None
    best_epoch: int = 0
    waited: int = 0  # number of evaluations since the best one

    def update(self, epoch: int, metrics: Mapping[str, Mapping[str, float]]) -> bool:
        """Take in the metrics of an epoch.

        Args:
            epoch: The number of the epoch, from 1.
            metrics: The metrics by split and name.

        Returns:
            True if the epoch is the best so far.
        """
        value = metrics["val"][self.monitor] if "val" in metrics else None
        improved = value is None or self.best is None or self._better(value, self.best)
        if improved:
            self.best, self.best_epoch, self.waited = value, epoch, 0
        else:
            self.waited += 1
        return improved

    @property
    def exhausted(self) -> bool:
        """True if patience has run out."""
        return self.patience is not None and self.waited >= self.patience

    def state(self) -> dict[str, Any]:
        """Return the fields as plain data for a checkpoint; `EarlyStopping(**state)` is the inverse."""
        return asdict(self)

    def _better(self, value: float, best: float) -> bool:
        if math.isnan(value) or math.isnan(best):
            return not math.isnan(value)
        return value < best if self.monitor in LOWER_IS_BETTER else value > best


def make_stopping(monitor: str | None, patience: int | None, task: Task, validation_vertices: int) -> EarlyStopping:
    """Return the early stopping of a run.

    Args:
        monitor: Name of the metric to follow; None: the task's main metric.
        patience: Evaluations without improvement after which training stops; None: never.
        task: The task of the run.
        validation_vertices: The number of labelled vertices, or of links, in the split "val".

    Raises:
        ConfigurationError: If the task has no such metric, or if patience is set without validation vertices.
    """
    monitor = main_metric(monitor, task)
    if patience is not None and validation_vertices == 0:
        examples, one = ("links", "link") if task == "link" else ("vertices", "labelled vertex")
        raise ConfigurationError(
            f"patience needs validation {examples}, and no {one} is in split 'val'; put some there, or leave patience out"
        )
    return EarlyStopping(monitor, patience)
