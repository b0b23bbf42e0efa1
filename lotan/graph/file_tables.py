"""Tables in files, read with Arrow. A table may be one file, or a folder of part files, perhaps with partition columns.

Arrow's file systems reach local paths, and URIs such as `s3://`, `gs://`, `hdfs://` and `abfss://`; those of fsspec, if it
is installed, reach others.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lotan.errors import GraphError
from lotan.graph.column_names import ColumnNames
from lotan.graph.faults import fault, reason
from lotan.graph.places import Place
from planner.edge_columns import EdgeData
from planner.statistics import Statistics

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset
    from pyarrow.fs import FileSystem

LOGS: Mapping[str, str] = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
"""The folders of logs beside a table's Parquet files, which may hold deleted rows, and the formats they belong to."""
_ICEBERG = (".metadata.json", "version-hint.text")
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss"}  # Hadoop's name of a scheme, and Arrow's


def located(place: Place) -> tuple[FileSystem, str]:
    """Return Arrow's file system of a place, and the path in it.

    Raises:
        GraphError: Arrow has no file system for the URI, or cannot reach it.
    """
    from pyarrow import fs

    if place.where == "path":
        return fs.LocalFileSystem(), place.name
    scheme, colon, rest = place.name.partition(":")
    try:
        found: tuple[FileSystem, str] = fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}{colon}{rest}")
        return found
    except (OSError, pa.ArrowException) as error:
        other = _by_fsspec(place.name)
        if other is not None:
            return other
        raise _unreachable(place, error) from error


def _unreachable(place: Place, error: Exception) -> GraphError:
    """Build the error for a URI that Arrow cannot reach."""
    mend = "Start a Spark session that reaches it, or copy the files here."
    return fault(place.name, "", f"cannot be reached without Spark: {reason(error)}", mend)


def _by_fsspec(uri: str) -> tuple[FileSystem, str] | None:
    """Return the file system of a URI that fsspec has, if it is installed and knows the scheme."""
    from pyarrow import fs

    try:
        files, path = import_module("fsspec.core").url_to_fs(uri)
    except (ImportError, ValueError, OSError):  # no fsspec, no package for the scheme, or no such scheme
        return None
    if "file" in files.protocol:  # what has one slash only, such as dbfs:/graph, is taken for a local path
        return None
    return fs.PyFileSystem(fs.FSSpecHandler(files)), path


def require_plain(place: Place, files: FileSystem, path: str) -> None:
    """Refuse a folder of a table format with a log.

    Raises:
        GraphError: the folder is such a table. The message has the line that reads it.
    """
    name = _managed_format(files, path)
    if name is not None:
        form = name.split()[0].lower()
        problem = f"is a table of {name}, whose Parquet files may hold deleted rows"
        mend = f'Let Spark read it: give format="{form}", or --format {form}.'
        raise fault(place.name, "", problem, mend)


def _managed_format(files: FileSystem, path: str) -> str | None:
    """Return the name of the format whose log a folder has, or None if it has no log."""
    from pyarrow import fs

    held = files.get_file_info([f"{path}/{log}" for log in (*LOGS, "metadata")])
    folders = [info.base_name for info in held if info.type == fs.FileType.Directory]
    if "metadata" in folders:
        inside = files.get_file_info(fs.FileSelector(f"{path}/metadata"))
        if any(info.base_name.endswith(_ICEBERG) for info in inside):
            return "Iceberg"
    return next((LOGS[name] for name in folders if name in LOGS), None)


def open_table(place: Place) -> Dataset:
    """Open a file, or a folder of part files, with the columns of all its files and of its partitions.

    Types that differ between files become the widest of them, such as int64 for int32 beside int64.

    Raises:
        GraphError: a file is missing or has another format, the types of a column fit into none, or the folder is a table
            of Delta Lake, Hudi or Iceberg.
    """
    from pyarrow import dataset, fs  # here, for it loads pandas, which a graph in arrays has no need of

    try:
        files, path = located(place)
        if files.get_file_info(path).type != fs.FileType.Directory:
            return dataset.dataset(path, format=_format(place), filesystem=files)
        require_plain(place, files, path)
        found = dataset.dataset(path, format=_format(place), filesystem=files, partitioning="hive")
        schema = _whole_schema(place, found)
        if schema.equals(found.schema):
            return found
        return dataset.dataset(path, schema, _format(place), files, partitioning="hive")
    except (OSError, pa.ArrowException) as error:
        raise unreadable(place, error) from error


def _format(place: Place) -> Any:
    """Return the format for Arrow. As in Spark, an empty field of CSV is null, and no other text is."""
    if place.format != "csv":
        return place.format
    from pyarrow import csv, dataset

    options = csv.ConvertOptions(null_values=[""], strings_can_be_null=True)
    return dataset.CsvFileFormat(convert_options=options)


def _whole_schema(place: Place, found: Dataset) -> pa.Schema:
    """Return the schema of all files and of the partitions of a table.

    Arrow reads the values of a partition as integers, or else as texts. Texts that are all numbers become floats, as in Spark.
    """
    from pyarrow import dataset

    fragments = list(found.get_fragments())
    schemas = [fragment.physical_schema for fragment in fragments]
    try:
        schema = pa.unify_schemas([found.schema, *schemas], promote_options="permissive")
    except pa.ArrowTypeError as error:
        mend = "Write all its files with one type for each column."
        raise fault(place.name, "", f"its files differ: {reason(error)}", mend) from error
    keys = [dataset.get_partition_keys(fragment.partition_expression) for fragment in fragments]
    for name in keys[0] if keys else ():
        texts = [key[name] for key in keys if isinstance(key.get(name), str)]
        if texts and all(map(_is_number, texts)):
            schema = schema.set(schema.get_field_index(name), pa.field(name, pa.float64()))
    return schema


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_rows(place: Place, table: Dataset, columns: list[str]) -> pa.Table:
    """Read all rows of some columns of a table that is open.

    Raises:
        GraphError: a file is truncated, or its values do not fit the types of the table.
    """
    try:
        return table.to_table(columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(place, error) from error


def is_there(place: Place) -> bool:
    """Return True if something is at a place, as far as Arrow can tell.

    Raises:
        GraphError: Arrow cannot reach it.
    """
    from pyarrow import fs

    files, path = located(place)
    try:
        return bool(files.get_file_info(path).type != fs.FileType.NotFound)
    except (OSError, pa.ArrowException) as error:
        raise _unreachable(place, error) from error


def check_footers(place: Place) -> None:
    """Read the footers of all files of a table.

    Raises:
        GraphError: `open_table` raises it, or a file is truncated.
    """
    try:
        open_table(place).count_rows()
    except (OSError, pa.ArrowException) as error:
        raise unreadable(place, error) from error


def unreadable(place: Place, error: Exception) -> GraphError:
    """Build the error for a table that Arrow cannot read."""
    missing = isinstance(error, FileNotFoundError)
    form = {"parquet": "Parquet", "csv": "CSV", "json": "JSON", "orc": "ORC"}[place.format]
    if missing:
        return fault(place.name, "", "there is no such file", "Check the path.")
    problem = f"cannot be read as {form}: {reason(error)}"
    return fault(place.name, "", problem, "It may be truncated: copy or write it again.")


def estimate(vertices: Dataset, edges: Dataset, names: ColumnNames, undirected: bool) -> Statistics:
    """Return statistics from the files' footers, without reading rows. Other formats than Parquet are scanned for it.

    Self-loops are not counted. With `undirected`, the number of edges is an upper bound. The width of features with rows
    of different lengths is an average.
    """
    attributes, features = names.edge_feature_columns, names.feature_columns
    width = width_of(edges, attributes)
    return Statistics(
        vertices=vertices.count_rows(),
        edges=edges.count_rows() * (2 if undirected else 1),
        width=width_of(vertices, features) + (names.batch is not None),
        weighted=names.weight is not None,
        edge_data=EdgeData(width if attributes else None, names.edge_type is not None),
    )


def width_of(table: Dataset, columns: tuple[str, ...]) -> int:
    """Return the width of features: of one column of arrays, or of several columns of numbers."""
    return _numbers_in_a_row(table, columns[0]) if len(columns) == 1 else len(columns)


def _numbers_in_a_row(table: Dataset, column: str) -> int:
    """Return how many numbers a row of a column has in the first row group, or 0 without rows.

    It is read from the footer, because reading a single row takes the memory of thousands of rows.
    """
    for fragment in table.get_fragments():
        metadata: Any = getattr(fragment, "metadata", None)
        for number in range(metadata.num_row_groups if metadata is not None else 0):
            group = metadata.row_group(number)
            chunks = (group.column(i) for i in range(group.num_columns))
            counts = [chunk.num_values for chunk in chunks if chunk.path_in_schema.split(".")[0] == column]
            if group.num_rows and counts:
                return int(counts[-1]) // int(group.num_rows)  # a Spark ML vector's values come last
    return 0
