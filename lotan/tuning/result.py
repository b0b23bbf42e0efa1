"""What a search hands back: its trials, best first, and the best model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from lotan.errors import EngineError
from lotan.files import write_atomically
from lotan.results.report import write_report
from lotan.results.run import Run
from lotan.tuning.table import table
from lotan.tuning.trial_settings import Settings, short, varied
from planner.explain.view import framed

SHOWN = 40  # trials that are printed where a result is looked at


@dataclass(frozen=True)
class Trial:
    """One model of a search, and what became of it."""

    number: int  # in the order in which they were made, from 0
    settings: Settings
    state: str  # "done", "stopped early", "stopped" (by the search) or "diverged"
    reason: str  # of a state that needs one, in words
    epoch: int  # epochs trained
    best_epoch: int  # 0 where it was never evaluated
    value: float | None  # of the monitored metric on the validation vertices at that epoch; None where there is none
    metrics: Mapping[str, Mapping[str, float]]  # by split and name, at that epoch
    history: Sequence[Mapping[str, Any]] = field(repr=False)  # one entry an epoch, as in a run's report
    # The words after `lotan train --graph ...` that train this model alone; None where it has no options for that.
    train_options: Sequence[str] | None = field(default=None, repr=False)

    def report(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "number": self.number,
            "settings": self.settings.plain(),
            "train_options": None if self.train_options is None else list(self.train_options),
            "state": self.state,
            "reason": self.reason,
            "epoch": self.epoch,
            "best_epoch": self.best_epoch,
            "value": self.value,
            "metrics": {split: dict(figures) for split, figures in self.metrics.items()},
            "epochs": [dict(entry) for entry in self.history],
        }


@dataclass(frozen=True)
class Tuned:
    """A finished search."""

    trials: list[Trial]  # best first, those without a value last
    monitor: str  # name of the metric they are compared by, on the validation vertices
    search: Mapping[str, Any]  # what was searched, how
    notes: tuple[str, ...]  # what there is to say of the grid
    batch: Mapping[str, Any] = field(repr=False)  # the report of the batch that trained them
    best_run: Run | None = field(repr=False)  # of the best trial, as `Trainer.fit` returns it

    @property
    def best(self) -> Trial:
        """The best trial.

        Raises:
            EngineError: there is none, for all of them diverged.
        """
        if not self.trials or self.trials[0].value is None:
            reason = next((trial.reason for trial in self.trials if trial.reason), "no model was evaluated")
            raise EngineError(f"none of {len(self.trials)} models can be used: {reason}")
        return self.trials[0]

    @cached_property
    def varied(self) -> list[str]:
        """Paths of the settings in which trials differ."""
        return varied(trial.settings for trial in self.trials)

    def frame(self) -> pd.DataFrame:
        """One row a trial, best first: its number, the settings that differ, state, epochs, and the metrics of its best epoch."""
        return pd.DataFrame([self._row(trial) for trial in self.trials])

    def report(self) -> dict[str, Any]:
        """All of it as plain data, see docs/reference/report.md."""
        best = self.trials[0].number if self.trials and self.trials[0].value is not None else None
        return {
            **{name: item for name, item in self.batch.items() if name != "members"},
            "search": dict(self.search),
            "monitor": self.monitor,
            "notes": list(self.notes),
            "best": best,
            "trials": [trial.report() for trial in self.trials],
        }

    def write_report(self, path: str | Path) -> None:
        """Write the report as JSON."""
        write_report(path, self.report())

    def html(self) -> str:
        """A page without network access: parallel coordinates, learning curves, a sorted table."""
        from lotan.tuning.page import page

        return page(self)

    def write_html(self, path: str | Path) -> None:
        """Write that page."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = self.html().encode()
        write_atomically(path, lambda stream: stream.write(content))

    def save_best(self, directory: str | Path) -> None:
        """Write the best model, for `lotan.load` and `lotan predict`.

        Raises:
            EngineError: there is none.
        """
        _ = self.best
        assert self.best_run is not None  # where there is a best trial
        self.best_run.save(directory)

    def lines(self, most: int | None = None) -> list[str]:
        """A table of text, one line a trial, best first; with `most`, of so many of them."""
        return table(self.trials, self.varied, self.monitor, most)

    def __repr__(self) -> str:
        return "\n".join(self.lines(SHOWN))

    def _repr_html_(self) -> str:
        return framed(self.html(), "models of a search")

    def _row(self, trial: Trial) -> dict[str, Any]:
        settings = {short(path): trial.settings.plain().get(path) for path in self.varied}
        figures = {
            f"{split}_{name}": value for split, values in trial.metrics.items() for name, value in values.items()
        }
        known = {"state": trial.state, "epochs": trial.epoch, "best_epoch": trial.best_epoch}
        return {"number": trial.number, **settings, **known, **figures}
