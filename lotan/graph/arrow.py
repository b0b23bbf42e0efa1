"""A graph in memory as Arrow tables: what Spark is sent and what Parquet files hold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lotan.graph.arrays import GraphArrays
from planner.spec import SPLITS

BATCH_NUMBERS = 1 << 24  # of one array column in a batch: Arrow's list offsets have 32 bits


def vertex_tables(graph: GraphArrays, split_names: bool = False) -> pa.Table:
    """The vertices as id, features, label (int32, or a list of float32 with null for none) and split.

    Args:
        graph: whose vertices.
        split_names: write splits and missing labels as users do, 'train' and null, rather than as 0 and -1.
    """
    step = max(1, BATCH_NUMBERS // max(1, graph.features.shape[1]))
    starts = range(0, max(1, len(graph.ids)), step)
    return pa.Table.from_batches([_vertex_batch(graph, slice(at, at + step), split_names) for at in starts])


def _vertex_batch(graph: GraphArrays, rows: slice, split_names: bool) -> pa.RecordBatch:
    split: pa.Array = pa.array(graph.split[rows].astype(np.int32))
    label = _labels(graph.label[rows])
    if split_names:
        split = pa.array([SPLITS[code] if code >= 0 else None for code in graph.split[rows]], pa.string())
        if graph.label.ndim == 1:
            label = pa.array(graph.label[rows].astype(np.int32), mask=graph.label[rows] < 0)
    columns = [_ids(graph.ids[rows], keep_type=split_names), _lists(graph.features[rows]), label, split]
    return pa.RecordBatch.from_arrays(columns, names=["id", "features", "label", "split"])


def edge_table(graph: GraphArrays, keep_id_type: bool = False) -> pa.Table:
    """The edges as src, dst and weight, 1 where the graph has none."""
    ends = [_ids(graph.ids[end], keep_id_type) for end in (graph.src, graph.dst)]
    weight = np.ones(len(graph.src), dtype=np.float32) if graph.weight is None else graph.weight
    return pa.table([*ends, pa.array(weight)], names=["src", "dst", "weight"])


def _ids(ids: npt.NDArray[np.generic], keep_type: bool) -> pa.Array:
    if ids.dtype == object:
        return pa.array(ids, pa.string())
    return pa.array(ids if keep_type else ids.astype(np.int64, copy=False))


def _labels(label: npt.NDArray[np.generic]) -> pa.Array:
    if label.ndim == 1:
        return pa.array(label.astype(np.int32))
    return _lists(label, missing=np.isnan(label).any(axis=1))


def _lists(matrix: npt.NDArray[np.generic], missing: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    rows, width = matrix.shape
    offsets = pa.array(
        np.arange(0, (rows + 1) * width, width, dtype=np.int32) if width else np.zeros(rows + 1, np.int32)
    )
    mask = None if missing is None else pa.array(missing)
    return pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(matrix).reshape(-1)), mask=mask)
