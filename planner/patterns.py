"""Shapes of sub-plans that more than one rule looks for."""

from __future__ import annotations

from planner.nodes import Apply, EdgeWeight, Node

RESHAPES = frozenset({"aten.unsqueeze.default", "aten.view.default", "aten.reshape.default"})


def weighted(node: Node) -> tuple[Node, EdgeWeight] | None:
    """(x, weight) where a node is x times the edge's weight, row by row; else None."""
    if not isinstance(node, Apply) or node.op != "aten.mul.Tensor" or node.keywords:
        return None
    for x, factor in (node.arguments, tuple(reversed(node.arguments))):
        weight = _edge_weight(factor)
        if weight is not None and isinstance(x, Node) and x.output == node.output:
            return x, weight
    return None


def _edge_weight(node: object) -> EdgeWeight | None:
    """The edge weight that a factor is, perhaps with dimensions of size 1 added for broadcasting."""
    while isinstance(node, Apply) and node.op in RESHAPES and node.output.width == 1:
        node = node.arguments[0]
    return node if isinstance(node, EdgeWeight) else None
