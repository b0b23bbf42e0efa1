"""Collections: what brings the rows of sources to where an operator of the DL Engine reads them."""

from __future__ import annotations

from typing import TypeGuard

from planner.nodes import Collect, Node, Scatter, topological, transform
from planner.spec import EdgeSet


def insert_collects(root: Node) -> Node:
    """Scatter(x, source) = Scatter(Collect(x), source): the row of a source has to come from where the source is.

    Rows that several layers read come once: what is summed of their gradients on the way back is of all readers.
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
    """Whether it reads sources that nobody collects."""
    return isinstance(node, Scatter) and node.end == "source" and not isinstance(node.x, Collect)
