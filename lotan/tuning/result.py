"""The result of a search: its trials, best first, and the best model."""

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

SHOWN = 40  # number of trials in a result's printed form


@dataclass(frozen=True)
class Trial:
    """One model of a search and its results."""

    number: int  # trials are numbered from 0, in the order in which they were made
    settings: Settings
    state: str  # "done", "stopped early", "stopped" (by the search) or "diverged"
    reason: str  # the reason for the state, in words; "" if it needs none
    epoch: int  # number of epochs that were trained
    best_epoch: int  # the epoch with the best value; 0 if it was never evaluated
    value: float | None  # the monitored metric on the validation vertices at the best epoch; None if there is none
    metrics: Mapping[str, Mapping[str, float]]  # metrics at the best epoch, by split and name
    history: Sequence[Mapping[str, Any]] = field(repr=False)  # one entry for each epoch, as in a run's report
    # the words after `lotan train --graph ...` that train this model alone; None if there are no options for that
    train_options: Sequence[str] | None = field(default=None, repr=False)

    def report(self) -> dict[str, Any]:
        """Return the trial as plain data."""
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
    """The result of a finished search."""

    trials: list[Trial]  # best first; trials without a value are last
    monitor: str  # name of the metric by which trials are compared, on the validation vertices
    search: Mapping[str, Any]  # the settings of the search
    notes: tuple[str, ...]  # remarks on the grid
    batch: Mapping[str, Any] = field(repr=False)  # the report of the batch that trained the models
    best_run: Run | None = field(repr=False)  # the best trial's run, as `Trainer.fit` returns it

    @property
    def best(self) -> Trial:
        """The best trial.

        Raises:
            EngineError: no model can be used, because all of them diverged.
        """
        if not self.trials or self.trials[0].value is None:
            reason = next((trial.reason for trial in self.trials if trial.reason), "no model was evaluated")
            raise EngineError(f"none of {len(self.trials)} models can be used: {reason}")
        return self.trials[0]

    @cached_property
    def varied(self) -> list[str]:
        """The paths of the settings in which trials differ."""
        return varied(trial.settings for trial in self.trials)

    def frame(self) -> pd.DataFrame:
        """Return a table with one row for each trial, best first.

        Its columns are the trial's number, the settings that differ, the state, the epochs, and the metrics at the best
        epoch.
        """
        return pd.DataFrame([self._row(trial) for trial in self.trials])

    def report(self) -> dict[str, Any]:
        """Return the result as plain data, whose keys docs/reference/report.md explains."""
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
        """Return an HTML page with parallel coordinates, learning curves and a sorted table. It needs no network."""
        from lotan.tuning.page import page

        return page(self)

    def write_html(self, path: str | Path) -> None:
        """Write the page that `html` returns to a file."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = self.html().encode()
        write_atomically(path, lambda stream: stream.write(content))

    def save_best(self, directory: str | Path, overwrite: bool = False) -> None:
        """Write the best model, for `lotan.load` and `lotan predict`.

        Args:
            directory: the directory.
            overwrite: if True, a saved model that is there is replaced (default: False).

        Raises:
            EngineError: no model can be used, because all of them diverged.
            ModelError: a saved model is there and `overwrite` is False, or the directory has a saved graph.
        """
        _ = self.best
        assert self.best_run is not None  # because there is a best trial
        self.best_run.save(directory, overwrite)

    def lines(self, most: int | None = None) -> list[str]:
        """Return a table of text with one line for each trial, best first, for at most `most` trials."""
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
