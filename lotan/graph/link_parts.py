"""The links of a graph part by part: its edges with their splits and relations, which need not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lotan.graph.arrays import EdgeColumns, Ids, order_of_ids
from lotan.graph.column_names import BARE, ColumnNames
from lotan.graph.columns import edge_columns, require_columns, vertex_columns
from lotan.graph.edges_in_files import edges_in_parts
from lotan.graph.file_tables import open_table
from lotan.graph.files import TablePlaces
from lotan.graph.sources import Source


@dataclass(frozen=True)
class LinkParts:
    """The ids of a graph's vertices, and its edges part by part."""

    ids: Ids  # ascending [vertices]
    parts: Callable[[], Iterator[EdgeColumns]]  # yields all edges, in the order in which they were given
    typed: bool = False  # True if edges have types of their own, and not relations alone
    weighted: bool = False
    attributed: bool = False
    flat: bool = False  # True if attributes were given as one number for each edge


def link_parts(source: Source, rows: int) -> LinkParts:
    """Return the links of a graph outside Spark.

    Args:
        source: the source of the graph.
        rows: the edges of a part, at most.

    Raises:
        GraphError: a column of the vertices is missing or has a bad value. The same holds for edges, when they are read.
    """
    if source.files is not None:
        return _of_files(source.files, source, rows)
    vertices, edges = source.read_linked()
    return LinkParts(
        ids=_ascending(vertices.ids),
        parts=lambda: edges.parts(rows),
        typed=edges.edge_type is not None,
        weighted=edges.weight is not None,
        attributed=edges.edge_attr is not None,
        flat=edges.flat,
    )


def _ascending(ids: Ids) -> Ids:
    found: Ids = ids[order_of_ids(ids)]
    return found


def _of_files(places: TablePlaces, source: Source, rows: int) -> LinkParts:
    ids = places.ids(source.names)
    edges = open_table(places.edges)
    there = source.names.with_links().present_edges(edges.schema.names)
    require_columns("edges", there.of_edges(), edges.schema.names)
    return _named(ids, edges_in_parts(places.edges, edges, there, ids, rows), there)


def parts_of_tables(vertices: pa.Table, parts: Callable[[], Iterator[pa.Table]], names: ColumnNames) -> LinkParts:
    """Return links that come as tables of Arrow with the names of a graph's own tables.

    Args:
        vertices: the ids.
        parts: a function that yields the edges, part by part.
        names: the names that the columns had, which tell what edges have.

    Raises:
        GraphError: an id is null, or occurs twice.
    """
    ids = _ascending(vertex_columns(vertices, BARE).ids)

    found = replace(
        BARE,
        weight=None if names.weight is None else "weight",
        edge_features=None if names.edge_features is None else "edge_attr",
        edge_type=None if names.edge_type is None else "edge_type",
    )

    def read() -> Iterator[EdgeColumns]:
        for part in parts():
            yield edge_columns(part, found.with_links().present_edges(part.column_names), ids)

    return _named(ids, read, names)


def _named(ids: Ids, parts: Callable[[], Iterator[EdgeColumns]], names: ColumnNames) -> LinkParts:
    return LinkParts(
        ids,
        parts,
        typed=names.edge_type is not None,
        weighted=names.weight is not None,
        attributed=names.edge_features is not None,
    )


def relation_of(edges: EdgeColumns) -> np.ndarray | None:
    """Return the relation of each edge as it was given, or its type in place of it; None: it has neither."""
    return edges.relation if edges.relation is not None else edges.edge_type
