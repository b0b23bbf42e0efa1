"""Tables that a Spark session reads: from files, from its catalog, or by a query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from lotan.borders import spark_translated
from lotan.errors import GraphError
from lotan.graph.faults import fault
from lotan.graph.file_tables import check_footers, open_table
from lotan.graph.kinds import is_list
from lotan.graph.places import PACKAGES, Place, is_uri
from lotan.graph.table_kinds import is_connect

_NO_SOURCE = ("DATA_SOURCE_NOT_FOUND", "AVRO_DATA_SOURCE_NOT_ENABLED")
"""The words of Spark's errors for a format that the session does not know."""
_OPTIONS = {"csv": {"header": "true", "inferSchema": "true"}}


def read(spark: SparkSession, place: Place) -> DataFrame:
    """Return the DataFrame of a place. Rows are read when something asks for them.

    Raises:
        GraphError: there is no such table, or Spark cannot read it.
    """
    if place.where == "path" and place.by_arrow:
        check_footers(place)  # its errors are better than Spark's
        schema = _schema_for_spark(place)
    else:
        schema = None
    with spark_translated(GraphError, f"Spark cannot read {place.name[:100]}"):
        if place.where == "table":
            return spark.table(place.name)
        if place.where == "query":
            return spark.sql(place.name)
        reader = spark.read.format(place.format).options(**_OPTIONS.get(place.format, {}))
        if schema is not None:
            reader = reader.schema(from_arrow_schema(schema, prefer_timestamp_ntz=True))
        with _package_named(spark, place):
            return reader.load(place.name)


@contextmanager
def _package_named(spark: SparkSession, place: Place) -> Iterator[None]:
    """Name the package that a session lacks for a format."""
    try:
        yield
    except Exception as error:
        if place.format not in PACKAGES or not any(words in str(error) for words in _NO_SOURCE):
            raise
        package = PACKAGES[place.format].format(version=spark.version, minor=spark.version.rpartition(".")[0])
        version = f" VERSION is that for Spark {spark.version}." if "VERSION" in package else ""
        raise GraphError(
            f"{place.name[:100]}: this Spark session reads no {place.format}, because it has no package for it. Start it with "
            f'.config("spark.jars.packages", "{package}"), or by spark-submit --packages {package}.{version}'
        ) from error


def is_there(spark: SparkSession, place: Place) -> bool:
    """Return True if something is at a URI, as far as the session can tell.

    Raises:
        GraphError: the session has no file system for it, or cannot reach it.
    """
    with spark_translated(GraphError, f"Spark cannot reach {place.name[:100]}"):
        java: Any = spark._jvm
        path = java.org.apache.hadoop.fs.Path(place.name)
        return bool(path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).exists(path))


def require_room(tables: tuple[DataFrame, DataFrame], path: str, names: tuple[str, ...], overwrite: bool) -> None:
    """Check that a graph in Spark can be saved at a place.

    Args:
        tables: the graph's tables.
        path: the directory or its URI.
        names: the names of what is written there.
        overwrite: if True, the user allows to replace a graph that is there.

    Raises:
        GraphError: a graph is there, and `overwrite` is False; or the tables are read from what would be replaced.
    """
    spark, places = tables[0].sparkSession, [f"{path}/{name}" for name in names]
    if overwrite:
        read = [file for table in tables for file in table.inputFiles()]
        if any(_lies_in(file, place) for file in read for place in places):
            raise GraphError(
                f"{path} has the tables that the graph is made of, and Spark would remove their rows before it reads them. "
                "Name another place."
            )
    elif not is_connect(tables[0]) and any(is_there(spark, Place("uri", place)) for place in places):
        raise GraphError(f"{path} has a graph already. Name another place, or pass overwrite=True to replace it.")


def _lies_in(file: str, place: str) -> bool:
    """Return True if a file, by its URI, may be a place or lie in it. Schemes such as s3 and s3a count as one.

    >>> _lies_in("file:///tmp/a%20b/edges.parquet/part-0", "/tmp/a b/edges.parquet")
    True
    >>> _lies_in("s3a://one/g/edges.parquet", "s3://two/g/edges.parquet")
    False
    """
    of_file, of_place = urlsplit(file), urlsplit(place if is_uri(place) else Path(place).absolute().as_uri())
    hosts = {part.netloc for part in (of_file, of_place) if part.netloc}
    inside, outside = (unquote(part.path).rstrip("/") for part in (of_file, of_place))
    return len(hosts) < 2 and f"{inside}/".startswith(f"{outside}/")


def _schema_for_spark(place: Place) -> pa.Schema | None:
    """Return the schema that Arrow finds, if the files of a table differ. Spark looks at the columns of one file only.

    Raises:
        GraphError: a column has a type that Spark refuses.
    """
    table = open_table(place)
    for field in table.schema:
        if _is_half(field.type):
            mend = "Write it as float32, or train on engine local."
            raise fault(place.name, field.name, "is of half floats, which Spark cannot read", mend)
    if place.format != "parquet":
        return None
    schemas = [fragment.physical_schema for fragment in table.get_fragments()]
    return table.schema if any(not schema.equals(schemas[0]) for schema in schemas) else None


def _is_half(kind: pa.DataType) -> bool:
    return _is_half(kind.value_type) if is_list(kind) else bool(pa.types.is_float16(kind))


def sent(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return a table of this process as a DataFrame, for a graph whose other table is in Spark.

    Raises:
        GraphError: unsigned numbers are too large for Spark.
    """
    columns = {}
    for name in table.column_names:
        column, kind = table.column(name), table.column(name).type
        if pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        if pa.types.is_fixed_size_list(kind):
            column = column.cast(pa.list_(kind.value_type))
        if pa.types.is_float16(kind):
            column = column.cast(pa.float32())
        if pa.types.is_unsigned_integer(kind):
            try:
                column = column.cast(pa.int64())
            except pa.ArrowInvalid as error:
                raise fault("tables", name, "holds numbers beyond 2**63 - 1", "Give them as strings.") from error
        columns[name] = column
    return spark.createDataFrame(pa.table(columns))
