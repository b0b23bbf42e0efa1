"""The functions that Spark's tasks run to number the chunks of rows, and to pack each. They import no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lotan.engines.rows.vectors import from_lists


@dataclass(frozen=True)
class ChunkTask:
    """Finds the chunk that each row belongs to. Chunks are ranges of ids, given by the ids with which they begin."""

    begins: npt.NDArray[Any]  # of all chunks but the first

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Add the column `part`, the number of the chunk, to rows that have an `id`."""
        for rows in batches:
            ids = rows.column("id").to_numpy(zero_copy_only=False)
            part = np.searchsorted(self.begins, ids, side="right").astype(np.int32)
            columns = {name: rows.column(name) for name in rows.schema.names}
            yield pa.RecordBatch.from_pydict(columns | {"part": pa.array(part)})


def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn rows into one row for each batch of them: the ids as a list, and the numbers as bytes."""
    for rows in batches:
        if rows.num_rows:
            ids = pa.array([rows.column("id").to_pylist()], pa.list_(rows.schema.field("id").type))
            numbers = np.ascontiguousarray(from_lists(rows.column("values")), dtype=np.float32)
            yield pa.RecordBatch.from_arrays([ids, pa.array([numbers.tobytes()], pa.binary())], ["ids", "numbers"])
