"""The sources of graphs: tables of a user, files, places that Spark reads, and arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lotan.errors import GraphError
from lotan.graph import files
from lotan.graph.arrays import EdgeColumns, VertexColumns
from lotan.graph.built_in import BUILT_IN
from lotan.graph.column_names import NAME_ARGUMENTS, ColumnNames, column_names
from lotan.graph.columns import edge_columns, vertex_columns
from lotan.graph.file_tables import is_there, open_table
from lotan.graph.files import TablePlaces
from lotan.graph.given_tables import arrow_table, form_of, from_pandas_on_spark, names_of_columns, repeatable
from lotan.graph.given_types import GivenTypes
from lotan.graph.places import is_uri, place_of
from lotan.graph.table_kinds import is_spark
from lotan.graph.triples import read_triples, triples_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNREAD_EDGES = ("weights", "edge_weight", "edge_attr", "edge_type")
"""Columns of edges that look like data. A run says so if they are there and not named."""
UNREAD_LABELS = ("y", "labels", "target", "class")
"""Columns of vertices that look like labels. A run says so if there is no column `label`, and none is named."""


@dataclass(frozen=True)
class Source:
    """A graph before anything is read: exactly one of `load`, `files` and `tables` is set."""

    names: ColumnNames
    load: Callable[[], tuple[VertexColumns, EdgeColumns]] | None = None  # reads what is in this process
    files: TablePlaces | None = None
    tables: tuple[DataFrame, DataFrame] | None = None
    notes: tuple[str, ...] = ()  # remarks on what was given and is not read
    types: GivenTypes | None = None  # those of vertices, if there are several
    # as `load`, with the splits and relations of edges; None: `load` reads them, or they are in files or in Spark
    load_linked: Callable[[], tuple[VertexColumns, EdgeColumns]] | None = None

    def read_linked(self) -> tuple[VertexColumns, EdgeColumns]:
        """Read as `read` does, with the splits and relations of edges if they are there.

        Raises:
            GraphError: as `read`.
        """
        if self.files is not None:
            return self.files.read(self.names.with_links())
        return self.read() if self.load_linked is None else self.load_linked()

    def read(self) -> tuple[VertexColumns, EdgeColumns]:
        """Read the vertices and edges of a graph outside Spark, in this process.

        Raises:
            GraphError: a file cannot be read, a column is missing, or it has a bad value.
        """
        if self.files is not None:
            return self.files.read(self.names)
        assert self.load is not None, "a graph in Spark is collected instead"
        return self.load()

    def __reduce__(self) -> Any:
        """Pickle the columns of a graph in memory, or the places of a graph in files.

        Raises:
            GraphError: the graph is in Spark.
        """
        if self.tables is not None:
            raise GraphError(
                "A graph in Spark cannot be pickled, as its tables belong to a session. Save it by graph.save(path), "
                "and read it by lotan.Graph.read(path)."
            )
        columns = None if self.load is None else self._all()
        return _restored, (self.names, columns, self.files, self.notes, self.types)

    def links(self) -> EdgeColumns | None:
        """Return the edges with their splits and relations; None if there are none, or if they are something else."""
        if self.files is not None:
            names = self.names.with_links().present_edges(open_table(self.files.edges).schema.names)
            if names.edge_split is None and names.relation is None:
                return None
        try:
            edges = self.read_linked()[1]
        except GraphError:
            return None
        return edges if edges.split is not None or edges.relation is not None else None

    def _all(self) -> tuple[VertexColumns, EdgeColumns]:
        """Read what is in this process, with splits and relations of edges unless they are something else by these names."""
        try:
            return self.read_linked()
        except GraphError:
            return self.read()


def of_columns(vertices: VertexColumns, edges: EdgeColumns, notes: tuple[str, ...] = ()) -> Source:
    """Return the source of columns that were read already."""
    return Source(ColumnNames(), load=lambda: (vertices, edges), notes=notes)


def _restored(
    names: ColumnNames,
    columns: tuple[VertexColumns, EdgeColumns] | None,
    tables: TablePlaces | None,
    notes: tuple[str, ...],
    types: GivenTypes | None,
) -> Source:
    """Return a source that was pickled."""
    if columns is None:
        return Source(names, files=tables, notes=notes, types=types)
    return replace(of_columns(*columns, notes), names=names, types=types)


def of_tables(vertices: Any, edges: Any, names: ColumnNames) -> Source:
    """Return the source of two tables. If one of them is in Spark, so is the graph, and the other is sent there.

    Raises:
        GraphError: a table is in no form that can be read.
    """
    vertices, edges = from_pandas_on_spark(vertices), from_pandas_on_spark(edges)
    forms = form_of(vertices, "vertices"), form_of(edges, "edges")
    vertices, edges = repeatable(vertices), repeatable(edges)
    names = names.with_present_weight(names_of_columns(edges)).with_matched_features(names_of_columns(vertices))
    notes = (*_unread_labels(names_of_columns(vertices), names), *_unread_edges(names_of_columns(edges), names))
    if "spark" not in forms:
        linked = names.with_links()
        return Source(
            names,
            load=lambda: _load(vertices, edges, names),
            notes=notes,
            load_linked=lambda: _load(vertices, edges, linked),
        )
    spark = (vertices if forms[0] == "spark" else edges).sparkSession
    from lotan.graph import spark_tables

    if not is_spark(vertices):
        vertices = spark_tables.sent(spark, _vertices(vertices, names))
    if not is_spark(edges):
        edges = spark_tables.sent(spark, _edges(edges, names))
    return Source(names, tables=(vertices, edges), notes=notes)


def _load(vertices: Any, edges: Any, names: ColumnNames) -> tuple[VertexColumns, EdgeColumns]:
    found = vertex_columns(_vertices(vertices, names), names)
    return found, edge_columns(_edges(edges, names), names, found.ids)


def _vertices(table: Any, names: ColumnNames) -> pa.Table:
    """Return the named columns of a table of vertices in memory."""
    return arrow_table(table, "vertices", names.present(names_of_columns(table)).of_vertices())


def _edges(table: Any, names: ColumnNames) -> pa.Table:
    """Return the named columns of a table of edges in memory."""
    return arrow_table(table, "edges", names.present_edges(names_of_columns(table)).of_edges())


def _unread_labels(columns: list[str], names: ColumnNames) -> tuple[str, ...]:
    """Return a note on a column of the vertices that looks like labels, if no labels are read."""
    found = [name for name in columns if name in UNREAD_LABELS and name not in names.present(columns).feature_columns]
    if names.label != "label" or "label" in columns or not found:
        return ()
    return (
        f"vertices: there is no column label, and {found[0]} is not read; name it where the graph is made, as label",
    )


def _unread_edges(columns: list[str], names: ColumnNames) -> tuple[str, ...]:
    """Return a note on the columns of the edges that look like data and are not read."""
    read = {names.weight, names.edge_type, *names.edge_feature_columns}
    found = [name for name in columns if name in UNREAD_EDGES and name not in read]
    if not found:
        return ()
    are, them = (
        (f"the columns {', '.join(found)} are", "them") if len(found) > 1 else (f"the column {found[0]} is", "it")
    )
    return (f"edges: {are} not read; name {them} where the graph is made, as weight, edge_features or edge_type",)


def of_path(
    path_or_name: str | Path, given: Mapping[str, Any], format: str | None, spark: SparkSession | None
) -> Source:
    """Return the source of a path, a URI of a folder, or a name.

    Args:
        path_or_name: the path, URI or name.
        given: the names of columns, by argument.
        format: the format of the tables, or None to find it out.
        spark: a session that reads what Arrow cannot, or None for the active one.

    Raises:
        GraphError: there is no such graph, or a file cannot be read.
    """
    triples = None if is_uri(path_or_name) else triples_at(path_or_name, files.data_directories())
    if triples is not None:
        if given:
            raise GraphError(f"{triples} has triples, and no columns to name: leave out {', '.join(given)}.")
        return of_columns(*read_triples(triples))
    found = files.find(path_or_name, format)
    if isinstance(found, TablePlaces):
        return of_places(_existing(found, spark or _active()), given, spark)
    if given:
        raise GraphError(f"{found} has arrays, and no columns to name: leave out {', '.join(given)}.")
    archive = files.read_npz(found)
    unread = f"{found.name}: the arrays {', '.join(archive.unread)} are not read, as they mean nothing to a graph"
    return of_columns(archive.vertices, archive.edges, (unread,) if archive.unread else ())


def of_places(tables: TablePlaces, given: Mapping[str, Any], spark: SparkSession | None) -> Source:
    """Return the source of two tables by their places: files for Arrow, or tables of Spark.

    Local files are left to whoever reads them later. URIs are read by Spark if there is a session, and else by Arrow.

    Raises:
        GraphError: a table cannot be read, or Spark is needed and there is no session.
    """
    local = all(place.where == "path" for place in tables)
    session = spark if spark is not None or local else _active()
    if tables.by_arrow and (local or session is None):
        present = open_table(tables.edges).schema.names
        names = _named(given, present)
        if names.has_pattern:
            names = names.with_matched_features(open_table(tables.vertices).schema.names)
        return Source(names, files=tables, notes=_unread_edges(present, names))
    session = session or _active()
    if session is None:
        place = next(place for place in tables if not place.by_arrow)
        what = {"table": "a table of Spark's catalog", "query": "a query"}.get(place.where, f"of format {place.format}")
        raise GraphError(
            f"{place.name[:60]} is {what}, which needs Spark. Start a session first, or pass it: spark=session."
        )
    from lotan.graph import spark_tables

    vertices, edges = (spark_tables.read(session, place) for place in tables)
    names = _named(given, edges.columns).with_matched_features(vertices.columns)
    notes = (*_unread_labels(vertices.columns, names), *_unread_edges(edges.columns, names))
    return Source(names, tables=(vertices, edges), notes=notes)


def _existing(tables: TablePlaces, session: SparkSession | None) -> TablePlaces:
    """Return the places of two tables below a URI by the names that exist there, with the format as an ending or without.

    Other places are returned as they are.
    """
    plain = TablePlaces(*(replace(place, name=place.name.removesuffix(f".{place.format}")) for place in tables))
    if tables.vertices.where != "uri" or plain == tables:
        return tables
    if session is None:
        found = is_there(tables.vertices) or not is_there(plain.vertices)
    else:
        from lotan.graph import spark_tables

        found = spark_tables.is_there(session, tables.vertices) or not spark_tables.is_there(session, plain.vertices)
    return tables if found else plain


def needs_spark(tables: TablePlaces, in_process: bool) -> bool:
    """Return True if Spark must read the tables.

    Args:
        tables: the places of the tables.
        in_process: True for the engine that trains in this process, which reads URIs with Arrow.
    """
    return not tables.by_arrow or (not in_process and any(place.where == "uri" for place in tables))


def places(vertices: str | Path, edges: str | Path, format: str | None) -> TablePlaces:
    """Return the places that two texts name.

    Raises:
        GraphError: a text names nothing, or the format is unknown.
    """
    return TablePlaces(place_of(vertices, format), place_of(edges, format))


def places_at(path_or_name: str | Path, format: str | None) -> TablePlaces | None:
    """Return the places of the tables in a directory, or at a URI; None for an archive or a built-in graph.

    Raises:
        GraphError: there is no such graph.
    """
    if str(path_or_name) in BUILT_IN or (
        not is_uri(path_or_name) and triples_at(path_or_name, files.data_directories()) is not None
    ):
        return None
    found = files.find(path_or_name, format)
    return found if isinstance(found, TablePlaces) else None


def _named(given: Mapping[str, Any], columns: list[str]) -> ColumnNames:
    """Return the names that a user gives for tables, of whose edges the columns are known."""
    unknown = [name for name in given if name not in NAME_ARGUMENTS]
    if unknown:
        raise GraphError(f"There is no argument {unknown[0]!r}; columns are named by {', '.join(NAME_ARGUMENTS)}.")
    return column_names(**given).with_optional(columns, given)


def _active() -> SparkSession | None:
    """Return the active session, without importing Spark if nobody has."""
    if "pyspark" not in sys.modules:
        return None
    from lotan.hosts.spark_session import active_session

    return active_session()
