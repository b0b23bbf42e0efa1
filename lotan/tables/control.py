"""Optimistic asynchrony control: batches read rows early, and are computed as if each had read after all before it.

A batch reads the rows of its vertices from tables while earlier batches are still computed, and so may read rows that are
out of date. Rows have timestamps: the number of the batch that wrote them, in the order of computation. The rows that a batch
has computed stay here, in the validation cache, until every table has them. Before a batch is computed, its rows that are
older than those in the cache are repaired. So it sees the rows that a serial run in the order of computation would see.

Source: Waleffe and Mohoney, "Optimistic Asynchrony Control", WANT@ICML 2024; Waleffe, PhD thesis, 2024, section 3.2. It
differs in three points, and tests/tables/test_control.py has a case of each. A row is cached and sent together with the
optimizer's state of it; the source speaks of values alone, and an optimizer with state then takes other steps. What may be
evicted is asked for when a batch is computed and not when it is prepared, so the cache is smaller. A batch that fails is
taken off the list of those in flight; else nothing would be evicted after it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from messenger.row_table import NEVER, Places, Rows, Timestamps


class FinishedUpdates:
    """The timestamps whose updates are in the tables.

    >>> finished = FinishedUpdates()
    >>> for timestamp in (5, 0, 2, 6, 1):
    ...     finished.add(timestamp)
    >>> finished.all_up_to
    2
    >>> for timestamp in (4, 3):
    ...     finished.add(timestamp)
    >>> finished.all_up_to
    6
    """

    def __init__(self) -> None:
        self.all_up_to = NEVER  # the greatest timestamp up to which all updates are written: the source's MFCT
        self._beyond: set[int] = set()

    def add(self, timestamp: int) -> None:
        """Note that the update of a timestamp is written."""
        self._beyond.add(timestamp)
        while self.all_up_to + 1 in self._beyond:
            self.all_up_to += 1
            self._beyond.remove(self.all_up_to)


@dataclass
class ControlFigures:
    """The work of a control so far."""

    repaired: int = 0  # rows that a batch had read too early
    cached_most: int = 0  # the most rows that the validation cache had at one time


class Control:
    """The control of one run. Any thread may call the methods; batches are computed one after the other.

    Args:
        repairs: False to compute batches from the rows that they have read: plain asynchrony, for comparison. Then updates
            of batches in flight together are lost where both have a row.
    """

    def __init__(self, repairs: bool = True) -> None:
        self.figures = ControlFigures()
        self._repairs = repairs
        self._lock = threading.Lock()
        self._finished = FinishedUpdates()
        self._begun = 0  # batches that have begun to read
        self._computed = 0  # the timestamp of the next batch that is computed
        self._in_flight: dict[
            int, int
        ] = {}  # by batch: all updates up to this timestamp were written when it began to read
        self._cache: dict[
            int, tuple[Places, Rows]
        ] = {}  # by timestamp, ascending: places, ascending, and their new rows

    @property
    def cached(self) -> int:
        """The number of rows in the validation cache."""
        with self._lock:
            return sum(len(places) for places, _ in self._cache.values())

    def begin(self) -> int:
        """Return the number of a new batch. It must be asked for before the batch reads its first row."""
        with self._lock:
            self._begun += 1
            self._in_flight[self._begun] = self._finished.all_up_to
            return self._begun

    def repair(self, batch: int, places: Places, rows: Rows, timestamps: Timestamps) -> None:
        """Replace rows of a batch that are out of date, right before it is computed.

        Args:
            batch: the batch's number.
            places: the places of its rows, ascending and each once [places].
            rows: the rows as they were read, which are changed in place [places, width].
            timestamps: their timestamps as they were read [places].
        """
        with self._lock:
            self._evict()
            if not self._repairs:
                return
            latest = timestamps.copy()
            for timestamp, (cached, newer) in reversed(self._cache.items()):  # the newest row of a place is met first
                there = np.searchsorted(cached, places)
                there[there == len(cached)] = 0
                here = np.flatnonzero((cached[there] == places) & (latest < timestamp))
                rows[here] = newer[there[here]]
                latest[here] = timestamp
            stale = latest > timestamps
            self.figures.repaired += int(stale.sum())

    def computed(self, batch: int, places: Places, rows: Rows) -> int:
        """Take the rows of a batch after its step, before they are sent, and return the timestamp to send them with.

        Args:
            batch: the batch's number.
            places: the places of the rows, ascending and each once [places].
            rows: the rows, which nobody changes any more [places, width].
        """
        with self._lock:
            del self._in_flight[batch]
            timestamp = self._computed
            self._computed += 1
            if self._repairs and len(places):
                self._cache[timestamp] = places, rows
                cached = sum(len(each) for each, _ in self._cache.values())
                self.figures.cached_most = max(self.figures.cached_most, cached)
            return timestamp

    def written(self, timestamp: int) -> None:
        """Note that all tables have the rows of a timestamp."""
        with self._lock:
            self._finished.add(timestamp)

    def abandon(self, batch: int) -> None:
        """Forget a batch that is not computed."""
        with self._lock:
            self._in_flight.pop(batch, None)

    def _evict(self) -> None:
        """Drop the rows that every batch in flight, and every later one, reads from the tables."""
        needless = min(self._in_flight.values(), default=self._finished.all_up_to)
        for timestamp in [one for one in self._cache if one <= needless]:
            del self._cache[timestamp]
