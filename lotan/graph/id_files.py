"""Files of vertices' ids, as Parquet: one column `id` of integers or strings.

For several types of vertices, a column `type` names the type of each id. Integers are in `id` then, and strings in `text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lotan.files import write_atomically
from lotan.graph.arrays import Ids

if TYPE_CHECKING:
    import pyarrow as pa

ONE_TYPE = ""
"""The name of the type of the vertices of a graph that has one type."""


def write_ids(path: Path, ids: Mapping[str, Ids]) -> None:
    """Write ids by the type of their vertices to a file, completely or not at all."""
    import pyarrow.parquet as pq  # here, because training does not need it

    table = _table(ids)
    write_atomically(path, lambda stream: pq.write_table(table, stream))


def _table(ids: Mapping[str, Ids]) -> pa.Table:
    import pyarrow as pa

    if ids.keys() == {ONE_TYPE}:
        return pa.table({"id": pa.array(ids[ONE_TYPE])})
    parts = []
    for name, own in ids.items():
        textual, none = own.dtype == object, [None] * len(own)
        columns = {"type": [name] * len(own), "id": none if textual else own, "text": own if textual else none}
        types = {"type": pa.string(), "id": pa.int64(), "text": pa.string()}
        parts.append(pa.table({key: pa.array(column, types[key]) for key, column in columns.items()}))
    return pa.concat_tables(parts)


def read_ids(path: Path) -> dict[str, Ids]:
    """Return the ids of a file by the type of their vertices, in the form that `GraphArrays` has them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file cannot be read, or its ids are not ascending.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if not path.is_file():
        raise FileNotFoundError(2, "No such file", str(path))
    try:
        table = pq.read_table(path)
        if "type" not in table.column_names:
            return {ONE_TYPE: _ids(path, table.column("id"))}
        found = {}
        for name in table.column("type").unique().to_pylist():
            own = table.filter(pc.equal(table.column("type"), name))
            found[name] = _ids(path, own.column("id" if own.column("text").null_count else "text"))
    except (pa.ArrowInvalid, KeyError) as error:
        raise ValueError(f"{path.name} is no file of ids: {error}") from error
    return found


def _ids(path: Path, column: pa.ChunkedArray) -> Ids:
    import pyarrow as pa

    ids = column.to_numpy(zero_copy_only=False) if pa.types.is_integer(column.type) else None
    ids = np.array(column.to_pylist(), dtype=object) if ids is None else ids
    if not bool(np.all(ids[1:] > ids[:-1])):
        raise ValueError(f"{path.name} has ids that are not ascending")
    return ids
