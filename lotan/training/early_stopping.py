"""Which epoch is the best so far, and whether to go on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lotan.errors import ConfigurationError
from lotan.stages.metrics import METRICS
from planner.spec import Task

LOWER_IS_BETTER = frozenset({"loss", "mse", "mae"})


@dataclass
class EarlyStopping:
    """Follows a metric of the validation vertices; the first of equal epochs is the best, and any number better than NaN.

    Without validation vertices there is nothing to follow: every epoch is then the best one, and none is the last.
    """

    monitor: str  # name of the metric; those in LOWER_IS_BETTER are to fall, all others to rise
    patience: int | None = None  # evaluations without improvement after which to stop; None: never
    best: float | None = None
    best_epoch: int = 0
    waited: int = 0  # evaluations since the best one

    def update(self, epoch: int, metrics: Mapping[str, Mapping[str, float]]) -> bool:
        """Take in the metrics of an epoch, by split; whether it is the best so far."""
        value = metrics["val"][self.monitor] if "val" in metrics else None
        improved = value is None or self.best is None or self._better(value, self.best)
        if improved:
            self.best, self.best_epoch, self.waited = value, epoch, 0
        else:
            self.waited += 1
        return improved

    @property
    def exhausted(self) -> bool:
        """Whether patience has run out."""
        return self.patience is not None and self.waited >= self.patience

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; `EarlyStopping(**state)` is the inverse."""
        return asdict(self)

    def _better(self, value: float, best: float) -> bool:
        if math.isnan(value) or math.isnan(best):
            return not math.isnan(value)
        return value < best if self.monitor in LOWER_IS_BETTER else value > best


def make_stopping(monitor: str | None, patience: int | None, task: Task, validation_vertices: int) -> EarlyStopping:
    """Early stopping for a task; `monitor` None is the task's main metric.

    Raises:
        ConfigurationError: if the task has no such metric, or there is nothing to watch although patience is set.
    """
    monitor = monitor or METRICS[task][0]
    if monitor not in (*METRICS[task], "loss"):
        raise ConfigurationError(f"unknown metric {monitor!r} to monitor; {task} has {', '.join(METRICS[task])}, loss")
    if patience is not None and validation_vertices == 0:
        raise ConfigurationError(
            "patience needs validation vertices, and no labelled vertex is in split 'val'; put some there, or leave "
            "patience out"
        )
    return EarlyStopping(monitor, patience)
