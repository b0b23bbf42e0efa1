"""Tables in Spark, by the types of their vertices and edges, as one graph. Nothing is collected."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lotan.errors import GraphError
from lotan.graph import frames, spark_labels, spark_tables
from lotan.graph.column_names import ColumnNames
from lotan.graph.columns import require_columns
from lotan.graph.faults import wrong_id_type, wrong_type
from lotan.graph.given_tables import arrow_table, names_of_columns
from lotan.graph.given_types import SEPARATOR, GivenTypes, check_types, said, sql_type_of, task_of, types_with
from lotan.graph.kinds import accepts, kind_of_spark
from lotan.graph.sources import Source
from lotan.graph.spark_names import named
from lotan.graph.table_kinds import is_spark
from lotan.graph.typed_tables import FEATURES, has_features, naming, with_attributes
from planner.loss import Task
from planner.vertex_types import Relation, VertexTypes

_FLOATS = "array<float>"


def source_of(
    vertices: Mapping[str, Any], edges: Mapping[Relation, Any], names: ColumnNames, task_type: str | None
) -> tuple[Source, Task | None]:
    """Return the source of tables of which at least one is in Spark, and the task that their labels ask for.

    One job for each type of vertices finds the width of its features, and one for each relation that of its attributes.

    Raises:
        GraphError: a column is missing or has a wrong type, or a relation names an unknown type of vertices.
    """
    types, relations = check_types(vertices, edges)
    spark = next(table for table in (*vertices.values(), *edges.values()) if is_spark(table)).sparkSession
    tables = {name: _on_spark(vertices[name], spark) for name in types}
    own = {name: _of_type(name, tables[name], names) for name in types}
    labelled, split = ([name for name in types if getattr(own[name], at) is not None] for at in ("label", "split"))
    task = task_of(task_type, labelled, split, types)
    widths = tuple(_width(name, tables[name], own[name], has_features(names, tables[name].columns)) for name in types)
    found = types_with(widths, types, relations, task)
    joined = reduce(
        DataFrame.unionByName,
        [
            _vertices(tables[name], own[name], number, found, own[task], tables[task])
            for number, name in enumerate(types)
        ],
    )
    of_edges = {relation: _on_spark(edges[relation], spark) for relation in relations}
    weight = names.weight if any(names.weight in table.columns for table in of_edges.values()) else None
    attributes = {relation: _attributes(relation, of_edges[relation], names) for relation in relations}
    found = with_attributes(found, [width for _, width in attributes.values()], names)
    ends = [
        _edges(relation, of_edges[relation], attributes[relation][0], names, found, own, tables, weight)
        for relation in relations
    ]
    chosen = ColumnNames(
        weight=None if weight is None else "weight",
        edge_features="edge_attr" if found.edge_widths else None,
        edge_type="edge_type",
    )
    ids = tuple(sql_type_of(tables[name].schema[own[name].id].dataType.simpleString()) for name in types)
    given = GivenTypes(found, ids)
    return Source(chosen, tables=(joined, reduce(DataFrame.unionByName, ends)), types=given), _task(
        tables[task], own[task]
    )


def _task(vertices: DataFrame, own: ColumnNames) -> Task | None:
    """Return "regression" for numbers that are no classes, because vertices of other types have none."""
    if own.label is None or kind_of_spark(vertices.schema[own.label].dataType).base != "real":
        return None
    return None if spark_labels.settled(vertices, own, None).as_classes else "regression"


def _on_spark(table: Any, spark: SparkSession) -> DataFrame:
    if is_spark(table):
        found: DataFrame = table
        return found
    rows: pa.Table = arrow_table(table, "tables", names_of_columns(table))
    return spark_tables.sent(spark, rows)


def _of_type(name: str, table: DataFrame, names: ColumnNames) -> ColumnNames:
    with naming(f"vertices of type {name!r}"):
        own = names.present(table.columns)
        require_columns("vertices", own.of_vertices(), table.columns)
        return own


def _width(name: str, table: DataFrame, own: ColumnNames, featured: bool) -> int:
    if not featured:
        return 0
    with naming(f"vertices of type {name!r}"):
        row = table.select(F.size(frames.features_of(table, own.feature_columns))).head()
    if row is None:
        raise GraphError(f"vertices of type {name!r}: there are none. Leave the type out, or give it rows.")
    return max(int(row[0]), 0)


def _attributes(relation: Relation, table: DataFrame, names: ColumnNames) -> tuple[Column | None, int]:
    """Return the attributes of a relation's edges, array<float>, and their number; None and 0 if they have none."""
    own = names.with_own_attributes(table.columns)
    if own.edge_features is None:
        return None, 0
    with naming(f"edges {said(relation)}"):
        columns = own.present_edges(table.columns).edge_feature_columns
        require_columns("edges", list(columns), table.columns)
        found = frames.features_of(table, columns, "edges")
        row = table.select(F.size(found)).head()
    return found, 0 if row is None else max(int(row[0]), 0)


def _text(table: DataFrame, what: str, column: str, name: str) -> Column:
    """Return ids of a type as texts that no other type has."""
    return F.concat(F.lit(f"{name}{SEPARATOR}"), frames.id_of(table, what, column).cast("string"))


def _vertices(
    table: DataFrame, own: ColumnNames, number: int, types: VertexTypes, of_task: ColumnNames, with_labels: DataFrame
) -> DataFrame:
    name, width = types.names[number], types.widths[number]
    with naming(f"vertices of type {name!r}"):
        given = frames.features_of(table, own.feature_columns) if width else F.array().cast(_FLOATS)
        padding = F.array_repeat(F.lit(0.0).cast("float"), types.type_column - width)
        features = F.concat(given, padding, F.array(F.lit(float(number)).cast("float")))
        columns = [_text(table, "vertices", own.id, name).alias("id"), features.alias(FEATURES)]
        if of_task.label is not None:
            kind = with_labels.schema[of_task.label].dataType
            label = named(of_task.label) if name == types.task else F.lit(None)
            columns.append(label.cast(kind).alias("label"))
        split = frames.split_of(table, own) if name == types.task else F.lit(None).cast("string")
        if of_task.vertex_weight is not None:
            weight = named(of_task.vertex_weight) if name == types.task else F.lit(1.0)
            columns.append(weight.cast("double").alias("vertex_weight"))
        return table.select(*columns, split.alias("split"))


def _edges(
    relation: Relation,
    table: DataFrame,
    attributes: Column | None,
    names: ColumnNames,
    types: VertexTypes,
    own: Mapping[str, ColumnNames],
    tables: Mapping[str, DataFrame],
    weight: str | None,
) -> DataFrame:
    with naming(f"edges {said(relation)}"):
        ends = names.present_edges(table.columns)
        has_weight = weight is not None and weight in table.columns
        require_columns(
            "edges", [ends.src, ends.dst, *([weight] if weight is not None and has_weight else [])], table.columns
        )
        columns = []
        for end, column, name in (("src", ends.src, relation[0]), ("dst", ends.dst, relation[2])):
            texts = [
                kind_of_spark(one.schema[of].dataType).base == "text"
                for one, of in ((table, column), (tables[name], own[name].id))
            ]
            if texts[0] != texts[1]:
                kinds = (
                    one.schema[of].dataType.simpleString()
                    for one, of in ((table, column), (tables[name], own[name].id))
                )
                raise wrong_id_type("edges", column, *kinds)
            columns.append(_text(table, "edges", column, name).alias(end))
        if weight is not None:
            if has_weight and not accepts("number", kind_of_spark(table.schema[weight].dataType)):
                raise wrong_type("edges", weight, table.schema[weight].dataType.simpleString())
            columns.append((named(weight) if has_weight else F.lit(1.0)).cast("float").alias("weight"))
        number = types.relations.index(relation)
        if types.edge_widths:
            given = F.array().cast(_FLOATS) if attributes is None else attributes
            padding = F.array_repeat(F.lit(0.0).cast("float"), max(types.edge_widths) - types.attributes(number))
            columns.append(F.concat(given, padding).alias("edge_attr"))
        return table.select(*columns, F.lit(number).cast("bigint").alias("edge_type"))
