"""Tables in memory, by the types of their vertices and edges, as one graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lotan.errors import GraphError
from lotan.graph.arrays import EdgeColumns, VertexColumns, order_of_ids, positions_of
from lotan.graph.column_names import ColumnNames
from lotan.graph.columns import edge_columns, vertex_columns
from lotan.graph.faults import EXAMPLES, shown
from lotan.graph.given_labels import GivenLabels, are_classes
from lotan.graph.given_tables import arrow_table, names_of_columns
from lotan.graph.given_types import GivenTypes, check_types, said, sql_type, task_of, types_with
from lotan.graph.sources import Source
from planner.loss import Task
from planner.vertex_types import Relation, VertexTypes

FEATURES = "features"


class OfType(NamedTuple):
    """The vertices of one type, sorted by id."""

    columns: VertexColumns
    labelled: bool
    split: bool


def source_of(
    vertices: Mapping[str, Any], edges: Mapping[Relation, Any], names: ColumnNames, task_type: str | None
) -> tuple[Source, Task | None]:
    """Return the source of tables in memory, which are read at once, and the task that their labels ask for.

    Raises:
        GraphError: a table makes no vertices or edges, or names a vertex or a type that is not there.
    """
    types, relations = check_types(vertices, edges)
    read = {name: _vertices(name, vertices[name], names) for name in types}
    labelled, split = [n for n in types if read[n].labelled], [n for n in types if read[n].split]
    task = task_of(task_type, labelled, split, types)
    widths = tuple(read[name].columns.features.shape[1] for name in types)
    found = types_with(widths, types, relations, task)
    columns = [read[name].columns for name in types]
    firsts = np.cumsum([0, *(len(one.ids) for one in columns)])
    of_edges = [_edges(relation, edges[relation], names, found, columns, firsts) for relation in relations]
    weighted = any(one.weight is not None for one in of_edges)
    found = with_attributes(found, [0 if one.edge_attr is None else one.edge_attr.shape[1] for one in of_edges], names)
    flat = tuple(relation for relation, one in zip(relations, of_edges, strict=True) if one.flat)
    found, target = replace(found, flat=flat), columns[found.target]
    given = GivenTypes(found, tuple(sql_type(one.ids) for one in columns), tuple(one.ids for one in columns))
    joined = (
        _joined_vertices(columns, found, firsts),
        _joined_edges(of_edges, weighted, max(found.edge_widths, default=0)),
    )
    chosen = ColumnNames(
        weight=(names.weight or "weight") if weighted else None,
        edge_features=names.edge_features if found.edge_widths else None,
        edge_type="edge_type",
    )
    return Source(chosen, load=lambda: joined, types=given), _task(target.label)


def with_attributes(types: VertexTypes, widths: Sequence[int], names: ColumnNames) -> VertexTypes:
    """Return types with the number of attributes of each relation's edges.

    Raises:
        GraphError: columns of attributes are named, and no relation has any.
    """
    if any(widths):
        return replace(types, edge_widths=tuple(widths))
    if names.edge_features is not None:
        raise GraphError(
            f"edge_features is {names.edge_features!r}, and no relation has attributes of this name. Name columns of a "
            "table of edges, or leave it out."
        )
    return types


def _task(label: GivenLabels) -> Task | None:
    """Return "regression" for numbers that are no classes, because vertices of other types have none."""
    one_number = label.values.ndim == 2 and label.values.shape[1] == 1
    return "regression" if one_number and not are_classes(label.values[:, 0]) else None


@contextmanager
def naming(table: str) -> Iterator[None]:
    """Let errors say which of several tables they are about."""
    try:
        yield
    except GraphError as error:
        raise GraphError(f"{table}: {error}") from error


def has_features(names: ColumnNames, columns: list[str]) -> bool:
    """Return False if a table of vertices has no features: none of the default name, and no others were named."""
    return names.features != FEATURES or FEATURES in columns


def _vertices(name: str, table: Any, names: ColumnNames) -> OfType:
    with naming(f"vertices of type {name!r}"):
        present = names_of_columns(table)
        featured = has_features(names, present)
        own = names.present(present)
        wanted = [column for column in own.of_vertices() if featured or column != FEATURES]
        rows = arrow_table(table, "vertices", wanted)
        if not featured:
            rows = rows.append_column(FEATURES, pa.array(np.zeros(rows.num_rows, dtype=np.float32)))
        found = vertex_columns(rows, own)
        order = order_of_ids(found.ids)
    features = found.features[order] if featured else found.features[:, :0]
    label = GivenLabels(found.label.values[order], found.label.missing[order])
    weight = None if found.weight is None else found.weight[order]
    columns = VertexColumns(found.ids[order], features, label, found.split[order], weight)
    return OfType(columns, own.label is not None, own.split is not None)


def _edges(
    relation: Relation,
    table: Any,
    names: ColumnNames,
    types: VertexTypes,
    columns: list[VertexColumns],
    firsts: npt.NDArray[np.int64],
) -> EdgeColumns:
    """Return the edges of a relation, between positions in the table of all vertices."""
    number = types.relations.index(relation)
    ends = types.ends(number)
    with naming(f"edges {said(relation)}"):
        present = names_of_columns(table)
        weight = names.weight if names.weight in present else None
        own = replace(names.with_own_attributes(present).present_edges(present), weight=weight, edge_type=None)
        sources, destinations = (columns[end].ids for end in ends)
        read = edge_columns(arrow_table(table, "edges", own.of_edges()), own, destinations, sources)
        src, dst = (
            _positions(given, columns[end].ids, types.names[end], column) + firsts[end]
            for given, end, column in ((read.src, ends[0], own.src), (read.dst, ends[1], own.dst))
        )
    types_of_edges = np.full(len(src), number, dtype=np.int64)
    return EdgeColumns(src, dst, read.weight, read.edge_attr, types_of_edges, flat=_is_flat(table, own))


def _is_flat(table: Any, names: ColumnNames) -> bool:
    """Return True if a relation's attributes are an array of one number for each edge, [edges]."""
    (name, *others) = names.edge_feature_columns or ("",)
    return not others and isinstance(table, Mapping) and getattr(table.get(name), "ndim", 0) == 1


def _positions(given: npt.NDArray[Any], ids: npt.NDArray[Any], name: str, column: str) -> npt.NDArray[np.int64]:
    found = positions_of(ids, given)
    unknown = np.unique(given[found < 0])
    if len(unknown):
        examples = ", ".join(shown(one) for one in unknown[:EXAMPLES])
        raise GraphError(
            f"edges.{column}: {len(unknown):,} ids are not among the vertices of type {name!r} (for example {examples}). "
            "Add these vertices, or drop the edges."
        )
    return found


def _joined_vertices(columns: list[VertexColumns], types: VertexTypes, firsts: npt.NDArray[np.int64]) -> VertexColumns:
    count, target = int(firsts[-1]), types.target
    features = np.zeros((count, types.width), dtype=np.float32)
    split = np.full(count, -1, dtype=np.int8)
    for number, one in enumerate(columns):
        rows = slice(firsts[number], firsts[number + 1])
        features[rows, : types.widths[number]] = one.features
        features[rows, types.type_column] = number
    here = slice(firsts[target], firsts[target + 1])
    split[here] = columns[target].split
    label, weight = _joined_labels(columns[target].label, count, here), columns[target].weight
    if weight is not None:
        weight = np.concatenate([np.ones(here.start, weight.dtype), weight, np.ones(count - here.stop, weight.dtype)])
    return VertexColumns(np.arange(count), features, label, split, weight)


def _joined_labels(given: GivenLabels, count: int, here: slice) -> GivenLabels:
    values = given.values
    if values.dtype == object:
        joined = np.full(count, "", dtype=object)
    elif values.ndim == 1:
        joined = np.full(count, -1, dtype=np.int64)
    else:
        joined = np.full((count, values.shape[1]), np.nan, dtype=np.float32)
    missing = np.ones(count, dtype=np.bool_)
    joined[here], missing[here] = values, given.missing
    return GivenLabels(joined, missing)


def _joined_edges(relations: list[EdgeColumns], weighted: bool, width: int) -> EdgeColumns:
    src, dst, types = (
        np.concatenate([getattr(one, name) for one in relations]) for name in ("src", "dst", "edge_type")
    )
    attributes = np.zeros((len(src), width), dtype=np.float32) if width else None
    if attributes is not None:
        first = 0
        for one in relations:
            if one.edge_attr is not None:
                attributes[first : first + len(one.src), : one.edge_attr.shape[1]] = one.edge_attr
            first += len(one.src)
    if not weighted:
        return EdgeColumns(src, dst, None, attributes, types)
    ones = (np.ones(len(one.src), dtype=np.float32) if one.weight is None else one.weight for one in relations)
    return EdgeColumns(src, dst, np.concatenate(list(ones)), attributes, types)
