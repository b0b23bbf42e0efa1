"""The functions that make a `lotan.Graph` for training or prediction from a dataset and the graph around it.

If all vertices were given to the estimator or model, a dataset is a part of them. Its rows are trained on or predicted,
and the graph around them stays whole. Otherwise the dataset has all vertices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from lotan.arguments import described
from lotan.borders import spark_translated
from lotan.errors import ConfigurationError, GraphError
from lotan.graph.column_names import OPTIONAL_EDGES
from lotan.graph.columns import require_columns
from lotan.graph.faults import EXAMPLES, doubled_ids, example_row, unknown_splits
from lotan.graph.frames import require_session
from lotan.graph.graph import Graph
from lotan.graph.spark_names import named
from lotan.ml.params import GNNParams, GraphParams
from planner.spec import SPLITS

DATASET = "dataset"


_OF_EDGES = {"weight": "edgeWeightCol", "edge_attr": "edgeFeaturesCol", "edge_type": "edgeTypeCol"}
"""The Params that name optional columns of edges, by the names that these get."""


@dataclass(frozen=True, eq=False)
class Given:
    """The tables that a user gave, and the graphs that were made of them.

    An estimator shares them with its copies and its models.
    """

    edges: DataFrame | None = None
    vertices: DataFrame | None = None  # all vertices; None if the dataset has all of them
    made: dict[tuple[Any, ...], Graph] = field(default_factory=dict)  # graphs of all vertices, by the columns' names

    @property
    def lasts(self) -> bool:
        """True if the graph stays the same. A table that is given by its name may be another one at each call."""
        return self.edges is not None and self.vertices is not None


def table(given: DataFrame | None, params: GraphParams, what: str) -> DataFrame | None:
    """Return the table that was given, or the one that a Param names.

    Raises:
        GraphError: there is no table of that name.
    """
    name = params.value(what)
    if given is not None or name is None:
        return given
    with spark_translated(GraphError, f"{what}={name!r} names no table or view that Spark can read"):
        return SparkSession.active().table(name)


def require_frame(what: str, value: object) -> None:
    """Check that an object is a Spark DataFrame whose session still runs.

    Raises:
        ConfigurationError: it is another object, or a stream.
        GraphError: its session was stopped.
    """
    if not isinstance(value, DataFrame):
        raise ConfigurationError(f"{what} is {described(value)}; expected a Spark DataFrame")
    require_session(value)
    if value.isStreaming:
        raise ConfigurationError(
            f"{what} is a stream, which has no end; expected a Spark DataFrame of rows that are there"
        )


def whole_graph(params: GNNParams, given: Given, dataset: DataFrame) -> Graph:
    """Return the graph of all vertices, with features and without labels. It is kept if both tables were given.

    Raises:
        ConfigurationError: there are no edges.
        GraphError: a column is missing.
    """
    vertices = table(given.vertices, params, "vertices")
    names = ("idCol", "featuresCol", "srcCol", "dstCol", *_OF_EDGES.values(), "undirected")
    key = tuple(params.value(name) for name in names)
    if given.lasts and key in given.made:
        return given.made[key]
    identifier, features = params.value("idCol"), params.value("featuresCol")
    whose = DATASET if vertices is None else "vertices"
    chosen = dataset if vertices is None else vertices
    require_columns(whose, [identifier, features], chosen.columns)
    rows = chosen.select(named(identifier).alias("id"), named(features).alias("features"))
    edges, columns = _edges(params, given)
    graph = Graph(rows, edges, label=None, split=None, undirected=params.value("undirected"), **columns)
    if given.lasts:
        given.made[key] = graph
    return graph


def _edges(params: GNNParams, given: Given) -> tuple[DataFrame, dict[str, Any]]:
    """Return the edges, and which of their columns a graph reads beside their ends, by the names of its arguments."""
    edges = table(given.edges, params, "edges")
    if edges is None:
        raise ConfigurationError(
            "there are no edges: give them by setEdges(edges), or fit a GraphFrame; a model that was loaded needs them again"
        )
    names = {
        standard: params.value(name) for standard, name in ({"src": "srcCol", "dst": "dstCol"} | _OF_EDGES).items()
    }
    chosen = {standard: name for standard, name in names.items() if name is not None}
    require_columns("edges", list(chosen.values()), edges.columns)
    columns = {argument: standard if standard in chosen else None for argument, standard in OPTIONAL_EDGES.items()}
    return edges.select(*(named(name).alias(standard) for standard, name in chosen.items())), columns


@contextmanager
def training_graph(params: GNNParams, whole: Graph, rows: DataFrame) -> Iterator[Graph]:
    """Yield the graph with the labels and splits of a dataset. Other vertices have no label and no split.

    For engine "local" the graph is in this process's memory. For others it is in Spark, persisted until the block ends.

    Args:
        params: the Params, which name the engine.
        whole: the graph.
        rows: id, label and split of each row of the dataset, and its vertex_weight, if there is one.

    Raises:
        GraphError: an id occurs twice, or a split is unknown.
    """
    if params.value("engine") == "local":
        classes = isinstance(rows.schema["label"].dataType, IntegerType)
        yield _marked(whole, rows.toPandas(), classes)
        return
    vertices, edges = whole.tables()
    marked = vertices.join(rows, "id", "left")
    if "vertex_weight" in rows.columns:  # vertices of no split weigh nothing, whatever their weight
        weight = F.when(F.col("split").isNull(), 1.0).otherwise(F.col("vertex_weight"))
        marked = marked.withColumn("vertex_weight", weight)
    marked = marked.persist()
    try:
        columns: dict[str, Any] = {argument: getattr(whole.names, argument) for argument in OPTIONAL_EDGES}
        yield Graph(marked, edges, undirected=whole.undirected, **columns)
    finally:
        marked.unpersist()


def predicting_graph(params: GNNParams, whole: Graph) -> Graph:
    """Return the graph in the place that the engine needs: collected for "local", in Spark for others."""
    return whole.relabelled() if params.value("engine") == "local" else whole


def _marked(whole: Graph, rows: pd.DataFrame, classes: bool) -> Graph:
    doubled = rows["id"][rows["id"].duplicated()]
    if len(doubled):
        raise doubled_ids(doubled.nunique(), doubled.unique()[:EXAMPLES].tolist())
    arrays = whole.arrays()
    places, count = pd.Index(arrays.ids).get_indexer(rows["id"]), len(arrays.ids)
    split = np.full(count, -1, dtype=np.int8)
    split[places] = _codes(rows)
    label = np.full(count, -1, dtype=np.int64) if classes else np.full((count, 1), np.nan, dtype=np.float32)
    label[places] = rows["label"].fillna(-1) if classes else rows[["label"]]
    weight = None
    if "vertex_weight" in rows:
        weight = np.ones(count, dtype=np.float32)
        weight[places] = rows["vertex_weight"]
    return whole.relabelled(label, split, weight)


def _codes(rows: pd.DataFrame) -> pd.Series[int]:
    codes = rows["split"].map({name: code for code, name in enumerate(SPLITS)})
    unknown = rows[codes.isna() & rows["split"].notna()]
    if len(unknown):
        raise unknown_splits("split", len(unknown), example_row(unknown["id"].iloc[0], unknown["split"].iloc[0]))
    return codes.fillna(-1)


@contextmanager
def hinted(params: GraphParams, given: Given) -> Iterator[None]:
    """Add a hint to errors about edges that leave the dataset, if the dataset was taken for all vertices."""
    try:
        yield
    except GraphError as error:
        if given.vertices is None and params.value("vertices") is None and "not among the vertices" in str(error):
            raise GraphError(
                f"{error} The dataset was taken for all vertices: if it is a part of them, such as a fold, "
                "give all by setVertices(vertices)."
            ) from error
        raise
