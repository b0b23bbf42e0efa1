"""How a model was trained, as long as it is not saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lotan.results.run import Run


@dataclass(frozen=True)
class Summary:
    """Of one model's training."""

    history: list[dict[str, Any]]  # one entry an epoch, as in a run's report
    metrics: dict[str, dict[str, float]]  # by split and name, at the best epoch
    best_epoch: int  # 0: none
    report: dict[str, Any]  # see lotan.results.report
    diverged: str | None = None  # why, where it did

    @classmethod
    def of(cls, run: Run) -> Summary:
        """Of a finished run."""
        return cls(run.history, run.metrics, run.best_epoch, run.report)
