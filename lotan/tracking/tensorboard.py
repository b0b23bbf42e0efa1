"""TensorBoard's event files, beside the other files of a run's folder."""

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
    """Whether events can be written. Says what to do where they cannot: a folder is of use without them."""
    if find_spec("tensorboard") is not None:
        return True
    log.warning("no TensorBoard events are written: tensorboard is not installed. pip install 'lotan[tensorboard]'")
    return False


class TensorBoard(Tracker):
    """Writes scalars as events, of which TensorBoard draws a chart for each name.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None

    def begin(self, start: Start) -> None:
        """Open a file of events; those beyond the last checkpoint of a run that was killed no longer count."""
        from torch.utils.tensorboard import SummaryWriter

        purged = len(start.history) + 1
        self._writer = SummaryWriter(str(self._folder), purge_step=purged, flush_secs=10)

    def epoch(self, entry: Entry) -> None:
        """Add a point to each chart."""
        assert self._writer is not None, "begin comes first"
        for name, value in scalars(entry).items():
            self._writer.add_scalar(name, value, entry["epoch"])

    def close(self) -> None:
        """Write what is not written yet."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
