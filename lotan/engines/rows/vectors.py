"""Conversion between Arrow's `list<float>` columns and numpy's rows, without a copy if there is no null."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def from_lists(column: pa.Array, width: int | None = None, absent: float = 0.0) -> npt.NDArray[np.float32]:
    """Return a column of equally long lists as [rows, width]; a null row becomes a row of `absent`.

    Args:
        column: The column, `list<float>`.
        width: The numbers per row. None: found from the data, which needs one row that is not null.
        absent: The number that fills a null row.

    Raises:
        ValueError: If the lists are not all `width` long.
    """
    rows = len(column)
    flat: npt.NDArray[np.float32] = column.flatten().to_numpy(zero_copy_only=False)
    present = rows - column.null_count
    if width is None:
        width = len(flat) // present if present else 0
    if len(flat) != present * width:
        raise ValueError(f"{present} vectors of {width} numbers were expected, and {len(flat)} numbers came")
    if present == rows:
        return flat.reshape(rows, width)
    dense = np.full((rows, width), absent, dtype=np.float32)
    dense[column.is_valid().to_numpy(zero_copy_only=False)] = flat.reshape(present, width)
    return dense


def to_lists(rows: npt.NDArray[np.float32]) -> pa.ListArray:
    """Return [rows, width] (or any [rows, ...], flattened) as a `list<float>` column. It shares contiguous memory."""
    count = len(rows)
    width = int(np.prod(rows.shape[1:], dtype=np.int64))
    flat = np.ascontiguousarray(rows, dtype=np.float32).reshape(-1)
    offsets = np.arange(count + 1, dtype=np.int64) * width
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"{count} rows of {width} numbers do not fit one Arrow batch; use smaller chunks")
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(flat))
