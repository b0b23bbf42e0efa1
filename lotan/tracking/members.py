"""The trackers of models that train as one batch. Each model is recorded as a run of its own."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from lotan.tracking.configuration import start_of
from lotan.tracking.opening import open_tracker
from lotan.tracking.tracker import Entry, Tracker

if TYPE_CHECKING:
    from lotan.results.run import Run
    from lotan.training.learner import Learner


class MemberTrackers:
    """A tracker for each member that has begun and whose settings ask for one."""

    def __init__(self) -> None:
        self._open: dict[int, Tracker] = {}

    def __contains__(self, number: object) -> bool:
        return number in self._open

    def begin(self, number: int, name: str, learner: Learner) -> None:
        """Open the tracker of a member that is about to train.

        Raises:
            ConfigurationError: another run is in the member's folder, or MLflow is not installed.
            EngineError: MLflow cannot be reached.
        """
        config = learner.config
        if config.log_dir is not None or config.mlflow:
            self._open[number] = open_tracker(config.log_dir, config.mlflow, config.resume, name)
            self._open[number].begin(start_of(learner, planned=False))  # the plan is the batch's

    def epoch(self, number: int, entry: Entry) -> None:
        """Record an epoch of a member."""
        if number in self:
            self._open[number].epoch(entry)

    def finish(self, number: int, run: Run) -> None:
        """Record the end of a member."""
        self._open[number].finish(run)

    def close(self) -> None:
        """Close all trackers. A member that has not finished is recorded as failed. A second call does nothing."""
        with ExitStack() as stack:
            while self._open:
                stack.callback(self._open.popitem()[1].close)
