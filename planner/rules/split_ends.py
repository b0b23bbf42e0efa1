"""Take the factors of a sum's messages that belong to vertices out of the edges."""

from __future__ import annotations

from collections.abc import Sequence

from planner.nodes import Aggregate, Node, Scatter
from planner.products import Factor, factors_of, product, with_ones
from planner.rule import NodeRule


def split_ends(node: Node) -> Node | None:
    """The sum of a[source] * b[destination] * w_e * x[source] is b times the sum of w_e * (a * x)[source].

    So is the mean. Models that normalise the weights of edges by the degrees of both ends have such messages. Afterwards
    a message is the row of a source times the weight, or times the rest of what depends on the edge.

    >>> from planner.nodes import Elementwise, StaticColumn
    >>> from planner.printer import tree
    >>> from planner.spec import ValueType
    >>> x, scale = (StaticColumn(name, ValueType("vertex", (width,))) for name, width in (("features", 4), ("label", 1)))
    >>> source, destination = Scatter(x, "source", "graph"), Scatter(scale, "destination", "graph")
    >>> message = Elementwise("aten.mul.Tensor", (destination, source), (), source.output)
    >>> for line in tree(split_ends(Aggregate(message, "sum", "graph"))): print(line)
    Elementwise(mul, _, label)                                        dl    [V, 4]
    Aggregate(kind=sum, edges=graph)                                  dl    [V, 4]
    Scatter(end=source, edges=graph, features)                        dl    [E, 4]
    """
    if not isinstance(node, Aggregate) or node.kind not in ("sum", "mean"):
        return None
    by_end: dict[str, list[Factor]] = {"source": [], "destination": [], "edge": []}
    for factor in factors_of(node.message):
        end = factor.node.end if isinstance(factor.node, Scatter) else "edge"
        by_end[end].append(factor)
    if not by_end["destination"] and len(by_end["source"]) < 2:
        return None
    of_edges = [with_ones(factor, node.layer) for factor in by_end["edge"]]
    if by_end["source"]:
        of_sources = product(_vertex_values(by_end["source"], node.layer), node.layer)
        of_edges.insert(0, Scatter(of_sources, "source", node.edges, node.layer))
    if not any(value.output.rows == "edge" for value in of_edges):
        return None
    total: Node = Aggregate(product(of_edges, node.layer), node.kind, node.edges, node.layer)
    result = product([total, *_vertex_values(by_end["destination"], node.layer)], node.layer)
    return result if result.output == node.output else None


def _vertex_values(factors: Sequence[Factor], layer: str) -> list[Node]:
    """Return the values of vertices, of which the factors at one end of the edges are copies."""
    return [with_ones(Factor(one.node.x, one.ones), layer) for one in factors if isinstance(one.node, Scatter)]


RULE = NodeRule(
    name="split_ends",
    apply=split_ends,
    on=(Aggregate,),
    idle="no summed message has a factor of its destination, or several of its source",
    in_general_plan=False,
)
