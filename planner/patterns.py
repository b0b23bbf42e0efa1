"""Forms of sub-plans that several rules look for or make."""

from __future__ import annotations

from planner.edge_sets import has_added_loops
from planner.nodes import Apply, EdgeWeight, Elementwise, Node, RowWise, Scatter, StaticColumn
from planner.spec import EdgeSet, ValueType, degree_column

RESHAPES = frozenset({"aten.unsqueeze.default", "aten.view.default", "aten.reshape.default"})


def weighted(node: Node) -> tuple[Node, EdgeWeight] | None:
    """Return (x, weight) if a node is the product of x and the edge's weight, row by row, else None."""
    if not isinstance(node, Apply) or node.op != "aten.mul.Tensor" or node.keywords:
        return None
    for x, factor in (node.arguments, tuple(reversed(node.arguments))):
        weight = _edge_weight(factor)
        if weight is not None and isinstance(x, Node) and x.output == node.output:
            return x, weight
    return None


def _edge_weight(node: object) -> EdgeWeight | None:
    """Return the edge weight that a factor is, perhaps with dimensions of 1 added for broadcasting, or None."""
    while isinstance(node, Apply) and node.op in RESHAPES and node.output.width == 1:
        node = node.arguments[0]
    return node if isinstance(node, EdgeWeight) else None


def copied_source(message: Node) -> tuple[Node, bool] | None:
    """Return (x, weighted) if a message is the source's x, or with `weighted` that times the edge's weight. Else None."""
    product = weighted(message)
    copy = message if product is None else product[0]
    return (copy.x, product is not None) if isinstance(copy, Scatter) and copy.end == "source" else None


def has_degree(edges: EdgeSet) -> bool:
    """Return True for an edge set whose in-degrees are a static column: edges as given, of all types or of one."""
    return not has_added_loops(edges)


def divided_by_degree(total: Node, edges: EdgeSet, layer: str) -> Node:
    """Return the mean over in-edges, given the sum over an edge set that `has_degree`."""
    degree: Node = StaticColumn(degree_column(edges), ValueType("vertex", ()))
    for depth in range(len(total.output.shape)):
        degree = RowWise("aten.unsqueeze.default", (degree, -1), (), ValueType("vertex", (1,) * (depth + 1)), layer)
    return Elementwise("aten.div.Tensor", (total, degree), (), total.output, layer)
