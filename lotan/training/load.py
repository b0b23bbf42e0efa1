"""Measures how much of this machine other programs take while a run trains: its times then say nothing of the next run's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from lotan.memory.watch import process_groups

MOST_LOAD = 0.1
"""The share of the processors' time up to which a machine counts as quiet. A desktop with nothing to do takes 2 to 5 %."""


@dataclass(frozen=True)
class Reading:
    """The state of the machine at one moment, in seconds that have been counted since some moment before."""

    clock: float
    busy: float  # processor time of all programs, and of other virtual machines on the same host
    own: float  # processor time of this run's processes


def read_machine() -> Reading:
    """Read the counters of the machine and of this run's processes."""
    times = psutil.cpu_times()._asdict()
    # guests are in "user" as well; waiting for a disk leaves the processor free
    busy = sum(seconds for name, seconds in times.items() if name not in ("idle", "iowait", "guest", "guest_nice"))
    own = sum(_seconds(process) for group in process_groups().values() for process in group)
    return Reading(time.monotonic(), busy, own)


def _seconds(process: psutil.Process) -> float:
    """Return the processor seconds of a process and of its children that have ended; 0 if it cannot be asked."""
    with suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)
    return 0.0


def load_between(before: Reading, after: Reading, cores: int) -> float:
    """Return the share of all processors' time that other programs took between two readings.

    >>> load_between(Reading(0, 10, 1), Reading(2, 13, 3), cores=2)
    0.25
    """
    available = cores * (after.clock - before.clock)
    others = (after.busy - before.busy) - (after.own - before.own)
    return max(0.0, others / available) if available > 0 else 0.0


@dataclass
class LoadWatch:
    """Tells how busy other programs were, from a reading when it is made and one when it is asked."""

    read: Callable[[], Reading] = read_machine
    before: Reading = field(init=False)

    def __post_init__(self) -> None:
        self.before = self.read()

    @property
    def quiet(self) -> bool:
        """True if other programs have left the machine to this run since the watch was made."""
        return load_between(self.before, self.read(), os.cpu_count() or 1) <= MOST_LOAD
