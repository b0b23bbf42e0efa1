"""The trackers that are asked for, as one."""

from __future__ import annotations

from pathlib import Path

from lotan.tracking.folder import RunFolder
from lotan.tracking.tensorboard import TensorBoard, tensorboard_is_here
from lotan.tracking.tracker import Tracker, Trackers


def open_tracker(
    log_dir: str | Path | None = None, mlflow: bool = False, resumed: bool = False, name: str = ""
) -> Tracker:
    """What is told of a run, and by whom. Nothing is written before `begin`.

    Args:
        log_dir: a folder for the run's files, see `lotan.tracking.folder`, with TensorBoard's events where that is installed.
        mlflow: whether to log to MLflow.
        resumed: whether the run may be one that is in that folder already.
        name: of the run, for MLflow; empty: what MLflow's own variable says.

    Raises:
        ConfigurationError: another run is in the folder; MLflow is not installed.
    """
    trackers: list[Tracker] = []
    if log_dir is not None:
        trackers.append(RunFolder(Path(log_dir), resumed))
        if tensorboard_is_here():
            trackers.append(TensorBoard(Path(log_dir)))
    if mlflow:
        from lotan.tracking.mlflow import Mlflow

        trackers.append(Mlflow(name))
    return Trackers(trackers)
