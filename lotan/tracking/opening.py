"""The function that opens all trackers that a user asks for."""

from __future__ import annotations

from pathlib import Path

from lotan.tracking.folder import RunFolder
from lotan.tracking.tensorboard import TensorBoard, tensorboard_is_here
from lotan.tracking.tracker import Tracker, Trackers


def open_tracker(
    log_dir: str | Path | None = None, mlflow: bool = False, resumed: bool = False, name: str = ""
) -> Tracker:
    """Open the trackers of a run as one. Nothing is written before `begin`.

    Args:
        log_dir: a folder for the files that `lotan.tracking.folder` describes, and for TensorBoard's events if
            tensorboard is installed (default: None, for no folder).
        mlflow: if True, the run is logged to MLflow (default: False).
        resumed: if True, the folder may have this run already (default: False).
        name: the run's name in MLflow (default: the value of MLflow's own variable).

    Raises:
        ConfigurationError: another run is in the folder, or MLflow is not installed.
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
