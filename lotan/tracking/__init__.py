"""What others are told of a run while it trains: a folder on the disk, TensorBoard, MLflow.

`tracker.py` has the interface and what is told; `open_tracker` opens all that are asked for as one.
"""

from lotan.tracking.configuration import configuration, plain_settings, start_of
from lotan.tracking.members import MemberTrackers
from lotan.tracking.opening import open_tracker
from lotan.tracking.tracker import Start, Tracker, scalars

__all__ = [
    "MemberTrackers",
    "Start",
    "Tracker",
    "configuration",
    "open_tracker",
    "plain_settings",
    "scalars",
    "start_of",
]
