"""The functions that make a graph of links from a dataset."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lotan.graph.columns import require_columns
from lotan.graph.graph import Graph
from lotan.graph.spark_names import named
from lotan.ml.link_params import LinkParams
from lotan.ml.tables import DATASET, Given, table


def graph_of_links(params: LinkParams, given: Given, links: DataFrame, whose: str = DATASET) -> Graph:
    """Return the graph of a table of links. Without vertices, the ends of the links are all vertices.

    Args:
        params: the Params, which name the columns.
        given: the tables that were given, of which the vertices are read.
        links: the links. Without a column of splits all are of training.
        whose: the table of links, for the texts of errors. Only a dataset must have splits and labels that Params name.

    Raises:
        GraphError: a column is missing.
    """
    names = {"src": "srcCol", "dst": "dstCol", "relation": "relationCol", "weight": "edgeWeightCol"}
    wanted = {column: params.value(param) for column, param in names.items() if params.value(param) is not None}
    others = {param: params.value(param) for param in ("splitCol", "labelCol") if params.value(param) is not None}
    there = others if whose == DATASET else {p: name for p, name in others.items() if name in links.columns}
    require_columns(whose, [*wanted.values(), *there.values()], links.columns)
    if "labelCol" in there:
        links = links.where(named(there["labelCol"]).cast("double") > 0)
    split = named(there["splitCol"]) if "splitCol" in there else F.lit("train")
    edges = links.select(*(named(name).alias(column) for column, name in wanted.items()), split.alias("split"))
    vertices = table(given.vertices, params, "vertices")
    weight = "weight" if "weight" in wanted else None
    return Graph(
        _ends(edges) if vertices is None else _features(params, vertices),
        edges,
        label=None,
        split=None,
        weight=weight,
        undirected=params.value("undirected"),
    )


def _ends(edges: DataFrame) -> DataFrame:
    return edges.select(F.col("src").alias("id")).union(edges.select("dst")).distinct()


def _features(params: LinkParams, vertices: DataFrame) -> DataFrame:
    identifier, features = params.value("idCol"), params.value("featuresCol")
    require_columns("vertices", [identifier], vertices.columns)
    columns = {"id": identifier, "features": features} if features in vertices.columns else {"id": identifier}
    return vertices.select(*(named(name).alias(column) for column, name in columns.items()))
