"""Sums of vectors over runs of equal keys, streaming over Arrow batches: the portable form of `vector_sum`.

They run inside Spark's Python workers. Rows arrive sorted, so that a key's rows are consecutive; a key is emitted when
the next one begins. Sums are taken in float64, in the order of the rows, and rounded to float32 once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lotan.engines.rows.vectors import from_lists, to_lists

Batches = Iterable[pa.RecordBatch]


@dataclass
class _Open:
    """The key whose rows may continue in the next batch."""

    keys: pa.RecordBatch  # one row
    total: npt.NDArray[np.float64]


def segment_sums(keys: Sequence[str], vector: str) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return a function for `mapInArrow` that sums column `vector` over consecutive rows with equal `keys`."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        still_open: _Open | None = None
        for batch in batches:
            if batch.num_rows == 0:
                continue
            starts = run_starts(batch, keys)
            sums = _sums(batch.column(vector), starts)
            firsts = batch.select(list(keys)).take(pa.array(starts))
            if still_open is not None and firsts.slice(0, 1).equals(still_open.keys):
                sums[0] += still_open.total
            elif still_open is not None:
                yield _emit(still_open.keys, still_open.total[None], vector)
            if len(starts) > 1:
                yield _emit(firsts.slice(0, len(starts) - 1), sums[:-1], vector)
            still_open = _Open(firsts.slice(len(starts) - 1, 1), sums[-1])
        if still_open is not None:
            yield _emit(still_open.keys, still_open.total[None], vector)

    return run


def run_starts(batch: pa.RecordBatch, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the positions in a batch (of at least one row) at which a key differs from the row before. The first is 0."""
    changed = np.zeros(batch.num_rows, dtype=bool)
    changed[0] = True
    for name in keys:
        column = batch.column(name)
        differs = pc.not_equal(column.slice(1), column.slice(0, batch.num_rows - 1))
        changed[1:] |= differs.to_numpy(zero_copy_only=False)
    return np.flatnonzero(changed)


def _sums(column: pa.Array, starts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    rows = from_lists(column)  # [rows, width]
    return np.add.reduceat(rows, starts, axis=0, dtype=np.float64)


def _emit(keys: pa.RecordBatch, sums: npt.NDArray[np.float64], vector: str) -> pa.RecordBatch:
    arrays = [*keys.columns, to_lists(sums.astype(np.float32))]
    return pa.RecordBatch.from_arrays(arrays, names=[*keys.schema.names, vector])
