"""Leave out the multiplication by edge weights on a graph that has none."""

from __future__ import annotations

from planner.nodes import Apply, Node
from planner.patterns import weighted
from planner.rule import NodeRule


def drop_unit_weight(node: Node) -> Node | None:
    """x * 1 = x, and every edge weighs 1 if the graph has no weights.

    >>> from planner.nodes import EdgeWeight, Elementwise, Scatter, StaticColumn
    >>> from planner.printer import tree
    >>> from planner.spec import ValueType
    >>> x = Scatter(StaticColumn("features", ValueType("vertex", (4,))), "source", "graph")
    >>> times = Elementwise("aten.mul.Tensor", (x, EdgeWeight("graph", unit=True)), (), x.output)
    >>> for line in tree(times): print(line)
    Elementwise(mul, _, weight of graph)                              dl    [E, 4]
    Scatter(end=source, edges=graph, features)                        dl    [E, 4]
    >>> for line in tree(drop_unit_weight(times)): print(line)
    Scatter(end=source, edges=graph, features)                        dl    [E, 4]
    """
    product = weighted(node)
    return product[0] if product is not None and product[1].unit else None


def declined(node: Node) -> str | None:
    """Return the reason why a product with the edge's weight stayed, or None for any other node."""
    product = weighted(node)
    return None if product is None else "the graph has weights, so messages are multiplied by them"


RULE = NodeRule(
    name="drop_unit_weight",
    apply=drop_unit_weight,
    declined=declined,
    on=(Apply,),
    idle="no message reads an edge's weight",
)
