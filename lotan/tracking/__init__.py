"""Trackers, which record a run while it trains: in a folder on the disk, in TensorBoard or in MLflow.

`tracker.py` has the interface. `open_tracker` opens all trackers that a user asks for as one.
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
