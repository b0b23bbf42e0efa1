"""Reads vertices whose features do not fit in memory: part by part into a file, from which they are read when needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lotan.graph.arrays import Ids, VertexColumns
from lotan.graph.column_names import ColumnNames
from lotan.graph.columns import Floats, feature_rows, vertex_columns
from lotan.graph.faults import example_row, ragged
from lotan.graph.file_tables import read_rows, unreadable, width_of
from lotan.graph.places import Place
from lotan.memory.mapped import MappedMemory, give_back
from planner.chunks import PART_BYTES

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

FLOAT = 4  # bytes of a number
LEAST_ROWS = 64  # of a part, however wide they are


def vertices_in_parts(place: Place, table: Dataset, names: ColumnNames, mapped: MappedMemory) -> VertexColumns:
    """Read the vertices, with features in a file. What else vertices have is read at once.

    Args:
        place: the place of the vertices.
        table: the table there, which is open.
        names: the columns' names, as the table has them.
        mapped: the files.

    Raises:
        EngineError: the disk is full.
        GraphError: there are no rows, a column has a bad value, or a file is truncated. Of features, an error counts the
            rows of the part in which it was found.
    """
    bare = replace(names, features=(), batch=None)
    found = vertex_columns(read_rows(place, table, bare.of_vertices()), bare)
    wanted = names.of_features()
    if not wanted:
        return found
    width, features, first = width_of(table, names.feature_columns), None, 0
    for part in table_parts(place, table, wanted, max(LEAST_ROWS, PART_BYTES // (FLOAT * max(1, width)))):
        ids = found.ids[first : first + part.num_rows]
        rows = feature_rows(part, ids, names)
        if features is None:
            features = mapped.new(len(found.ids) * rows.shape[1]).numpy().reshape(len(found.ids), rows.shape[1])
        if rows.shape[1] != features.shape[1]:
            raise _differ(names, found.ids, first, features, rows)
        features[first : first + len(rows)] = rows
        give_back(features)
        first += len(rows)
    assert features is not None  # there are vertices
    return replace(found, features=features)


def table_parts(place: Place, table: Dataset, columns: list[str], rows: int) -> Iterator[pa.Table]:
    """Yield some columns of a table, so many rows at a time, with hardly more than these in memory."""
    from pyarrow import dataset  # here, as in `open_table`

    plain = dataset.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True)
    options = {"fragment_scan_options": plain} if place.format == "parquet" else {}
    given = {"columns": columns, "batch_size": rows, "batch_readahead": 1, "fragment_readahead": 1, **options}
    try:
        for batch in table.to_batches(**given):
            if batch.num_rows:
                yield pa.Table.from_batches([batch])
    except (OSError, pa.ArrowException) as error:
        raise unreadable(place, error) from error
    finally:
        pa.default_memory_pool().release_unused()


def _differ(names: ColumnNames, ids: Ids, first: int, before: Floats, rows: Floats) -> Exception:
    """Build the error for a part whose rows have another width than those before it."""
    ours, theirs = rows.shape[1], before.shape[1]
    if ours < theirs:
        count, example = len(rows), example_row(ids[first], f"{ours} numbers")
    else:
        count, example = first, example_row(ids[0], f"{theirs} numbers")
    return ragged(names.feature_columns[0], count, max(ours, theirs), example)
