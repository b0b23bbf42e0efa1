"""Rows of float32 numbers with a timestamp each: what one row table holds. It is in memory, and knows no sockets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from messenger.errors import RowTableError, TableFullError

Rows = NDArray[np.float32]
Places = NDArray[np.int64]
Timestamps = NDArray[np.int64]

NEVER = -1
"""The timestamp of a row that no batch has updated."""


def table_bytes(count: int, width: int) -> int:
    """Return the bytes of so many rows of so many numbers, with their timestamps."""
    return count * (4 * width + 8)


class RowTable:
    """The rows of one table. Only one thread may use it.

    Args:
        count: the number of rows. They are 0 until they are filled.
        width: the numbers in a row.
        limit: the most bytes that rows and timestamps may take; None for any number (default: None).

    Raises:
        TableFullError: the rows take more.
    """

    def __init__(self, count: int, width: int, limit: int | None = None) -> None:
        needed = table_bytes(count, width)
        if limit is not None and needed > limit:
            raise TableFullError(
                f"{count:,} rows of {width} numbers and their timestamps take {needed:,} bytes, and this table may hold"
                f" {limit:,}; start more tables, or give each more memory"
            )
        try:
            self.rows: Rows = np.zeros((count, width), dtype=np.float32)
            self.timestamps: Timestamps = np.full(count, NEVER, dtype=np.int64)
        except (MemoryError, ValueError):  # a ValueError is numpy's, for more bytes than a machine can have
            raise TableFullError(
                f"{count:,} rows of {width} numbers and their timestamps take {needed:,} bytes, which this host does not have;"
                " start more tables, on other hosts"
            ) from None

    def fill(self, first: int, rows: Rows) -> None:
        """Set some rows that follow each other, as if no batch had updated them.

        Args:
            first: the place of the first of them.
            rows: the rows [rows, width].

        Raises:
            RowTableError: the rows do not lie in the table, or have another width.
        """
        end = first + len(rows)
        if end > len(self.rows):
            raise RowTableError(f"rows {first:,} to {end:,} do not lie in a table of {len(self.rows):,} rows")
        self._check_shape(len(rows), rows)
        self.rows[first:end] = rows
        self.timestamps[first:end] = NEVER

    def read(self, places: Places) -> tuple[Rows, Timestamps]:
        """Return copies of some rows and of their timestamps. [places, width], [places].

        Raises:
            RowTableError: a place is not in the table.
        """
        self._check_places(places)
        return self.rows[places], self.timestamps[places]

    def update(self, places: Places, rows: Rows, timestamp: int) -> None:
        """Set some rows, but for those that a batch of the same or a greater timestamp has set.

        So it does not matter in which order updates arrive, or whether one arrives twice. Source: Waleffe and Mohoney,
        Optimistic Asynchrony Control, 2024: a smaller timestamp never overwrites a greater one.

        Args:
            places: the places, each once [places].
            rows: the new rows [places, width].
            timestamp: the number of the batch in the order of computation.

        Raises:
            RowTableError: a place is not in the table, or the rows have another width or number.
        """
        self._check_places(places)
        self._check_shape(len(places), rows)
        newer = self.timestamps[places] < timestamp
        changed = places[newer]
        self.rows[changed] = rows[newer]
        self.timestamps[changed] = timestamp

    def _check_places(self, places: Places) -> None:
        if places.ndim != 1 or places.dtype != np.int64:
            raise RowTableError(f"places are {places.dtype}{list(places.shape)}; expected int64 in one dimension")
        if len(places) and not 0 <= places.min() <= places.max() < len(self.rows):
            raise RowTableError(
                f"places from {places.min():,} to {places.max():,} do not lie in a table of {len(self.rows):,} rows"
            )

    def _check_shape(self, count: int, rows: Rows) -> None:
        expected = (count, self.rows.shape[1])
        if rows.shape != expected or rows.dtype != np.float32:
            raise RowTableError(f"rows are {rows.dtype}{list(rows.shape)}; expected float32{list(expected)}")
