"""A graph in memory as Arrow tables, in the forms that Spark is sent and that Parquet files have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lotan.graph.arrays import EdgeColumns, GraphArrays
from lotan.graph.column_names import EDGE_SPLIT, RELATION
from planner.spec import SPLITS

BATCH_NUMBERS = 1 << 22  # numbers of one array column in a batch: 16 MB, far below the limit of Arrow's list offsets
SPARSE_SHARE = 0.25  # features with a smaller share of nonzero numbers are sent without their zeros


def vertex_tables(graph: GraphArrays, split_names: bool = False) -> pa.Table:
    """Return the vertices as id, features, label (int32, or a list of float32 with null for none) and split.

    Weights of vertices follow, if there are any: as numbers for users, and as lists of one number for engines. Unknown
    entries of a label are NaN.

    Args:
        graph: the graph.
        split_names: if True, splits and missing labels are written as users write them, 'train' and null; if False,
            as 0 and -1 (default: False).
    """
    step = max(1, BATCH_NUMBERS // max(1, graph.features.shape[1]))
    starts = range(0, max(1, len(graph.ids)), step)
    return pa.Table.from_batches([_vertex_batch(graph, slice(at, at + step), split_names) for at in starts])


def _vertex_batch(graph: GraphArrays, rows: slice, split_names: bool) -> pa.RecordBatch:
    split: pa.Array = pa.array(graph.split[rows].astype(np.int32))
    label = _labels(graph.label[rows])
    if split_names:
        split = _split_names(graph.split[rows])
        if graph.classes:
            label = pa.array([graph.classes[code] if code >= 0 else None for code in graph.label[rows]], pa.string())
        elif graph.label.ndim == 1:
            label = pa.array(graph.label[rows].astype(np.int32), mask=graph.label[rows] < 0)
    columns = {
        "id": _ids(graph.ids[rows], keep_type=split_names),
        "features": _lists(graph.features[rows]),
        "label": label,
        "split": split,
    }
    if graph.vertex_weight is not None:
        weight = graph.vertex_weight[rows]
        columns["vertex_weight"] = pa.array(weight) if split_names else _lists(weight[:, np.newaxis])
    return pa.RecordBatch.from_pydict(columns)


def is_sparse(graph: GraphArrays) -> bool:
    """Return True if most features are 0."""
    return bool(np.count_nonzero(graph.features) < SPARSE_SHARE * graph.features.size)


def sparse_vertex_table(graph: GraphArrays) -> pa.Table:
    """Return the vertices with sparse features.

    The table is that of `vertex_tables`, with `positions` and `values` of the nonzero features in place of `features`.
    """
    rows, positions = np.nonzero(graph.features)
    offsets = pa.array(np.searchsorted(rows, np.arange(len(graph.ids) + 1)).astype(np.int32))
    columns = {
        "id": _ids(graph.ids, keep_type=False),
        "positions": pa.ListArray.from_arrays(offsets, pa.array(positions.astype(np.int32))),
        "values": pa.ListArray.from_arrays(offsets, pa.array(graph.features[rows, positions])),
        "label": _labels(graph.label),
        "split": pa.array(graph.split.astype(np.int32)),
    }
    if graph.vertex_weight is not None:
        columns["vertex_weight"] = _lists(graph.vertex_weight[:, np.newaxis])
    return pa.table(columns)


def densify(width: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for `mapInArrow` that restores the zeros of a `sparse_vertex_table`.

    Its result has the columns id, features and the others, in their order. `width` is the number of features.
    """
    step = max(1, BATCH_NUMBERS // width)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in range(0, batch.num_rows, step):
                yield _dense_batch(batch.slice(start, step), width)

    return run


def _dense_batch(batch: pa.RecordBatch, width: int) -> pa.RecordBatch:
    lengths = np.diff(batch.column("positions").offsets.to_numpy())
    matrix = np.zeros((batch.num_rows, width), dtype=np.float32)
    rows = np.repeat(np.arange(batch.num_rows), lengths)
    matrix[rows, batch.column("positions").flatten().to_numpy()] = batch.column("values").flatten().to_numpy()
    others = {name: batch.column(name) for name in batch.schema.names[3:]}
    return pa.RecordBatch.from_pydict({"id": batch.column("id"), "features": _lists(matrix), **others})


def edge_table(graph: GraphArrays, keep_id_type: bool = False) -> pa.Table:
    """Return the edges as src, dst and weight, which is 1 if the graph has no weights; then edge_attr and edge_type, if any."""
    ends = [_ids(graph.ids[end], keep_id_type) for end in (graph.src, graph.dst)]
    weight = np.ones(len(graph.src), dtype=np.float32) if graph.weight is None else graph.weight
    columns = dict(zip(("src", "dst", "weight"), [*ends, pa.array(weight)], strict=True))
    if graph.edge_attr is not None:
        columns["edge_attr"] = _lists(graph.edge_attr)
    if graph.edge_type is not None:
        columns["edge_type"] = pa.array(graph.edge_type)
    return pa.table(columns)


def link_table(edges: EdgeColumns) -> pa.Table:
    """Return edges as they were given: src, dst, and those of weight, edge_attr, edge_type, split and relation that are there."""
    columns = {"src": _ids(edges.src, keep_type=True), "dst": _ids(edges.dst, keep_type=True)}
    given = {"weight": edges.weight, "edge_type": edges.edge_type, RELATION: edges.relation}
    columns |= {name: pa.array(column) for name, column in given.items() if column is not None}
    if edges.edge_attr is not None:
        columns["edge_attr"] = _lists(edges.edge_attr)
    if edges.split is not None:
        columns[EDGE_SPLIT] = _split_names(edges.split)
    return pa.table(columns)


def _split_names(split: npt.NDArray[np.int8]) -> pa.Array:
    return pa.array([SPLITS[code] if code >= 0 else None for code in split], pa.string())


def _ids(ids: npt.NDArray[np.generic], keep_type: bool) -> pa.Array:
    if ids.dtype == object:
        return pa.array(ids, pa.string())
    return pa.array(ids if keep_type else ids.astype(np.int64, copy=False))


def _labels(label: npt.NDArray[np.generic]) -> pa.Array:
    if label.ndim == 1:
        return pa.array(label.astype(np.int32))
    return _lists(label, missing=np.isnan(label).all(axis=1))


def _lists(matrix: npt.NDArray[np.generic], missing: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    rows, width = matrix.shape
    offsets = pa.array(
        np.arange(0, (rows + 1) * width, width, dtype=np.int32) if width else np.zeros(rows + 1, np.int32)
    )
    mask = None if missing is None else pa.array(missing)
    return pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(matrix).reshape(-1)), mask=mask)
