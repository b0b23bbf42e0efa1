"""A graph whose labels a model sees: the class of each training vertex is the last of its features, and -1 of any other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lotan.errors import GraphError
from lotan.graph.graph import Graph
from planner.spec import SPLITS

_MARK = "_sees_labels"


def sees_labels(graph: Graph) -> bool:
    """Return True for a graph that `with_seen_labels` has made."""
    return _MARK in graph.__dict__


def require_one_kind(graph: Graph) -> None:
    """Refuse a graph of several types of vertices, and one with groups, for a model that takes labels as input.

    Raises:
        GraphError: the graph is such a graph.
    """
    if graph.vertex_types is not None or graph.groups is not None:
        what = "several types of vertices" if graph.vertex_types is not None else "groups of vertices (batch=)"
        raise GraphError(f"a model that takes labels as input needs a graph without {what}")


def with_seen_labels(graph: Graph) -> Graph:
    """Return a graph with the classes of the training vertices as a last feature. It is made once for each graph.

    Args:
        graph: a graph of one type of vertices, whose labels are classes.

    Raises:
        GraphError: labels are no classes, no training vertex has one, or the graph has groups or several types of vertices.
    """
    if sees_labels(graph):
        return graph
    require_one_kind(graph)
    if graph.labels.task != "classification" or not graph.labels.labelled[SPLITS.index("train")]:
        raise GraphError(
            "a model that takes labels as input needs classes at training vertices; give the graph labels that are classes, and "
            "a split"
        )
    kept: dict[str, Graph] = graph.__dict__.setdefault("_with_seen_labels", {})
    if "" not in kept:
        kept[""] = _in_spark(graph) if graph.origin == "spark" else _in_memory(graph)
        kept[""].__dict__[_MARK] = True
    return kept[""]


def _in_memory(graph: Graph) -> Graph:
    arrays = graph.arrays()
    seen = np.where(arrays.split == SPLITS.index("train"), arrays.label, -1).astype(np.float32)
    features = np.concatenate([arrays.features, seen[:, np.newaxis]], axis=1)
    return Graph.of_arrays(replace(arrays, features=features))


def _in_spark(graph: Graph) -> Graph:
    from pyspark.sql import functions as F

    vertices, edges = graph.frames(graph.tables()[0].sparkSession)
    names = F.create_map(*(F.lit(one) for pair in enumerate(SPLITS) for one in pair))
    seen = F.when((F.col("split") == SPLITS.index("train")) & (F.col("label") >= 0), F.col("label"))
    features = F.concat("features", F.array(F.coalesce(seen, F.lit(-1)).cast("float")))
    table = vertices.withColumns({"features": features, "split": names[F.col("split")]})
    weight = "weight" if graph.statistics.weighted else None
    there = {name: name if name in edges.columns else None for name in ("edge_attr", "edge_type")}
    return Graph(
        table,
        edges,
        features="features",
        weight=weight,
        edge_features=there["edge_attr"],
        edge_type=there["edge_type"],
    )
