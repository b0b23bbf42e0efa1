"""The links of a graph in Spark: what the driver holds of them, and the tables along which messages pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lotan.graph.arrays import EdgeColumns, Ids, order_of_ids
from lotan.graph.column_names import BARE, EDGE_SPLIT, RELATION, ColumnNames
from lotan.graph.columns import edge_columns, vertex_columns
from lotan.graph.faults import example_row, null_rows, unknown_splits, wrong_relation_type
from lotan.graph.frames import Tables, split_of, standard_edges, standard_vertices, wide
from lotan.graph.kinds import accepts_whole, kind_of_spark
from planner.spec import SPLITS

Splits = Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], npt.NDArray[np.int8]]
"""A function from the keys of both ends of edges to the splits that a hash draws for them."""


def ids_of(tables: Tables, names: ColumnNames) -> Ids:
    """Return the ids of the vertices, ascending. Nothing else is collected. [vertices].

    Raises:
        GraphError: there are no vertices, or an id is null.
    """
    vertices = standard_vertices(tables[0], replace(names, features=(), label=None, split=None, batch=None))
    ids = vertex_columns(vertices.select("id").toArrow(), BARE).ids
    found: Ids = ids[order_of_ids(ids)]
    return found


def link_columns(tables: Tables, names: ColumnNames, ids: Ids) -> EdgeColumns:
    """Return the ends of all edges, and their types, splits and relations if they have some. Nothing else is collected.

    Args:
        tables: the tables.
        names: the names of their columns, with those that link tasks read.
        ids: the ids of the vertices.

    Raises:
        GraphError: a column is missing or has a bad value.
    """
    vertices = standard_vertices(tables[0], names)
    edges = standard_edges(tables[1], replace(names, weight=None, edge_features=None), vertices).drop("weight")
    typed = None if names.edge_type is None else "edge_type"
    chosen = replace(BARE, edge_type=typed).with_links().present_edges(edges.columns)
    return edge_columns(edges.toArrow(), chosen, ids)


def relations_of(tables: Tables, names: ColumnNames) -> tuple[int | str, ...]:
    """Return the relations of all edges, ascending, and check their splits, with one job that returns one row.

    Args:
        tables: the tables.
        names: the names of their columns, with those that link tasks read.

    Returns:
        The relations; empty if the edges have none, or have a column of types, which are read in their place.

    Raises:
        GraphError: a relation is null or of a wrong type, or a split is unknown.
    """
    edges = standard_edges(tables[1], names, standard_vertices(tables[0], names))
    none = F.lit(None).cast("string")
    split = none if names.edge_split is None else split_of(edges, ColumnNames(split=EDGE_SPLIT))
    relation, missing = none, F.lit(False)
    if names.relation is not None and names.edge_type is None:
        relation = _relation(edges)
        missing = relation.isNull()
    unknown = F.coalesce(~split.isin(*SPLITS), F.lit(False))
    counts = [F.count_if(unknown), F.count_if(missing)]
    examples = [F.min(F.when(bad, F.struct("src", value))) for bad, value in ((unknown, split), (missing, relation))]
    found = edges.agg(F.collect_set(relation), *counts, *examples).collect()[0]
    if found[1]:
        raise unknown_splits(EDGE_SPLIT, found[1], example_row(*found[3]), "edges")
    if found[2]:
        raise null_rows(RELATION, found[2], example_row(*found[4]), "edges")
    return tuple(sorted(found[0]))


def _relation(edges: DataFrame) -> Column:
    """Return the relations as strings or bigint."""
    found = edges.schema[RELATION].dataType
    kind = kind_of_spark(found)
    if not accepts_whole("relation", kind):
        raise wrong_relation_type(RELATION, found.simpleString())
    return F.col(RELATION).cast("string" if kind.base == "text" else "bigint")


def message_tables(
    tables: Tables, names: ColumnNames, relations: tuple[int | str, ...], drawn: Splits | None = None
) -> Tables:
    """Return all vertices, each in the split of training, and the links of training as edges along which messages pass.

    Args:
        tables: the tables.
        names: the names of their columns, with those that link tasks read. The values of these columns were checked before.
        relations: the relations in the order of their numbers. If the edges have no column of types, the number of its
            relation is the type of an edge.
        drawn: the function that draws the split of each edge, unless a column of the edges has it.

    Returns:
        The vertices have id, features and split. The edges have src, dst and weight, also edge_attr if there are
        attributes, and edge_type if there are types or relations. Reverses of edges are not added.
    """
    vertices = standard_vertices(tables[0], replace(names, label=None, split=None, batch=None, vertex_weight=None))
    edges = standard_edges(tables[1], names, vertices)
    if names.edge_split is not None:
        edges = edges.where(split_of(edges, ColumnNames(split=EDGE_SPLIT)) == SPLITS[0])
    elif drawn is not None:
        edges = _of_training(edges, drawn)
    if names.edge_type is None and relations:
        edges = _numbered(edges, relations)
    kept = [name for name in ("src", "dst", "weight", "edge_attr", "edge_type") if name in edges.columns]
    return vertices.select("id", "features", F.lit(SPLITS[0]).alias("split")), edges.select(*kept)


def _of_training(edges: DataFrame, drawn: Splits) -> DataFrame:
    """Return the edges that a hash puts into the split of training."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            ends = (rows.column(name).to_numpy().astype(np.int64, copy=False) for name in ("src_key", "dst_key"))
            yield rows.filter(pa.array(drawn(*ends) == 0))

    keys = [F.xxhash64(wide(edges, end)).alias(f"{end}_key") for end in ("src", "dst")]
    keyed = edges.select("*", *keys)
    return keyed.mapInArrow(run, keyed.schema).drop("src_key", "dst_key")


def _numbered(edges: DataFrame, relations: tuple[int | str, ...]) -> DataFrame:
    """Return edges with the numbers of their relations as types."""
    spark: SparkSession = edges.sparkSession
    names = pa.table({"name": pa.array(list(relations)), "edge_type": pa.array(np.arange(len(relations)))})
    numbers = F.broadcast(spark.createDataFrame(names))
    given = "string" if isinstance(relations[0], str) else "bigint"
    return edges.join(numbers, F.col(RELATION).cast(given) == F.col("name")).drop("name")
