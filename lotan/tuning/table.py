"""The trials of a search as a table of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lotan.tuning.trial_settings import short, shown

if TYPE_CHECKING:
    from lotan.tuning.result import Trial


def table(trials: Sequence[Trial], paths: Sequence[str], monitor: str, most: int | None = None) -> list[str]:
    """Return the lines of a table with a head and one line for each trial.

    Args:
        trials: the trials, in the order of the lines.
        paths: the paths of the settings to show.
        monitor: the metric to show, measured on the validation and the test vertices.
        most: the most trials to show (default: None, for all).
    """
    rows = [heads(paths, monitor), *(cells(trial, paths, monitor) for trial in trials[:most])]
    more = len(trials) - len(rows) + 1
    return [*aligned(rows), *([f"and {more} more"] if more else [])]


def heads(paths: Sequence[str], monitor: str) -> list[str]:
    """Return the heads of the columns that `cells` fills."""
    return [
        "trial",
        *(short(path) for path in paths),
        f"val {monitor}",
        f"test {monitor}",
        "best epoch",
        "epochs",
        "state",
    ]


def cells(trial: Trial, paths: Sequence[str], monitor: str) -> list[str]:
    """Return the cells of a trial's line."""
    values = trial.settings.values
    settings = [shown(values[path]) if path in values else "-" for path in paths]
    figures = [_figure(trial.metrics.get(split, {}).get(monitor)) for split in ("val", "test")]
    state = f"{trial.state}: {trial.reason}" if trial.reason else trial.state
    return [str(trial.number), *settings, *figures, str(trial.best_epoch or "-"), str(trial.epoch), state]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines whose columns are aligned. The last column is not padded.

    >>> aligned([["a", "long"], ["wide", "b"]])
    ['a     long', 'wide  b']
    """
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
