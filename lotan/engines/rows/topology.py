"""The neighbourhoods of chunks: for each chunk its distinct sources, and its in-edges by position among them.

They are computed once per edge set. For a Collect, a pass then moves one vector per distinct (chunk, source), never one
per edge. The edges themselves are static, and a worker is sent them once.

The rows of a topology frame are sorted by part, chunk, kind, position. `level` is the lowest level in which the edges end:

    kind EDGES      one per chunk that has in-edges; `indptr` int64 [rows of a full chunk + 1] (rows that a short chunk lacks
                    are empty), `positions` int64 [edges], `weight` float32 [edges] or null, `keys` int64 [edges], and `data`
                    float32 [edges, width] (see `lotan.engines.rows.edge_data`) or null, as bytes
    kind SOURCES    one per distinct source: `position` counts them from 0 in the order of level, id; `src`, `spart`

A chunk's rows are in the order of their levels. So the rows within a level come first, and so do their edges and the
sources of these edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lotan.engines.rows.segments import run_starts
from lotan.graph.row_keys import edge_keys, occurrences

EDGES, SOURCES = 0, 1
BLOBS = ("indptr", "positions", "weight", "keys", "data")
Batches = Iterable[pa.RecordBatch]


def neighbourhoods(
    id_type: str, weighted: bool, chunk_rows: int
) -> tuple[Callable[[Batches], Iterator[pa.RecordBatch]], str]:
    """Return a function for `mapInArrow`, and its schema, which makes topology rows from sorted in-edges.

    The input has the columns part, chunk, row, level, src, spart, skey, dkey [, weight] [, data], and is sorted by part,
    chunk, row, src [, weight].
    """
    schema = (
        f"part int, chunk int, kind int, position int, level int, src {id_type}, spart int, "
        "indptr binary, positions binary, weight binary, keys binary, data binary"
    )

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for edges in runs(batches, ("part", "chunk")):
            yield from _neighbourhood(edges, weighted, chunk_rows)

    return run, schema


def runs(batches: Batches, keys: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Cut a sorted stream into one record batch per run of equal keys. It holds one run at a time."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows == 0:
            continue
        starts = [*run_starts(batch, keys).tolist(), batch.num_rows]
        for start, stop in pairwise(starts):
            piece = batch.slice(start, stop - start)
            if held and not _same(held[0], piece, keys):
                yield pa.concat_batches(held)
                held = []
            held.append(piece)
    if held:
        yield pa.concat_batches(held)


def _same(one: pa.RecordBatch, other: pa.RecordBatch, keys: tuple[str, ...]) -> bool:
    return all(one.column(key)[0] == other.column(key)[0] for key in keys)


def _neighbourhood(edges: pa.RecordBatch, weighted: bool, chunk_rows: int) -> Iterator[pa.RecordBatch]:
    part, chunk = edges.column("part")[0].as_py(), edges.column("chunk")[0].as_py()
    row = edges.column("row").to_numpy()
    src = edges.column("src").to_numpy(zero_copy_only=False)
    level = edges.column("level").to_numpy()
    _, firsts, positions = np.unique(src, return_index=True, return_inverse=True)
    # rows count by level: a source's first edge ends in its lowest level
    order = np.argsort(level[firsts], kind="stable")
    firsts, positions = firsts[order], np.argsort(order)[positions]
    indptr = np.zeros(chunk_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(row, minlength=chunk_rows), out=indptr[1:])
    keys = edge_keys(edges.column("skey").to_numpy(), edges.column("dkey").to_numpy(), occurrences(src, row))
    weight = edges.column("weight").to_numpy().tobytes() if weighted else None
    data = edges.column("data").flatten().to_numpy().tobytes() if "data" in edges.schema.names else None
    schema = _schema(edges.column("src").type)
    blobs = [indptr.tobytes(), positions.astype(np.int64).tobytes(), weight, keys.tobytes(), data]
    yield _rows(schema, [[part], [chunk], [EDGES], [0], [level[0]], [None], [None], *[[blob] for blob in blobs]])
    count = len(firsts)
    yield _rows(schema, [
        _constant(part, count), _constant(chunk, count), _constant(SOURCES, count), np.arange(count, dtype=np.int32),
        level[firsts], edges.column("src").take(pa.array(firsts)), edges.column("spart").take(pa.array(firsts)),
        *[pa.nulls(count, pa.binary()) for _ in blobs],
    ])  # fmt: skip


def _constant(value: int, count: int) -> npt.NDArray[np.int32]:
    return np.full(count, value, dtype=np.int32)


def _schema(id_type: pa.DataType) -> pa.Schema:
    numbers = [(name, pa.int32()) for name in ("part", "chunk", "kind", "position", "level")]
    return pa.schema([*numbers, ("src", id_type), ("spart", pa.int32()), *[(name, pa.binary()) for name in BLOBS]])


def _rows(schema: pa.Schema, columns: list[object]) -> pa.RecordBatch:
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, type=kind.type)
        for column, kind in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
