"""The conversion of Arrow tables to numpy columns. A cell that fits into no column raises an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lotan.graph.arrays import EdgeColumns, Ids, VertexColumns
from lotan.graph.column_names import ColumnNames
from lotan.graph.faults import (
    EXAMPLES,
    doubled_column,
    example_row,
    fault,
    missing_column,
    no_vertices,
    null_ids,
    null_rows,
    nulls_inside,
    overlapping_masks,
    oversized,
    ragged,
    unknown_splits,
    wrong_edge_type,
    wrong_id_type,
    wrong_label_type,
    wrong_mask_type,
    wrong_relation_type,
    wrong_split_type,
    wrong_type,
)
from lotan.graph.given_labels import GivenLabels
from lotan.graph.kinds import accepts, accepts_whole, kind_of_arrow
from lotan.graph.lists import list_column, plain_column
from lotan.graph.splits import UNKNOWN, codes_of_masks, codes_of_numbers, codes_of_texts

Floats = npt.NDArray[np.float32]

MOST_EXACT = 2**53  # a float64 has every whole number up to this


def require_columns(table: str, wanted: list[str], present: list[str]) -> None:
    """Raise a GraphError for the first column that is missing or that occurs more than once."""
    for name in wanted:
        if name not in present:
            raise missing_column(table, name, map(str, present))
        if present.count(name) > 1:
            raise doubled_column(table, name)


def vertex_columns(table: pa.Table, names: ColumnNames) -> VertexColumns:
    """Read the vertices.

    Raises:
        GraphError: there are no rows, an id is null, features or labels make no matrix, or a split is unknown.
    """
    names = names.present(table.column_names)
    require_columns("vertices", names.of_vertices(), table.column_names)
    if table.num_rows == 0:
        raise no_vertices()
    ids = _ids(table, "vertices", names.id)
    return VertexColumns(
        ids=ids,
        features=feature_rows(table, ids, names),
        label=_label(table, ids, names.label),
        split=_split(table, ids, names),
        weight=None if names.vertex_weight is None else _numbers(table, "vertices", names.vertex_weight, ids),
    )


def feature_rows(table: pa.Table, ids: Ids, names: ColumnNames) -> Floats:
    """Read the features of some vertices, with the numbers of groups as the last of them if the graph has groups.

    Args:
        table: the vertices.
        ids: their ids, for errors.
        names: the columns' names, as the table has them.

    Raises:
        GraphError: the features make no matrix.
    """
    features = _features(table, ids, names.feature_columns)
    if names.batch is None:
        return features
    return np.concatenate([features, _numbers(table, "vertices", names.batch, ids)[:, np.newaxis]], axis=1)


def edge_columns(table: pa.Table, names: ColumnNames, ids: Ids, sources: Ids | None = None) -> EdgeColumns:
    """Read the edges.

    Args:
        table: the edges.
        names: the columns' names.
        ids: the vertices' ids, whose type the edges' ends must have.
        sources: the ids of the sources, if they are vertices of another type (default: None).

    Raises:
        GraphError: an end is null or has another type than the ids, or a weight is null.
    """
    names = names.present_edges(table.column_names)
    require_columns("edges", names.of_edges(), table.column_names)
    if table.num_rows == 0:
        return _no_edges(ids, names)
    sources = ids if sources is None else sources
    src, dst = _ids(table, "edges", names.src), _ids(table, "edges", names.dst)
    for column, ends, known in ((names.src, src, sources), (names.dst, dst, ids)):
        if (ends.dtype == object) != (known.dtype == object):
            raise wrong_id_type("edges", column, _kind(ends), _kind(known))
    weight = None if names.weight is None else _numbers(table, "edges", names.weight, src)
    attributes = None if names.edge_features is None else _features(table, src, names.edge_feature_columns, "edges")
    return EdgeColumns(
        src,
        dst,
        weight,
        attributes,
        _edge_types(table, src, names.edge_type),
        split=None if names.edge_split is None else _codes(table, "edges", src, names.edge_split),
        relation=_relations(table, src, names.relation),
    )


def _no_edges(ids: Ids, names: ColumnNames) -> EdgeColumns:
    numbers = np.zeros(0, dtype=np.float32)
    width = len(names.edge_feature_columns) if isinstance(names.edge_features, tuple) else 0
    return EdgeColumns(
        ids[:0],
        ids[:0],
        None if names.weight is None else numbers,
        None if names.edge_features is None else numbers.reshape(0, width),
        None if names.edge_type is None else np.zeros(0, dtype=np.int64),
        split=None if names.edge_split is None else np.zeros(0, dtype=np.int8),
        relation=None if names.relation is None else np.zeros(0, dtype=np.int64),
    )


def _relations(table: pa.Table, ids: Ids, column: str | None) -> npt.NDArray[Any] | None:
    if column is None:
        return None
    values = _column(table, column)
    kind = kind_of_arrow(values.type)
    if not accepts_whole("relation", kind):
        raise wrong_relation_type(column, str(values.type))
    missing = _is_null(values)
    if missing.any():
        raise null_rows(column, int(missing.sum()), _row(ids, missing, None), "edges", "Give each edge a relation")
    if kind.base == "text":
        texts: Ids = values.to_numpy(zero_copy_only=False).astype(object)
        return texts
    if kind.base == "decimal":
        return _whole_decimals(values, "edges", column)
    return _signed(values.to_numpy(), "edges", column, "Give the relations as strings.").astype(np.int64)


def _kind(ids: Ids) -> str:
    return "string" if ids.dtype == object else "integer"


def _column(table: pa.Table, name: str) -> pa.Array:
    return plain_column(table.column(name))


def _is_null(values: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)
    return found


def _ids(table: pa.Table, name: str, column: str) -> Ids:
    values = _column(table, column)
    kind = kind_of_arrow(values.type)
    if not accepts("id", kind):
        if kind.base == "nothing":
            raise null_ids(name, column, len(values), table.slice(0, EXAMPLES).to_pylist())
        raise wrong_id_type(name, column, str(values.type), "an integer or string type")
    # pandas writes a missing integer as NaN
    missing = np.flatnonzero(pc.is_null(values, nan_is_null=True).to_numpy(zero_copy_only=False))
    if len(missing):
        raise null_ids(name, column, len(missing), table.take(missing[:EXAMPLES]).to_pylist())
    if kind.base == "text":
        result: Ids = values.to_numpy(zero_copy_only=False).astype(object)
        return result
    if kind.base == "integer":
        return _signed(values.to_numpy(), name, column, "Give the ids as strings.")
    return _whole_decimals(values, name, column) if kind.base == "decimal" else _whole_floats(values, name, column)


def _signed(numbers: Ids, name: str, column: str, mend: str) -> Ids:
    """Return integers as they are, but unsigned ones as int64."""
    if numbers.dtype.kind != "u":
        return numbers
    if numbers.max(initial=0) > np.iinfo(np.int64).max:
        raise oversized(name, column, numbers.max(), mend)
    return numbers.astype(np.int64)


def _whole_decimals(values: pa.Array, name: str, column: str) -> Ids:
    try:
        whole: Ids = values.cast(pa.int64()).to_numpy()
        return whole
    except pa.ArrowInvalid as error:
        greatest = pc.max(values).as_py()
        if greatest > np.iinfo(np.int64).max:
            raise oversized(name, column, greatest, "Give the ids as strings.") from error
        raise wrong_id_type(name, column, str(values.type), "whole numbers") from error


def _whole_floats(values: pa.Array, name: str, column: str) -> Ids:
    numbers: npt.NDArray[np.float64] = values.to_numpy(zero_copy_only=False).astype(np.float64)
    if (numbers != np.floor(numbers)).any():
        raise wrong_id_type(name, column, str(values.type), "an integer or string type")
    if np.abs(numbers).max(initial=0) > MOST_EXACT:
        mend = "Read the column as integers or as strings."
        raise fault(name, column, "holds floats beyond 2**53, which cannot tell neighbouring ids apart", mend)
    return numbers.astype(np.int64)


def _edge_types(table: pa.Table, ids: Ids, column: str | None) -> npt.NDArray[np.int64] | None:
    if column is None:
        return None
    values = _column(table, column)
    kind = kind_of_arrow(values.type)
    if not accepts_whole("edge type", kind):
        raise wrong_edge_type(column, str(values.type))
    missing = _is_null(values)
    if missing.any():
        raise null_rows(column, int(missing.sum()), _row(ids, missing, None), "edges")
    if kind.base == "decimal":
        types: npt.NDArray[np.int64] = _whole_decimals(values, "edges", column)
        return types
    return _signed(values.to_numpy(), "edges", column, "Number the types of edges from 0.").astype(np.int64)


def _features(table: pa.Table, ids: Ids, columns: tuple[str, ...], name: str = "vertices") -> Floats:
    if not columns:
        return np.zeros((table.num_rows, 0), dtype=np.float32)
    first = _column(table, columns[0])
    kind = kind_of_arrow(first.type)
    if len(columns) == 1 and (kind.depth or kind.base == "vector"):
        if not accepts("features", kind):
            raise wrong_type(name, columns[0], str(first.type))
        return _matrix(list_column(first), ids, columns[0], nullable=False, name=name)
    return np.stack([_numbers(table, name, column, ids) for column in columns], axis=1)


def _matrix(values: pa.Array, ids: Ids, column: str, nullable: bool, name: str = "vertices") -> Floats:
    """Return a list column as [rows, width]. If `nullable`, rows and entries that are null become NaN."""
    known = ~_is_null(values)
    if not nullable and not known.all():
        raise null_rows(column, int((~known).sum()), _row(ids, ~known, None), name)
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
    width = int(lengths.max(initial=0))
    narrower = known & (lengths < width)
    if narrower.any():
        example = _row(ids, narrower, f"{lengths[narrower][0]} numbers")
        raise ragged(column, int(narrower.sum()), width, example, name)
    if width == 0:
        return np.zeros((len(values), 0), dtype=np.float32)
    flat = values.flatten()
    if nullable and flat.null_count:
        flat = flat.cast(pa.float64(), safe=False)  # null becomes NaN
    elif flat.null_count:
        holes = np.zeros(len(values), dtype=bool)
        holes[np.flatnonzero(known)] = _is_null(flat).reshape(-1, width).any(axis=1)
        raise nulls_inside(column, int(holes.sum()), _row(ids, holes, None), name)
    matrix = np.full((len(values), width), np.nan, dtype=np.float32)
    with np.errstate(over="ignore"):  # an overflow makes an infinite number, which is reported later with its row
        matrix[known] = _as_numpy(flat).reshape(-1, width)
    return matrix


def _as_numpy(values: pa.Array) -> npt.NDArray[Any]:
    numbers = values.cast(pa.float64()) if pa.types.is_decimal(values.type) else values
    result: npt.NDArray[Any] = numbers.to_numpy(zero_copy_only=False)
    return result


def _row(ids: Ids, rows: npt.NDArray[np.bool_], value: object) -> str:
    return example_row(ids[np.flatnonzero(rows)[0]], "null" if value is None else value)


def _numbers(table: pa.Table, name: str, column: str, ids: Ids) -> Floats:
    values = _column(table, column)
    if not accepts("number", kind_of_arrow(values.type)):
        raise wrong_type(name, column, str(values.type))
    missing = _is_null(values)
    if missing.any():
        raise null_rows(column, int(missing.sum()), _row(ids, missing, None), name)
    with np.errstate(over="ignore"):  # an overflow makes an infinite number, which is reported later with its row
        return _as_numpy(values).astype(np.float32)


def _label(table: pa.Table, ids: Ids, column: str | None) -> GivenLabels:
    if column is None:
        return GivenLabels.none(len(ids))
    values = _column(table, column)
    kind = kind_of_arrow(values.type)
    if not accepts("label", kind):
        raise wrong_label_type(column, str(values.type))
    missing = _is_null(values)
    if kind.base == "nothing":
        return GivenLabels.none(len(ids))
    if kind.base == "text":
        return GivenLabels(values.to_numpy(zero_copy_only=False).astype(object), missing)
    if kind.depth:
        matrix = _matrix(list_column(values), ids, column, nullable=True)
        if kind.whole and matrix.shape[1] == 1:
            missing = np.isnan(matrix[:, 0])
            return GivenLabels(np.where(missing, -1, matrix[:, 0]).astype(np.int64), missing)
        return GivenLabels(matrix, missing)
    if not kind.whole:
        targets = np.where(missing, np.nan, _as_numpy(values).astype(np.float32))
        return GivenLabels(targets.astype(np.float32)[:, np.newaxis], missing)
    known = values.drop_null()
    if kind.base == "decimal":
        numbers = _whole_decimals(known, "vertices", column)
    else:
        numbers = _signed(known.to_numpy(zero_copy_only=False), "vertices", column, "Number the classes from 0.")
    classes = np.full(len(ids), -1, dtype=np.int64)
    classes[~missing] = numbers
    return GivenLabels(classes, missing)


def _split(table: pa.Table, ids: Ids, names: ColumnNames) -> npt.NDArray[np.int8]:
    if names.split is None:
        return np.full(len(ids), -1, dtype=np.int8)
    if not isinstance(names.split, str):
        return _masked(table, ids, names.split)
    return _codes(table, "vertices", ids, names.split)


def _codes(table: pa.Table, name: str, ids: Ids, column: str) -> npt.NDArray[np.int8]:
    """Return the splits in a column of the vertices or edges. `ids` are those of the rows, for errors."""
    values = _column(table, column)
    kind = kind_of_arrow(values.type)
    if not accepts("split", kind):
        raise wrong_split_type(column, str(values.type), name)
    if kind.base == "nothing":
        return np.full(len(ids), -1, dtype=np.int8)
    given = values if kind.base == "text" else pc.fill_null(values.cast(pa.float64(), safe=False), -1)
    cells = given.to_numpy(zero_copy_only=False)
    codes = codes_of_texts(cells) if kind.base == "text" else codes_of_numbers(cells)
    unknown = codes == UNKNOWN
    if unknown.any():
        example = _row(ids, unknown, values[np.flatnonzero(unknown)[0]])
        raise unknown_splits(column, int(unknown.sum()), example, name)
    return codes


def _masked(table: pa.Table, ids: Ids, columns: tuple[str, ...]) -> npt.NDArray[np.int8]:
    masks = []
    for name in columns:
        if not name:  # the graph has no mask of this split
            masks.append(np.zeros(len(ids), dtype=np.bool_))
            continue
        values = _column(table, name)
        if not accepts("mask", kind_of_arrow(values.type)):
            raise wrong_mask_type(name, str(values.type))
        masks.append(_as_numpy(pc.fill_null(values.cast(pa.bool_()), False)))
    codes, doubled = codes_of_masks(masks)
    if doubled.any():
        raise overlapping_masks([*filter(None, columns)], int(doubled.sum()), _row(ids, doubled, "in several"))
    return codes
