"""The conversion of a user's tables to Arrow.

A table is a DataFrame of pandas or polars, a dictionary of arrays, or an object with Arrow's stream interface. Any other
object raises an error with the line that converts it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from lotan.errors import GraphError
from lotan.graph.columns import require_columns
from lotan.graph.faults import fault
from lotan.graph.table_kinds import is_pandas, is_spark

if TYPE_CHECKING:
    import pandas as pd

Form = Literal["spark", "memory"]

_LINES = {  # the packages of other containers, and the line that makes tables of them
    "path": "lotan.Graph.read_tables(vertices, edges) reads tables by their places",
    "networkx": 'edges = networkx.to_pandas_edgelist(g, "src", "dst"), and vertices with a column of ids and features',
    "scipy": "src, dst = adjacency.nonzero(), and lotan.Graph.from_arrays(features, src, dst)",
    "torch_geometric": "lotan.Graph.from_pyg(data)",
    "dgl": "src, dst = g.edges(), and lotan.Graph.from_arrays(features, src, dst)",
}


def from_pandas_on_spark(table: Any) -> Any:
    """Return a pandas-on-Spark DataFrame as a Spark DataFrame, and other tables as they are."""
    on_spark = any(kind.__module__.startswith("pyspark.pandas") for kind in type(table).__mro__)
    if not (on_spark and hasattr(table, "to_spark")):
        return table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the index is lost, which has no meaning here
        return table.to_spark()


def repeatable(table: Any) -> Any:
    """Return a stream of Arrow as an Arrow table, and other tables as they are.

    A stream such as a `pyarrow.RecordBatchReader` gives its rows once, and a graph reads a table more than once.
    """
    if is_pandas(table) or is_spark(table) or not hasattr(table, "__arrow_c_stream__"):
        return table
    return _as_arrow(table)


def form_of(table: Any, name: str) -> Form:
    """Return where a table is: in Spark or in memory.

    Args:
        table: the user's table.
        name: "vertices" or "edges", for the texts of errors.

    Raises:
        GraphError: the table is in no form that can be read.
    """
    if is_spark(table):
        return "spark"
    package = type(table).__module__.split(".")[0]
    columns = is_pandas(table) or (isinstance(table, Mapping) and package not in _LINES)  # a view of networkx is none
    if columns or hasattr(table, "__arrow_c_stream__"):
        return "memory"
    if table is None:
        raise GraphError(f"{name.capitalize()} are missing. Give a table of them; one without rows is a table too.")
    line = _LINES.get("path" if isinstance(table, str | Path) else package)
    advice = (
        f"Convert it: {line}."
        if line
        else "Expected a DataFrame of Spark, pandas or polars, an Arrow table, or a dict."
    )
    raise GraphError(f"{name.capitalize()} are a {type(table).__name__}, which is no table. {advice}")


def names_of_columns(table: Any) -> list[str]:
    """Return the names of the columns of a table in memory or in Spark. A named index of pandas counts as a column."""
    if isinstance(table, Mapping):
        return list(table)
    if is_pandas(table):
        return [*table.columns, *_named_indices(table)]
    if hasattr(table, "columns") and is_spark(table):
        return list(table.columns)
    found: list[str] = _as_arrow(table).column_names
    return found


def arrow_table(table: Any, name: str, wanted: list[str]) -> pa.Table:
    """Return columns of a user's table in memory as an Arrow table.

    Args:
        table: a DataFrame of pandas or polars, an Arrow table, a dict of arrays, or an object with Arrow's stream.
        name: "vertices" or "edges", for the texts of errors.
        wanted: the columns' names.

    Raises:
        GraphError: a column is missing or mixes types.
    """
    if not is_pandas(table) and not isinstance(table, Mapping):
        held = _as_arrow(table)
        require_columns(name, wanted, held.column_names)
        return held.select(wanted)
    require_columns(name, wanted, names_of_columns(table))
    if is_pandas(table) and (indices := [column for column in _named_indices(table) if column in wanted]):
        table = table.reset_index(level=indices)
    columns = {}
    for column in wanted:
        try:
            columns[column] = _arrow_array(table[column])
        # the last three are raised for numbers of more than 64 bits, for odd shapes and for text that is no Unicode
        except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
            same_type = "Give every row of the column the same type."
            mend = "Cast the column to numbers or strings." if _has_one_type(table[column]) else same_type
            raise fault(name, column, f"cannot be read: {error}", mend) from error
    lengths = {column: len(cells) for column, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{column} has {length:,}" for column, length in lengths.items())
        raise GraphError(f"{name}: the columns have different lengths: {said}. Give each one entry for a row.")
    return pa.table(columns)


def _has_one_type(column: Any) -> bool:
    """Return True if a column's container says that all its cells have one type."""
    dtype = getattr(column, "dtype", None)
    return dtype is not None and str(getattr(dtype, "name", "object")) != "object"


def _named_indices(frame: pd.DataFrame) -> list[str]:
    """Return the names of the parts of an index that no column has."""
    return [name for name in frame.index.names if isinstance(name, str) and name not in frame.columns]


def _as_arrow(table: Any) -> pa.Table:
    return table if isinstance(table, pa.Table) else pa.table(table)


def _arrow_array(given: Any) -> pa.Array:
    """Return a column of pandas, an array, a tensor or a list as an Arrow array."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(given, pandas.Series):
        return _of_series(given)
    if hasattr(given, "__arrow_c_array__") or hasattr(given, "__arrow_c_stream__"):
        return pa.chunked_array(given) if hasattr(given, "__arrow_c_stream__") else pa.array(given)
    if hasattr(given, "toarray"):  # a sparse matrix of scipy
        given = given.toarray()
    if isinstance(given, list | tuple):
        return pa.array([_cell(cell) for cell in given], from_pandas=False)
    return _of_numpy(as_numpy(given))


def as_numpy(given: Any) -> np.ndarray:
    """Return an array, a tensor on any device and of any layout, or another sequence as a numpy array."""
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = given.to_dense() if str(given.layout) != "torch.strided" else given
        given = given.float() if str(given.dtype) == "torch.bfloat16" else given
    return np.asarray(given)


def _of_numpy(array: np.ndarray) -> pa.Array:
    if array.dtype.kind == "O":
        return pa.array([_cell(cell) for cell in array], from_pandas=False)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.ndim == 1:
        return pa.array(array)
    rows = np.ascontiguousarray(array).reshape(len(array), -1)
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])


def _of_series(series: pd.Series[Any]) -> pa.Array:
    import pandas as pd  # whoever has a Series has imported it

    if isinstance(series.dtype, pd.SparseDtype):
        series = series.sparse.to_dense()
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iuf":
        series = series.astype(series.dtype.newbyteorder("="), copy=False)
    if series.dtype != object:
        return pa.array(series, from_pandas=not pd.api.types.is_float_dtype(series.dtype))
    # Only missing cells are null. NaN inside an array must stay NaN, and from_pandas=True would make it null.
    cells = zip(series, series.isna().tolist(), strict=True)
    return pa.array([None if missing else _cell(cell) for cell, missing in cells], from_pandas=False)


def _cell(cell: Any) -> Any:
    """Return a cell that Arrow can read: tensors, vectors of Spark ML and arrays of several dimensions become flat arrays."""
    if cell is None or isinstance(cell, str | bytes | int | float | list | tuple):
        return cell
    if hasattr(cell, "toArray"):
        return cell.toArray()
    if hasattr(cell, "toarray"):
        return cell.toarray().reshape(-1)
    if hasattr(cell, "__array__") and not isinstance(cell, np.generic):
        array = as_numpy(cell)
        return array if array.ndim == 1 else array.reshape(-1)
    return cell
