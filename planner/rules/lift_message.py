"""Compute once per vertex what a message computes from one end of the edge alone."""

from __future__ import annotations

from planner.labels import place
from planner.nodes import Apply, Draw, Dropout, Node, Parameter, Scatter, altered, tensor_arguments
from planner.rule import NodeRule
from planner.spec import ValueType, operator_name


def lift_message(node: Node) -> Node | None:
    """f(x[end]) = f(x)[end] for a row-wise f, if all its inputs with rows come from the same end of the edge.

    Dropout stays on the edges, because it would draw other random numbers on vertices.

    >>> from planner.nodes import Elementwise, StaticColumn
    >>> from planner.printer import tree
    >>> x = StaticColumn("features", ValueType("vertex", (4,)))
    >>> on_edges = Elementwise("aten.relu.default", (Scatter(x, "source", "graph"),), (), ValueType("edge", (4,), edges="graph"))
    >>> for line in tree(on_edges): print(line)
    Elementwise(relu)                                                 dl    [E, 4]
    Scatter(end=source, edges=graph, features)                        dl    [E, 4]
    >>> for line in tree(lift_message(on_edges)): print(line)
    Scatter(end=source, edges=graph)                                  dl    [E, 4]
    Elementwise(relu, features)                                       dl    [V, 4]
    """
    if not isinstance(node, Apply) or node.type.rows != "edge":  # nor has one on parameters alone
        return None
    inputs = tensor_arguments(node)
    scatters = [value for value in inputs if isinstance(value, Scatter)]
    ends = {(scatter.end, scatter.edges) for scatter in scatters}
    if len(ends) != 1 or len(scatters) < len(inputs):
        return None
    end, edges = ends.pop()
    below: dict[Node, Node] = {scatter: scatter.x for scatter in scatters}
    lifted = altered(node, below, type=ValueType("vertex", node.type.shape, node.type.dtype))
    return Scatter(lifted, end, edges, node.layer)


def declined(node: Node) -> str | None:
    """Return the reason why a costly operator stayed on edges, and what to write instead, or None.

    Only random numbers and operators with a parameter are named.
    """
    if isinstance(node, Draw) and not isinstance(node, Dropout) and node.output.rows == "edge":
        return f"the message of {place(node)} draws its own numbers for every edge; draw them for x before the layer"
    if isinstance(node, Dropout) and node.output.rows == "edge":
        return f"dropout in the message of {place(node)} draws its own numbers for every edge; apply it to x before the layer"
    if not isinstance(node, Apply) or node.type.rows != "edge":
        return None
    parameters = [child.name for child in node.children if isinstance(child, Parameter)]
    if not parameters:
        return None
    return (
        f"{operator_name(node.op)} in the message of {place(node)} applies parameter {parameters[0]} to values "
        "of both ends or of the edge; write it as a function of x_j and one of x_i, and combine the results"
    )


RULE = NodeRule(
    name="lift_message",
    apply=lift_message,
    declined=declined,
    on=(Apply, Draw),
    idle="no message computes anything from one end of an edge alone",
    in_general_plan=False,
)
