"""Files of vertices' ids: one column `id` of integers or strings, as Parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lotan.files import write_atomically
from lotan.graph.arrays import Ids


def write_ids(path: Path, ids: Ids) -> None:
    """Write ids to a file, completely or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq  # here, because training needs neither

    write_atomically(path, lambda stream: pq.write_table(pa.table({"id": pa.array(ids)}), stream))


def read_ids(path: Path) -> Ids:
    """Return the ids of a file, in the form that `GraphArrays` has them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file cannot be read, or its ids are not ascending.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise FileNotFoundError(2, "No such file", str(path))
    try:
        column = pq.read_table(path).column("id")
    except (pa.ArrowInvalid, KeyError) as error:
        raise ValueError(f"{path.name} is no file of ids: {error}") from error
    ids = column.to_numpy(zero_copy_only=False) if pa.types.is_integer(column.type) else None
    ids = np.array(column.to_pylist(), dtype=object) if ids is None else ids
    if not bool(np.all(ids[1:] > ids[:-1])):
        raise ValueError(f"{path.name} has ids that are not ascending")
    return ids
