"""The summary of a model's training. It is not saved with the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lotan.results.run import Run


@dataclass(frozen=True)
class Summary:
    """The history and the results of one model's training."""

    history: list[dict[str, Any]]  # one entry for each epoch, as in a run's report
    metrics: dict[str, dict[str, float]]  # metrics at the best epoch, by split and name
    best_epoch: int  # 0 if the model was never evaluated
    report: dict[str, Any]  # the run's report (lotan.results.report)
    diverged: str | None = None  # the reason, if the model diverged

    @classmethod
    def of(cls, run: Run) -> Summary:
        """Return the summary of a finished run."""
        return cls(run.history, run.metrics, run.best_epoch, run.report)
