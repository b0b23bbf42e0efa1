"""The interface of a tracker, and the data that it takes."""

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
"""One epoch, in the form of a run's history and its report."""


@dataclass(frozen=True)
class Start:
    """A run before its first epoch, or before the first epoch since it was resumed."""

    configuration: Mapping[str, Any]  # plain data: settings, model, graph
    planned: Planned | None = None
    history: Sequence[Entry] = ()  # the epochs before it was resumed
    weights: Mapping[str, torch.Tensor] = field(default_factory=dict)  # the weights with which it starts


class Tracker:
    """Records one run. This base class does nothing.

    `begin` is called once, then `epoch` for each epoch in order, then `finish`. `close` is called last, in any case. A
    run that was closed without `finish` has failed or was interrupted.
    """

    def begin(self, start: Start) -> None:
        """Record a run that is about to train."""

    def epoch(self, entry: Entry) -> None:
        """Record an epoch, after its training and, if there is one, its evaluation."""

    def finish(self, run: Run) -> None:
        """Record the end of the run."""

    def close(self) -> None:
        """Free everything. A second call does nothing."""

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Trackers(Tracker):
    """Several trackers as one."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = tuple(trackers)

    def begin(self, start: Start) -> None:
        """Call `begin` of each tracker."""
        for tracker in self._trackers:
            tracker.begin(start)

    def epoch(self, entry: Entry) -> None:
        """Call `epoch` of each tracker."""
        for tracker in self._trackers:
            tracker.epoch(entry)

    def finish(self, run: Run) -> None:
        """Call `finish` of each tracker."""
        for tracker in self._trackers:
            tracker.finish(run)

    def close(self) -> None:
        """Close each tracker, even if another one fails to close."""
        with ExitStack() as stack:
            for tracker in self._trackers:
                stack.callback(tracker.close)


def scalars(entry: Entry) -> dict[str, float]:
    """Return the numbers of an epoch by names under which charts group them, such as "accuracy/val".

    >>> scalars({"epoch": 1, "loss": 0.5, "train_seconds": 2.0, "metrics": {"val": {"accuracy": 0.75}}})
    {'loss/step': 0.5, 'seconds/train': 2.0, 'accuracy/val': 0.75}
    """
    found = {"loss/step": entry["loss"], "seconds/train": entry["train_seconds"]}
    if "lr" in entry:
        found["lr"] = entry["lr"]
    if entry.get("eval_seconds"):
        found["seconds/evaluation"] = entry["eval_seconds"]
    for split, figures in entry.get("metrics", {}).items():
        found |= {f"{name}/{split}": value for name, value in figures.items()}
    return found
