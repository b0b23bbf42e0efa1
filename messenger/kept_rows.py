"""The rows of vertices that a worker keeps, so that a row of a mini-batch is sent to it once.

Batches have many vertices in common. Only a worker knows which rows it has, because Dealers run in tasks that come and
go. So a Dealer asks before it sends rows:

- CHUNK names the tensors that are sent by row (`row_offers`), and the tensor that has the key of each row (`row_keys`). It
  brings a checksum of each row, over its bytes in all of those tensors.
- The worker copies the rows that it has of these keys and checksums into the tensors of the chunk, at once. It may drop
  them later, so nothing is locked.
- It asks for the others by their positions (NEED, with the tensor `rows`), and the Dealer sends these alone (DATA).
- The worker compares their checksums with those in the CHUNK, completes the chunk, and keeps the rows.

A worker that takes a lost one's place has no rows, and asks for all. A second attempt is offered and answered anew. The
tensors of a chunk are the same whoever had which rows, and so are its result and its commit. Two rows are taken for the
same if both their keys and their checksums are equal, 64 bits each.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xxhash

ROW_CHECKSUMS = "row_checksums"
"""The tensor of a CHUNK that has the checksum of each row, int64 [rows]."""

ROWS = "rows"
"""The tensor of a NEED that has the positions of the rows that the worker lacks, int32 [lacking]."""

LEAST_ROW_BYTES = 64  # shorter rows are sent as they are: their checksums and questions cost as much
INDEX_BYTES = 32  # of a row: its checksum, its key, its place, and what is copied when rows are added
FIRST_ROWS = 1024  # rows for which a table has memory at first
HASHED_ROWS = 4096  # rows whose bytes are put together at a time, to hash them

Layout = tuple[tuple[str, str, tuple[int, ...]], ...]
"""The names, dtypes and shapes of a row in the tensors that are sent by row."""


class KeptRows:
    """Rows by key, up to a number of bytes. Beyond it, the rows that came first are overwritten.

    Runs whose rows have one layout share them. The rows of another layout replace all.

    Args:
        budget: the largest number of bytes.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._table: _Table | None = None
        self._runs: set[str] = set()  # runs that may ask for these rows

    @property
    def bytes(self) -> int:
        """The number of bytes of the rows and of their index."""
        return 0 if self._table is None else self._table.bytes

    def take(
        self, run: str, layout: Layout, keys: np.ndarray, checksums: np.ndarray, into: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Copy the rows that are kept, and return the positions of the others. int32 [lacking]

        Args:
            run: the run whose rows these are.
            layout: the layout of the rows.
            keys: the rows' keys. int64 [rows]
            checksums: the rows' checksums. int64 [rows]
            into: the tensors that are filled, by name. [rows, ...]
        """
        held = np.zeros(len(keys), bool)
        if self._table is not None and self._table.layout == layout:
            self._runs.add(run)
            held, places = self._table.find(keys, checksums)
            whole = bool(held.all()) and len(held)
            for name, rows in self._table.columns.items():
                if whole:  # without the copies that a choice of rows takes
                    np.take(rows, places, axis=0, out=into[name], mode="clip")
                else:
                    into[name][held] = rows[places[held]]
        return np.flatnonzero(~held).astype(np.int32)

    def put(
        self, run: str, layout: Layout, keys: np.ndarray, checksums: np.ndarray, rows: Mapping[str, np.ndarray]
    ) -> None:
        """Keep rows that came. The arguments are those of `take`, and `rows` has the tensors of these rows."""
        if self._table is None or self._table.layout != layout:
            self._table, self._runs = _Table(layout, self._budget), set()
        self._runs.add(run)
        self._table.put(keys, checksums, rows)

    def forget(self, run: str) -> None:
        """Drop the rows if no other run has them."""
        self._runs.discard(run)
        if not self._runs:
            self._table = None


class _Table:
    """Rows of one layout, each at a place. Once all places are taken, new rows take those of the oldest."""

    def __init__(self, layout: Layout, budget: int) -> None:
        self.layout = layout
        row = {name: np.empty((0, *shape), dtype) for name, dtype, shape in layout}
        self._row_bytes = row_bytes(row) + INDEX_BYTES
        self._capacity = budget // self._row_bytes
        self._next = 0  # the place of the next row
        self._allocated = 0  # places that there is memory for
        self._checksums = np.empty(0, np.int64)  # by place
        self.columns: dict[str, np.ndarray] = row  # by place
        self._keys = np.empty(0, np.int64)  # sorted
        self._places = np.empty(0, np.int64)  # the place of each of them

    @property
    def bytes(self) -> int:
        return self._allocated * self._row_bytes

    def find(self, keys: np.ndarray, checksums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which rows are here, and their places. The places of the others mean nothing."""
        if not len(self._keys):
            return np.zeros(len(keys), bool), np.zeros(len(keys), np.int64)
        at = self._at(keys)
        places = self._places[at]
        return (self._keys[at] == keys) & (self._checksums[places] == checksums), places

    def _at(self, keys: np.ndarray) -> np.ndarray:
        """Return where each key is among the sorted keys, if it is there at all."""
        return np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)

    def put(self, keys: np.ndarray, checksums: np.ndarray, rows: Mapping[str, np.ndarray]) -> None:
        held, _ = self.find(keys, checksums)  # another chunk may have brought them meanwhile
        new = np.flatnonzero(~held)
        _, first = np.unique(keys[new], return_index=True)
        new = new[first][: self._capacity]
        if not len(new):
            return
        places = (self._next + np.arange(len(new))) % self._capacity
        self._allocate(min(self._capacity, self._next + len(new)))
        self._next = (self._next + len(new)) % self._capacity
        self._index(keys[new], places)
        self._checksums[places] = checksums[new]
        for name, column in self.columns.items():
            column[places] = rows[name][new]

    def _allocate(self, wanted: int) -> None:
        """Have memory for that many places, and for as many more as there are now."""
        if wanted <= self._allocated:
            return
        self._allocated = min(self._capacity, max(wanted, 2 * self._allocated, FIRST_ROWS))
        for array in (self._checksums, *self.columns.values()):
            array.resize((self._allocated, *array.shape[1:]), refcheck=False)  # in place: no view of it is anywhere

    def _index(self, keys: np.ndarray, places: np.ndarray) -> None:
        """Let keys have these places. Rows that were there, and old rows of these keys, are forgotten."""
        stays = np.ones(len(self._keys), bool)
        if len(self._keys):
            taken = np.zeros(self._allocated, bool)
            taken[places] = True
            stays = ~taken[self._places]
            at = self._at(keys)
            stays[at[self._keys[at] == keys]] = False
        together = np.concatenate([self._keys[stays], keys])
        order = np.argsort(together, kind="stable")  # two sorted parts are merged
        self._keys, self._places = together[order], np.concatenate([self._places[stays], places])[order]


def row_checksums(tensors: Mapping[str, np.ndarray], layout: Layout) -> np.ndarray:
    """Return the XXH3 checksum of each row, over its bytes in all tensors of a layout, in order. int64 [rows]"""
    count = len(tensors[layout[0][0]])
    sums = np.empty(count, np.uint64)
    for start in range(0, count, HASHED_ROWS):
        rows = slice(start, min(count, start + HASHED_ROWS))
        together = np.concatenate([_bytes_of_rows(tensors[name][rows]) for name, _, _ in layout], axis=1)
        width, flat = together.shape[1], together.reshape(-1).data
        digests = (xxhash.xxh3_64_intdigest(flat[at : at + width]) for at in range(0, len(flat), width))
        sums[rows] = np.fromiter(digests, np.uint64, len(together))
    return sums.view(np.int64)


def _bytes_of_rows(rows: np.ndarray) -> np.ndarray:
    width = rows.itemsize * int(np.prod(rows.shape[1:]))
    return np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), width)


def layout_of(tensors: Mapping[str, np.ndarray]) -> Layout:
    """Return the layout of the rows of these tensors."""
    return tuple((name, tensor.dtype.name, tensor.shape[1:]) for name, tensor in tensors.items())


def row_bytes(tensors: Mapping[str, np.ndarray]) -> int:
    """Return the number of bytes of a row in these tensors."""
    return sum(tensor.itemsize * int(np.prod(tensor.shape[1:])) for tensor in tensors.values())
