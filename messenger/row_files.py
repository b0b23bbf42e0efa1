"""The files of a row table: its rows at one moment, and a journal of the updates since then.

A table that is started again with the same folder is as it was. An update is in the journal before it is acknowledged. The
journal lies in the file cache of the system when a process is killed, so it is not forced to the disk; the rows are, whenever
they are saved. Both files hold numbers and checksums, and no pickles.

    table.rows      one line of JSON {format, run, count, width, checksum}, then the rows, then the timestamps
    table.journal   for each update: MARK, timestamp and number of places as int64, places, rows, and the checksum of these
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from messenger.errors import RowTableError
from messenger.frames import raw_bytes, tensor_checksum
from messenger.row_table import Places, Rows, RowTable, table_bytes

FORMAT = 1
ROWS_FILE, JOURNAL_FILE = "table.rows", "table.journal"
MARK = b"LTNJ"
LEAST_JOURNAL = 64 << 20  # bytes up to which a journal may grow, however small the table is
MOST_TABLES = 4  # times the bytes of the table, up to which it may grow


class RowFiles:
    """The files of one table. Only one thread may use them.

    Args:
        folder: the folder, which is made if it is not there.

    Raises:
        RowTableError: the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._journal: IO[bytes] = open(folder / JOURNAL_FILE, "ab")  # noqa: SIM115 - it stays open until `close`
        except OSError as error:
            raise RowTableError(
                f"the folder {folder} of a row table cannot be written: {error}; name another"
            ) from None

    def restore(self, limit: int | None) -> tuple[str, RowTable] | None:
        """Return the run and the table that the folder holds, or None if it holds none.

        Raises:
            TableFullError: the table takes more than `limit` bytes.
            RowTableError: the file of rows is damaged.
        """
        path = self._folder / ROWS_FILE
        if not path.exists():
            return None
        with open(path, "rb") as file:
            about = _about(path, file.readline())
            table = RowTable(about["count"], about["width"], limit)
            for part in (table.rows, table.timestamps):
                if file.readinto(raw_bytes(part)) != part.nbytes:
                    raise RowTableError(f"{path} is cut short: delete it, and train again")
        if _checksum(table) != about["checksum"]:
            raise RowTableError(f"{path} does not have its checksum: delete it, and train again")
        for places, rows, timestamp in self._updates(about["width"]):
            table.update(places, rows, timestamp)
        return about["run"], table

    def save(self, run: str, table: RowTable) -> None:
        """Write the rows, force them to the disk, and begin a new journal.

        Raises:
            OSError: the disk is full.
        """
        count, width = table.rows.shape
        about = {"format": FORMAT, "run": run, "count": count, "width": width, "checksum": _checksum(table)}
        unfinished = self._folder / f"{ROWS_FILE}.unfinished"
        with open(unfinished, "wb") as file:
            file.write(json.dumps(about).encode() + b"\n")
            for part in (table.rows, table.timestamps):
                file.write(raw_bytes(part))
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, self._folder / ROWS_FILE)
        # a table that ends here applies the journal once more, which changes nothing
        self._journal.truncate(0)

    def record(self, places: Places, rows: Rows, timestamp: int) -> None:
        """Add an update to the journal.

        Raises:
            OSError: the disk is full.
        """
        head = np.array([timestamp, len(places)], dtype=np.int64)
        parts = [raw_bytes(part) for part in (head, places, rows)]
        total = b"".join(tensor_checksum(part).to_bytes(8, "little") for part in parts)
        self._journal.write(b"".join([MARK, *parts, total]))
        self._journal.flush()

    def is_long(self, table: RowTable) -> bool:
        """Return True if the journal is so long that the table should be saved."""
        return os.fstat(self._journal.fileno()).st_size > max(
            LEAST_JOURNAL, MOST_TABLES * table_bytes(*table.rows.shape)
        )

    def close(self) -> None:
        """Close the journal. This may be called twice."""
        self._journal.close()

    def _updates(self, width: int) -> Iterator[tuple[Places, Rows, int]]:
        """Yield the updates in the journal. One that was cut short was not acknowledged; it is dropped, with what follows."""
        end = 0
        with open(self._folder / JOURNAL_FILE, "rb") as file:
            while (found := _next_update(file, width)) is not None:
                end = file.tell()
                yield found
        self._journal.truncate(end)


def _next_update(file: IO[bytes], width: int) -> tuple[Places, Rows, int] | None:
    if file.read(len(MARK)) != MARK:
        return None
    head = file.read(16)
    if len(head) < 16:
        return None
    timestamp, count = (int(number) for number in np.frombuffer(head, dtype=np.int64))
    if timestamp < 0 or not 0 <= count <= os.fstat(file.fileno()).st_size:
        return None
    sizes = 8 * count, 4 * count * width, 24
    of_places, of_rows, total = (file.read(size) for size in sizes)
    parts = [head, of_places, of_rows]
    if total != b"".join(tensor_checksum(part).to_bytes(8, "little") for part in parts):
        return None
    places = np.frombuffer(of_places, dtype=np.int64)
    return places, np.frombuffer(of_rows, dtype=np.float32).reshape(count, width), timestamp


def _about(path: Path, line: bytes) -> dict[str, Any]:
    try:
        about = json.loads(line)
        if about["format"] == FORMAT and {"run", "count", "width", "checksum"} <= set(about):
            return dict(about)
    except (ValueError, KeyError, TypeError):
        pass
    raise RowTableError(f"{path} is no file of a row table of this version: name another folder")


def _checksum(table: RowTable) -> int:
    return tensor_checksum(
        b"".join(tensor_checksum(raw_bytes(part)).to_bytes(8, "little") for part in (table.rows, table.timestamps))
    )
