"""The links of a graph part by part: its edges with their splits and relations, which need not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lotan.graph.arrays import EdgeColumns, Ids, order_of_ids
from lotan.graph.column_names import BARE, ColumnNames
from lotan.graph.columns import edge_columns, require_columns, vertex_columns
from lotan.graph.file_tables import open_table, read_rows, unreadable
from lotan.graph.files import TablePlaces
from lotan.graph.sources import Source


@dataclass(frozen=True)
class LinkParts:
    """The ids of a graph's vertices, and its edges part by part, with nothing but their ends, types, splits and relations."""

    ids: Ids  # ascending [vertices]
    parts: Callable[[], Iterator[EdgeColumns]]  # yields all edges, in the order in which they were given
    unread: tuple[str, ...] = ()  # what edges have besides, in words
    typed: bool = False  # True if edges have types of their own, and not relations alone


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
    has = edges.weight is not None, edges.edge_attr is not None
    return LinkParts(_ascending(vertices.ids), lambda: _slices(edges, rows), _unread(*has), edges.edge_type is not None)


def _unread(weights: bool, attributes: bool) -> tuple[str, ...]:
    return (*["weights"] * weights, *["attributes"] * attributes)


def _ascending(ids: Ids) -> Ids:
    found: Ids = ids[order_of_ids(ids)]
    return found


def _slices(edges: EdgeColumns, rows: int) -> Iterator[EdgeColumns]:
    for start in range(0, len(edges.src), rows):
        some = slice(start, start + rows)
        yield EdgeColumns(
            edges.src[some],
            edges.dst[some],
            None,
            edge_type=None if edges.edge_type is None else edges.edge_type[some],
            split=None if edges.split is None else edges.split[some],
            relation=None if edges.relation is None else edges.relation[some],
        )


def _of_files(places: TablePlaces, source: Source, rows: int) -> LinkParts:
    names = replace(source.names, features=(), label=None, split=None, batch=None, vertex_weight=None)
    vertices = open_table(places.vertices)
    require_columns("vertices", [names.id], vertices.schema.names)
    ids = _ascending(vertex_columns(read_rows(places.vertices, vertices, [names.id]), names).ids)
    edges = open_table(places.edges)
    there = names.present_edges(edges.schema.names)
    plain = replace(names, weight=None, edge_features=None).with_links().present_edges(edges.schema.names)
    require_columns("edges", plain.of_edges(), edges.schema.names)

    def parts() -> Iterator[EdgeColumns]:
        try:
            given = {"columns": plain.of_edges(), "batch_size": rows}
            for batch in edges.to_batches(**given, batch_readahead=1, fragment_readahead=1):
                if batch.num_rows:
                    yield edge_columns(pa.Table.from_batches([batch]), plain, ids)
        except (OSError, pa.ArrowException) as error:
            raise unreadable(places.edges, error) from error
        finally:
            pa.default_memory_pool().release_unused()

    return LinkParts(
        ids, parts, _unread(there.weight is not None, bool(there.edge_feature_columns)), bool(there.edge_type)
    )


def parts_of_tables(vertices: pa.Table, parts: Callable[[], Iterator[pa.Table]], names: ColumnNames) -> LinkParts:
    """Return links that come as tables of Arrow with the names of a graph's own tables.

    Args:
        vertices: the ids.
        parts: a function that yields the edges, part by part.
        names: the names that the columns had, which tell what edges have besides.

    Raises:
        GraphError: an id is null, or occurs twice.
    """
    ids = _ascending(vertex_columns(vertices, BARE).ids)

    def read() -> Iterator[EdgeColumns]:
        for part in parts():
            typed = "edge_type" if "edge_type" in part.column_names else None
            yield edge_columns(part, replace(BARE, edge_type=typed).with_links().present_edges(part.column_names), ids)

    unread = _unread(names.weight is not None, bool(names.edge_feature_columns))
    return LinkParts(ids, read, unread, bool(names.edge_type))


def relation_of(edges: EdgeColumns) -> np.ndarray | None:
    """Return the relation of each edge as it was given, or its type in place of it; None: it has neither."""
    return edges.relation if edges.relation is not None else edges.edge_type
