"""The conversion of tables (pandas, Arrow) to numpy columns. A cell that fits into no column raises an error."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lotan.graph.arrays import EdgeColumns, Ids, VertexColumns
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
    oversized,
    ragged,
    unknown_splits,
    wrong_edge_type,
    wrong_id_type,
    wrong_label_type,
    wrong_split_type,
    wrong_type,
)
from planner.spec import SPLITS

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class ColumnNames:
    """The names of a graph's columns. Ids are always called `id`, `src` and `dst`."""

    features: str | tuple[str, ...] = "features"  # one array column, or several columns of numbers
    label: str | None = "label"  # a column of this default name may be absent
    split: str | None = "split"  # a column of this default name may be absent
    weight: str | None = None
    edge_features: str | tuple[str, ...] | None = None  # one array column, or several columns of numbers
    edge_type: str | None = None

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """The names of the feature columns."""
        return (self.features,) if isinstance(self.features, str) else self.features

    @property
    def edge_feature_columns(self) -> tuple[str, ...]:
        """The names of the columns of edges' attributes."""
        return (self.edge_features,) if isinstance(self.edge_features, str) else self.edge_features or ()

    def standard_edges(self) -> ColumnNames:
        """Return the names that the same columns of edges have in a graph's own tables; the other names are the defaults."""
        return ColumnNames(
            weight=None if self.weight is None else "weight",
            edge_features=None if self.edge_features is None else "edge_attr",
            edge_type=None if self.edge_type is None else "edge_type",
        )

    def present(self, columns: list[str]) -> ColumnNames:
        """Return the names without label or split, if that has its default name and is not among the vertices' columns."""
        label = None if self.label == "label" and "label" not in columns else self.label
        split = None if self.split == "split" and "split" not in columns else self.split
        return replace(self, label=label, split=split)

    def of_vertices(self) -> list[str]:
        """Return the columns that are read from the vertices."""
        return ["id", *self.feature_columns, *(name for name in (self.label, self.split) if name)]

    def of_edges(self) -> list[str]:
        """Return the columns that are read from the edges."""
        more = [name for name in (self.weight, self.edge_type) if name]
        return list(dict.fromkeys(["src", "dst", *more, *self.edge_feature_columns]))


def require_columns(table: str, wanted: list[str], present: list[str]) -> None:
    """Raise a GraphError for the first column that is missing or that occurs more than once."""
    for name in wanted:
        if name not in present:
            raise missing_column(table, name, map(str, present))
        if present.count(name) > 1:
            raise doubled_column(table, name)


def is_pandas(table: object) -> TypeGuard[pd.DataFrame]:
    """True for a pandas DataFrame; asked without importing pandas, which whoever has one has done."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(table, pandas.DataFrame)


def arrow_table(frame: pd.DataFrame, table: str, wanted: list[str], label: str | None = None) -> pa.Table:
    """Return columns of a pandas DataFrame as an Arrow table.

    Args:
        frame: the DataFrame.
        table: "vertices" or "edges", for the texts of errors.
        wanted: the columns' names.
        label: the label's column. If pandas stores its whole numbers as floats, because some are missing, they become
            integers (default: None).

    Raises:
        GraphError: a column is missing or mixes types.
    """
    require_columns(table, wanted, list(frame.columns))
    columns = {}
    for name in wanted:
        series = frame[name]
        if name == label and _holds_floats(series) and series.isna().any():
            series = _whole_numbers(series)
        try:
            columns[name] = _arrow_array(series)
        # the last two are raised for numbers of more than 64 bits and for text that is no Unicode
        except (pa.ArrowException, TypeError, OverflowError, UnicodeError) as error:
            mend = "Give every row of the column the same type."
            raise fault(table, name, f"cannot be read: {error}", mend) from error
    return pa.table(columns)


def _arrow_array(series: pd.Series[Any]) -> pa.Array:
    if series.dtype != object:
        return pa.array(series, from_pandas=not _holds_floats(series))
    # Only missing cells are null. NaN inside an array must stay NaN, and from_pandas=True would make it null.
    cells = zip(series, series.isna(), strict=True)
    return pa.array([None if missing else cell for cell, missing in cells], from_pandas=False)


def _holds_floats(series: pd.Series[Any]) -> bool:
    import pandas as pd  # here, for whoever has no DataFrame starts without it, a third of a second earlier

    return bool(pd.api.types.is_float_dtype(series.dtype))


def _whole_numbers(series: pd.Series[Any]) -> pd.Series[Any]:
    known = series.dropna()
    return series.astype("Int64") if len(known) and bool((known == known.round()).all()) else series


def vertex_columns(table: pa.Table, names: ColumnNames) -> VertexColumns:
    """Read the vertices.

    Raises:
        GraphError: there are no rows, an id is null, features or labels make no matrix, or a split is unknown.
    """
    names = names.present(table.column_names)
    require_columns("vertices", names.of_vertices(), table.column_names)
    if table.num_rows == 0:
        raise no_vertices()
    ids = _ids(table, "vertices", "id")
    return VertexColumns(
        ids=ids,
        features=_features(table, ids, names.feature_columns),
        label=_label(table, ids, names.label),
        split=_split(table, ids, names.split),
    )


def edge_columns(table: pa.Table, names: ColumnNames, ids: Ids) -> EdgeColumns:
    """Read the edges.

    Args:
        table: the edges.
        names: the columns' names.
        ids: the vertices' ids, whose type the edges' ends must have.

    Raises:
        GraphError: an end is null or has another type than the ids, or a weight is null.
    """
    require_columns("edges", names.of_edges(), table.column_names)
    if table.num_rows == 0:
        return _no_edges(ids, names)
    src, dst = _ids(table, "edges", "src"), _ids(table, "edges", "dst")
    for column, ends in (("src", src), ("dst", dst)):
        if (ends.dtype == object) != (ids.dtype == object):
            raise wrong_id_type("edges", column, _kind(ends), _kind(ids))
    weight = None if names.weight is None else _numbers(table, "edges", names.weight, src)
    attributes = None if names.edge_features is None else _features(table, src, names.edge_feature_columns, "edges")
    return EdgeColumns(src, dst, weight, attributes, _edge_types(table, src, names.edge_type))


def _no_edges(ids: Ids, names: ColumnNames) -> EdgeColumns:
    numbers = np.zeros(0, dtype=np.float32)
    width = len(names.edge_feature_columns) if isinstance(names.edge_features, tuple) else 0
    return EdgeColumns(
        ids[:0],
        ids[:0],
        None if names.weight is None else numbers,
        None if names.edge_features is None else numbers.reshape(0, width),
        None if names.edge_type is None else np.zeros(0, dtype=np.int64),
    )


def _edge_types(table: pa.Table, ids: Ids, column: str | None) -> npt.NDArray[np.int64] | None:
    if column is None:
        return None
    values = _column(table, column)
    if not pa.types.is_integer(values.type):
        raise wrong_edge_type(column, str(values.type))
    missing = values.is_null().to_numpy(zero_copy_only=False)
    if missing.any():
        raise null_rows(column, int(missing.sum()), _row(ids, missing, None), "edges")
    return _signed(values.to_numpy(), "edges", column, "Number the types of edges from 0.").astype(np.int64)


def _kind(ids: Ids) -> str:
    return "string" if ids.dtype == object else "integer"


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name).combine_chunks()
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _ids(table: pa.Table, name: str, column: str) -> Ids:
    values = _column(table, column)
    # pandas writes a missing integer as NaN
    missing = np.flatnonzero(pc.is_null(values, nan_is_null=True).to_numpy(zero_copy_only=False))
    if len(missing):
        raise null_ids(name, column, len(missing), table.take(missing[:EXAMPLES]).to_pylist())
    if pa.types.is_integer(values.type):
        ids = values.to_numpy()
        return _signed(ids, name, column, "Give the ids as strings.") if ids.dtype.kind == "u" else ids
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        result: Ids = values.to_numpy(zero_copy_only=False).astype(object)
        return result
    raise wrong_id_type(name, column, str(values.type), "an integer or string type")


def _signed(numbers: Ids, name: str, column: str, mend: str) -> Ids:
    """Return unsigned numbers as int64."""
    if numbers.max(initial=0) > np.iinfo(np.int64).max:
        raise oversized(name, column, numbers.max(), mend)
    return numbers.astype(np.int64)


def _features(table: pa.Table, ids: Ids, columns: tuple[str, ...], name: str = "vertices") -> Floats:
    if len(columns) == 1 and _is_list(_column(table, columns[0]).type):
        return _matrix(_column(table, columns[0]), ids, columns[0], nullable=False, name=name)
    return np.stack([_numbers(table, name, column, ids) for column in columns], axis=1)


def _is_list(kind: pa.DataType) -> bool:
    result: bool = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return result


def _matrix(values: pa.Array, ids: Ids, column: str, nullable: bool, name: str = "vertices") -> Floats:
    """Return a list column as [rows, width]. If `nullable`, rows that are null become NaN."""
    known = values.is_valid().to_numpy(zero_copy_only=False)
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
    if not (pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type) or pa.types.is_boolean(flat.type)):
        raise wrong_type(name, column, f"array of {flat.type}")
    if flat.null_count:
        holes = np.zeros(len(values), dtype=bool)
        holes[np.flatnonzero(known)] = flat.is_null().to_numpy(zero_copy_only=False).reshape(-1, width).any(axis=1)
        raise nulls_inside(column, int(holes.sum()), _row(ids, holes, None), name)
    matrix = np.full((len(values), width), np.nan, dtype=np.float32)
    with np.errstate(over="ignore"):  # an overflow makes an infinite number, which is reported later with its row
        matrix[known] = flat.to_numpy(zero_copy_only=False).reshape(-1, width)
    return matrix


def _row(ids: Ids, rows: npt.NDArray[np.bool_], value: object) -> str:
    return example_row(ids[np.flatnonzero(rows)[0]], "null" if value is None else value)


def _numbers(table: pa.Table, name: str, column: str, ids: Ids) -> Floats:
    values = _column(table, column)
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_boolean(values.type)):
        raise wrong_type(name, column, str(values.type))
    missing = values.is_null().to_numpy(zero_copy_only=False)
    if missing.any():
        raise null_rows(column, int(missing.sum()), _row(ids, missing, None), name)
    with np.errstate(over="ignore"):  # an overflow makes an infinite number, which is reported later with its row
        result: Floats = values.to_numpy(zero_copy_only=False).astype(np.float32)
        return result


def _label(table: pa.Table, ids: Ids, column: str | None) -> npt.NDArray[np.generic]:
    if column is None:
        return np.full(len(ids), -1, dtype=np.int64)
    values = _column(table, column)
    if pa.types.is_null(values.type):
        return np.full(len(ids), -1, dtype=np.int64)
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        if pa.types.is_unsigned_integer(values.type):
            _signed(pc.fill_null(values, 0).to_numpy(), "vertices", column, "Number the classes from 0.")
        classes: npt.NDArray[np.int64] = pc.fill_null(values.cast(pa.int64()), -1).to_numpy()
        return classes
    if pa.types.is_floating(values.type):
        targets: Floats = pc.fill_null(values.cast(pa.float32(), safe=False), float("nan")).to_numpy()
        return targets[:, np.newaxis]
    if _is_list(values.type):
        return _matrix(values, ids, column, nullable=True)
    raise wrong_label_type(column, str(values.type))


def _split(table: pa.Table, ids: Ids, column: str | None) -> npt.NDArray[np.int8]:
    if column is None or pa.types.is_null(table.column(column).type):
        return np.full(len(ids), -1, dtype=np.int8)
    values = _column(table, column)
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        raise wrong_split_type(column, str(values.type))
    codes = pc.index_in(values.cast(pa.string()), pa.array(SPLITS))  # null for null and for unknown names
    unknown = values.is_valid().to_numpy(zero_copy_only=False) & codes.is_null().to_numpy(zero_copy_only=False)
    if unknown.any():
        raise unknown_splits(column, int(unknown.sum()), _row(ids, unknown, values[np.flatnonzero(unknown)[0]]))
    result: npt.NDArray[np.int8] = pc.fill_null(codes, -1).to_numpy().astype(np.int8)
    return result
