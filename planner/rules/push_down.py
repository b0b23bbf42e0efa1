"""Sum unparameterised messages in the Graph Engine."""

from __future__ import annotations

from planner.labels import place
from planner.neighbours import OnNeighbours
from planner.nodes import Aggregate, Draw, EdgeSoftmax, Node, Parameter, Propagate, Scatter
from planner.patterns import copied_source, divided_by_degree, has_degree
from planner.rule import NodeRule
from planner.spec import quantile_of


def push_down(node: Node) -> Node | None:
    """The sum over in-edges of [w_e *] x[source] is Propagate(x), and the mean is that sum divided by the in-degree.

    No neighbourhood is collected. Section 4.2 of the Lotan report says so: if message and aggregate have no parameters,
    one aggregated vector for each vertex is piped in place of its neighbourhood.

    >>> from planner.nodes import StaticColumn
    >>> from planner.printer import tree
    >>> from planner.spec import ValueType
    >>> x = StaticColumn("features", ValueType("vertex", (4,)))
    >>> before = Aggregate(Scatter(x, "source", "graph"), "sum", "graph")
    >>> for line in tree(before): print(line)
    Aggregate(kind=sum, edges=graph)                                  dl    [V, 4]
    Scatter(end=source, edges=graph, features)                        dl    [E, 4]
    >>> for line in tree(push_down(before)): print(line)
    Propagate(sum, edges=graph, features)                             graph [V, 4]
    """
    if not isinstance(node, Aggregate) or node.kind not in ("sum", "mean"):
        return None
    if node.kind == "mean" and not has_degree(node.edges):
        return None
    copied = copied_source(node.message)
    if copied is None:
        return None
    total = Propagate(copied[0], node.edges, copied[1], node.layer)
    return total if node.kind == "sum" else divided_by_degree(total, node.edges, node.layer)


def declined(node: Node) -> str | None:
    """Return the reason why an aggregate stayed in the DL Engine, and what to write instead, or None."""
    if isinstance(node, OnNeighbours):
        return (
            f"the aggregation of {place(node)} puts neighbours side by side, which only stages do; they are collected"
        )
    if isinstance(node, Aggregate) and quantile_of(node.kind) is not None:
        return f"the quantile of {place(node)} sorts messages, which only stages do; its neighbourhoods are collected"
    if not isinstance(node, Aggregate) or node.kind not in ("sum", "mean"):
        return None
    where = place(node)
    if node.kind == "mean" and not has_degree(node.edges):
        return f"the mean of {where} runs over added self-loops; write it as a sum over a scaled x"
    return f"the message of {where} {_reason(node.message)}; its neighbourhoods are collected"


def _reason(message: Node) -> str:
    on_edges = _on_edges(message)
    parameters = [child.name for node in on_edges for child in node.children if isinstance(child, Parameter)]
    if parameters:
        return f"uses parameter {parameters[0]} on edges; write that part as a function of x_j and one of x_i, and combine both"
    if any(isinstance(node, Draw) for node in on_edges):
        return "draws random numbers for every edge; drop numbers of x instead"
    if any(isinstance(node, EdgeSoftmax) for node in on_edges):
        return "is a softmax over the in-edges"
    if any(isinstance(node, Scatter) and node.end == "destination" for node in on_edges):
        return "reads the destination"
    return "is more than the source's row times the edge's weight"


def _on_edges(message: Node) -> list[Node]:
    """Return the nodes of a message that have edge rows, the message first.

    The walk stops at vertex rows, because the nodes below them belong to other layers.
    """
    found = [message]
    for node in found:
        found += [child for child in dict.fromkeys(node.children) if child.output.rows == "edge" and child not in found]
    return found


RULE = NodeRule(
    name="push_down",
    apply=push_down,
    declined=declined,
    on=(Aggregate, OnNeighbours),
    idle="the model sums no plain rows over edges",
    in_general_plan=False,
)
