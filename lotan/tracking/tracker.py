"""The interface of a tracker, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from lotan.results.run import Run
    from planner import Planned

Entry = Mapping[str, Any]
"""One epoch, as in a run's history and its report."""


@dataclass(frozen=True)
class Start:
    """A run before its first epoch, or before the first one since it was resumed."""

    configuration: Mapping[str, Any]  # plain data: settings, model, graph
    planned: Planned | None = None
    history: Sequence[Entry] = ()  # the epochs that it has already
    weights: Mapping[str, torch.Tensor] = field(default_factory=dict)  # that it starts from


class Tracker:
    """Hears of one run; does nothing by itself.

    `begin` comes once, then `epoch` for each, in order, then `finish`; and `close` last, whatever happened: a run that was
    not finished has failed, or was interrupted.
    """

    def begin(self, start: Start) -> None:
        """The run is about to train."""

    def epoch(self, entry: Entry) -> None:
        """An epoch is done and, where that is its turn, evaluated."""

    def finish(self, run: Run) -> None:
        """The run is at its end."""

    def close(self) -> None:
        """Let go of what is open. May be called twice."""

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Trackers(Tracker):
    """Several as one."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = tuple(trackers)

    def begin(self, start: Start) -> None:
        """Tell each."""
        for tracker in self._trackers:
            tracker.begin(start)

    def epoch(self, entry: Entry) -> None:
        """Tell each."""
        for tracker in self._trackers:
            tracker.epoch(entry)

    def finish(self, run: Run) -> None:
        """Tell each."""
        for tracker in self._trackers:
            tracker.finish(run)

    def close(self) -> None:
        """Close each, though one fails."""
        with ExitStack() as stack:
            for tracker in self._trackers:
                stack.callback(tracker.close)


def scalars(entry: Entry) -> dict[str, float]:
    """The numbers of an epoch by the names under which charts group them: what is measured, then where.

    >>> scalars({"epoch": 1, "loss": 0.5, "train_seconds": 2.0, "metrics": {"val": {"accuracy": 0.75}}})
    {'loss/step': 0.5, 'seconds/train': 2.0, 'accuracy/val': 0.75}
    """
    found = {"loss/step": entry["loss"], "seconds/train": entry["train_seconds"]}
    if entry.get("eval_seconds"):
        found["seconds/evaluation"] = entry["eval_seconds"]
    for split, figures in entry.get("metrics", {}).items():
        found |= {f"{name}/{split}": value for name, value in figures.items()}
    return found
