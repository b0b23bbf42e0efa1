"""Take the maximum or minimum over unchanged neighbours in the Graph Engine."""

from __future__ import annotations

from planner.labels import place
from planner.nodes import Aggregate, Node, Scatter
from planner.rule import NodeRule
from planner.steps.extreme import Extreme


def push_down_extremes(node: Node) -> Node | None:
    """The max (min) over in-edges of x[source] is Extreme(x), which collects nothing.

    The gradient goes to the sources that have the extreme value, in equal shares.

    >>> from planner.nodes import StaticColumn
    >>> from planner.printer import tree
    >>> from planner.spec import ValueType
    >>> x = StaticColumn("features", ValueType("vertex", (4,)))
    >>> before = Aggregate(Scatter(x, "source", "graph"), "max", "graph")
    >>> for line in tree(before): print(line)
    Aggregate(kind=max, edges=graph)                                  dl    [V, 4]
    Scatter(end=source, edges=graph, features)                        dl    [E, 4]
    >>> for line in tree(push_down_extremes(before)): print(line)
    Extreme(max, edges=graph, features)                               graph [V, 4]
    """
    if not isinstance(node, Aggregate) or node.kind not in ("max", "min"):
        return None
    message = node.message
    if not isinstance(message, Scatter) or message.end != "source" or message.output.dtype != "float32":
        return None
    return Extreme(message.x, node.kind, node.edges, node.layer)


def declined(node: Node) -> str | None:
    """Return the reason why a max or min stayed in the DL Engine, and what to write instead, or None."""
    if not isinstance(node, Aggregate) or node.kind not in ("max", "min"):
        return None
    return (
        f"the {node.kind} of {place(node)} is not over plain rows of sources; write the message as a function of x_j "
        "alone; its neighbourhoods are collected"
    )


RULE = NodeRule(
    name="push_down_extremes",
    apply=push_down_extremes,
    declined=declined,
    needs="extremes",
    on=(Aggregate,),
    idle="the model takes no max or min over edges",
    in_general_plan=False,
)
