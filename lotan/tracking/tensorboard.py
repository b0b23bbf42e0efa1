"""The TensorBoard tracker, which writes event files to a run's folder."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lotan.tracking.tracker import Entry, Start, Tracker, scalars

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

log = logging.getLogger(__name__)


def tensorboard_is_here() -> bool:
    """Return True if tensorboard is installed. If not, log how to install it, because a folder is of use without events."""
    if find_spec("tensorboard") is not None:
        return True
    log.warning("no TensorBoard events are written: tensorboard is not installed. pip install 'lotan[tensorboard]'")
    return False


class TensorBoard(Tracker):
    """Writes scalars as events. TensorBoard draws a chart for each name.

    Args:
        folder: the run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None

    def begin(self, start: Start) -> None:
        """Open an event file. Events of a killed run after its last checkpoint no longer count."""
        from torch.utils.tensorboard import SummaryWriter

        purged = len(start.history) + 1
        self._writer = SummaryWriter(str(self._folder), purge_step=purged, flush_secs=10)

    def epoch(self, entry: Entry) -> None:
        """Add a point to each chart."""
        assert self._writer is not None, "begin comes first"
        for name, value in scalars(entry).items():
            self._writer.add_scalar(name, value, entry["epoch"])

    def close(self) -> None:
        """Write the remaining events and close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
