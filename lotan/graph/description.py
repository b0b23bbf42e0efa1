"""The description of a graph in a few lines, for a shell or a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lotan.errors import GraphError
from lotan.graph.labels import label_statistics
from planner.spec import SPLITS

if TYPE_CHECKING:
    from lotan.graph.graph import Graph


def description(graph: Graph) -> str:
    """Return the description of a graph. No job of Spark runs for it, and of files only the footers are read."""
    lines = [f"Graph in {'this process' if graph.origin == 'memory' else graph.origin.capitalize()}"]
    try:
        lines += _in_memory(graph) if graph.origin == "memory" else _elsewhere(graph)
    except GraphError as error:  # a description must not fail
        lines.append(f"not readable: {error}")
    return "\n  ".join(lines)


def _in_memory(graph: Graph) -> list[str]:
    sizes, labels = graph.statistics, label_statistics(graph.arrays())
    weights = graph.names.weight_words(sizes.weighted)
    splits = ", ".join(f"{name} {len(graph.arrays().rows_of(name)):,}" for name in SPLITS)
    what = {"classification": "classes", "multilabel": "labels of 0 and 1", "regression": "targets"}[labels.task]
    said = f"{labels.outputs:,} {what}" if labels.outputs else "none"
    said += ", weighted in the loss" * graph.has_vertex_weights
    return [
        f"{sizes.vertices:,} vertices, {sizes.width:,} features; labels: {said}",
        f"{sizes.edges:,} edges{', undirected' if graph.undirected else ''}; weights: {weights}",
        f"splits: {splits}",
    ]


def _elsewhere(graph: Graph) -> list[str]:
    if graph.origin == "files":
        sizes = graph.estimate()
        names, most = graph.names, " at most" if graph.undirected else ""
        return [
            f"{sizes.vertices:,} vertices, {sizes.width:,} features; label: {names.label}, split: {names.split}",
            f"{sizes.edges:,} edges{most}; weights: {names.weight_words(sizes.weighted)}",
        ]
    vertices, edges = graph.tables()
    return [f"vertices: {', '.join(vertices.columns)}", f"edges: {', '.join(edges.columns)}"]
