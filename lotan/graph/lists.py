"""The forms in which Arrow holds columns and rows of numbers, brought to one: a list of plain numbers for each row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lotan.graph.kinds import is_list, kind_of_arrow


def plain_column(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column in one piece, without dictionaries, extensions such as tensors, and views."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(values, pa.ChunkedArray):  # what does not fit in one array stays in several
        values = pa.concat_arrays(values.chunks)
    if isinstance(values.type, pa.BaseExtensionType):
        return plain_column(values.storage)
    if pa.types.is_dictionary(values.type):
        return plain_column(values.dictionary_decode())
    if pa.types.is_string_view(values.type):
        return values.cast(pa.large_string())
    if pa.types.is_list_view(values.type) or pa.types.is_large_list_view(values.type):
        return values.cast(pa.large_list(values.type.value_type))
    return values


def list_column(values: pa.Array) -> pa.Array:
    """Return rows of numbers as lists. Spark ML vectors and arrays of arrays, such as tensors, become flat lists.

    >>> list_column(pa.array([[[1, 2], [3, 4]], None])).to_pylist()
    [[1, 2, 3, 4], None]
    """
    if kind_of_arrow(values.type).base == "vector":
        return _dense(values)
    while is_list(values.type.value_type):
        values = _unnested(values)
    return values


def _unnested(values: pa.Array) -> pa.Array:
    inner = plain_column(values.flatten())
    ends = np.concatenate([[0], np.cumsum(_lengths(inner))])  # of each inner list, in numbers
    offsets = ends[np.concatenate([[0], np.cumsum(_lengths(values))])]
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), inner.flatten(), mask=values.is_null())


def _lengths(values: pa.Array) -> np.ndarray:
    lengths: np.ndarray = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _dense(vectors: pa.StructArray) -> pa.Array:
    """Return Spark ML vectors as lists. `type` is 1 for a dense vector, and 0 for one with the indices of its values."""
    kinds, sizes = (
        pc.fill_null(vectors.field(name), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        for name in ("type", "size")
    )
    absent = vectors.is_null()
    nothing = absent.to_numpy(zero_copy_only=False)
    held = plain_column(vectors.field("values"))
    counts = np.where(nothing, 0, _lengths(held))
    widths = np.where(nothing, 0, np.where(kinds == 1, counts, sizes))
    starts = np.concatenate([[0], np.cumsum(widths)])
    rows = np.repeat(np.arange(len(vectors)), counts)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    sparse = kinds[rows] == 0
    indices = pc.if_else(absent, pa.scalar(None, vectors.field("indices").type), vectors.field("indices"))
    places[sparse] = indices.flatten().to_numpy(zero_copy_only=False)
    numbers = np.zeros(starts[-1], dtype=np.float64)
    values = pc.if_else(absent, pa.scalar(None, held.type), held)
    numbers[starts[rows] + places] = values.flatten().to_numpy(zero_copy_only=False)
    return pa.LargeListArray.from_arrays(pa.array(starts, pa.int64()), pa.array(numbers), mask=absent)
