"""Inserts collections, which bring the rows of sources to the operators of the DL Engine that read them."""

from __future__ import annotations

from typing import TypeGuard

from planner.nodes import Collect, Node, Scatter, topological, transform
from planner.spec import EdgeSet


def insert_collects(root: Node) -> Node:
    """Put a Collect below each Scatter from sources, because source rows have to be brought from where the sources are.

    Layers that read the same rows share one Collect, so backward sums the gradients of all of them on the way back.
    """
    order = topological(root)
    if not any(map(_lacks_rows, order)):
        return root
    collected: dict[tuple[Node, EdgeSet], Collect] = {}

    def change(node: Node) -> Node | None:
        if _lacks_rows(node):
            once = collected.setdefault((node.x, node.edges), Collect(node.x, node.edges, node.layer))
            return Scatter(once, "source", node.edges, node.layer)
        return None

    return transform(root, change, order)


def _lacks_rows(node: Node) -> TypeGuard[Scatter]:
    """Return True if a node reads source rows that no Collect brings."""
    return isinstance(node, Scatter) and node.end == "source" and not isinstance(node.x, Collect)
