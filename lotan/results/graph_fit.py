"""The check that a trained model can read a graph, and how that graph differs from the graph of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lotan.errors import GraphError
from lotan.graph.graph import Graph
from lotan.planning.models import edge_demands, takes_roots
from lotan.validation.check import check_graph
from planner.neighbours import most_in_edges
from planner.spec import Spec
from planner.vertex_types import VertexTypes


def check_read(spec: Spec, features: tuple[str, ...], graph: Graph) -> None:
    """Check that a model can read a graph.

    Args:
        spec: The traced model.
        features: The columns of features of the graph of training, in their order; empty: not known.
        graph: The graph.

    Raises:
        GraphError: If it has other types, groups, features or edges than the model reads.
    """
    if graph.vertex_types != spec.vertex_types:
        raise GraphError(_other_types(spec.vertex_types, graph.vertex_types))
    known, groups = spec.groups, graph.groups
    if (known is None) != (groups is None) or (known or 0) < (groups or 0):  # no group reads the rows of another
        raise GraphError(_other_groups(known, groups))
    _check_order(features, graph.feature_columns)
    reads, types = edge_demands(spec)
    bounds, most = spec.bounds, most_in_edges(spec)
    check_graph(graph, None, None, spec.width, takes_roots(spec), reads, types, bounds, most)


def _check_order(trained: tuple[str, ...], given: tuple[str, ...]) -> None:
    """Check that the columns of features are not those of training in another order."""
    if given == trained or sorted(given) != sorted(trained):
        return
    ours, theirs = next((ours, theirs) for ours, theirs in zip(given, trained, strict=True) if ours != theirs)
    raise GraphError(
        f"vertices.features: the columns are those of training in another order: {ours} is where {theirs} was. Make the "
        "graph with the features in that order, such as Graph(..., features=list(model.features)), where model is the "
        "trained one."
    )


def differences(spec: Spec, trained: Mapping[str, bool], graph: Graph) -> list[str]:
    """Return in which respects the edges of a graph differ from those of training, as warnings.

    Args:
        spec: The traced model.
        trained: `edges_of` the graph of training; empty: not known.
        graph: The graph.
    """
    found = []
    now = edges_of(graph) if trained else {}
    if reads_weights(spec) and now.get("weighted") != trained.get("weighted"):
        here, there = ("has", "none") if now["weighted"] else ("has no", "some")
        found.append(f"the graph {here} weights of edges, and the graph of training had {there}")
    if trained.get("undirected") and not now["undirected"]:
        found.append(
            "the model was trained with undirected=True, and this graph is read without: give it as well, unless the "
            "reverses are among the edges"
        )
    return found


def _other_groups(trained: int | None, given: int | None) -> str:
    """Return the error for a graph that has groups where that of training had none, the other way round, or more of them."""
    if trained is None:
        return "The model was trained on a graph without groups, and this one has a column batch; make the graph without it."
    if given is None:
        return f"The graph of training had {trained:,} groups of vertices, and this one has no column batch; name it."
    return (
        f"The graph of training had {trained:,} groups of vertices, and this one has {given:,}; predict parts of at most "
        f"{trained:,} groups, each with groups numbered from 0."
    )


def _other_types(trained: VertexTypes | None, given: VertexTypes | None) -> str:
    """Return the error for a graph whose types of vertices are not those of training."""
    if trained is None or given is None:
        several, one = ("training", "this one") if given is None else ("this one", "training")
        kinds = f"The graph of {several} has several types of vertices, and that of {one} has one"
        return f"{kinds}; give the model a graph of its kind."
    for what, before, now in (
        ("types of vertices", trained.names, given.names),
        ("numbers of features", trained.widths, given.widths),
        ("relations", [" -> ".join(one) for one in trained.relations], [" -> ".join(one) for one in given.relations]),
        ("type that is predicted", trained.task, given.task),
        ("numbers of attributes of edges", trained.edge_widths, given.edge_widths),
    ):
        if before != now:
            return f"The graph differs from that of training in its {what}: {_said(now)} in place of {_said(before)}."
    return "The graph differs from that of training."


def _said(value: Any) -> str:
    return value if isinstance(value, str) else ", ".join(map(str, value))


def edges_of(graph: Graph) -> dict[str, bool]:
    """Return whether a graph's edges have weights, and whether missing reverses were added to them."""
    return {"weighted": graph.statistics.weighted, "undirected": graph.undirected}


def reads_weights(spec: Spec) -> bool:
    """Return True if a model's output depends on the weights of edges."""
    return takes_roots(spec) or any(call.op == "lotan.edge_weight" for call in spec.calls)
