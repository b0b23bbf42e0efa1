"""Let a reduction over all vertices read a sum along edges itself, and not what the DL Engine makes of it."""

from __future__ import annotations

from planner.nodes import Apply, Elementwise, GraphOperator, Node, StaticColumn, altered
from planner.patterns import RESHAPES
from planner.rule import NodeRule
from planner.steps.total import Total

SELECT = "aten.select.int"


def push_down_totals(node: Node) -> Node | None:
    """mean(s x + b) = mean(s x) + b, and var(s x + b) = var(s x), for a static number s of each row and a vector b.

    The DL Engine then need not put out s x + b as a column, which the Graph Engine would reduce. Nor does it read the
    gradient of that column. The Graph Engine holds x in any case, because an operator of its own makes it.

    >>> from planner.nodes import Parameter, Propagate
    >>> from planner.printer import tree
    >>> from planner.spec import ValueType
    >>> x, b = StaticColumn("features", ValueType("vertex", (4,))), Parameter("b", (4,))
    >>> summed = Elementwise("aten.add.Tensor", (Propagate(x, "graph"), b), (), x.output)
    >>> for line in tree(Total(summed, "mean")): print(line)
    Total(mean, all vertices)                                         graph [V, 4]
    Elementwise(add, b)                                               dl    [V, 4]
    Propagate(sum, edges=graph, features)                             graph [V, 4]
    >>> for line in tree(push_down_totals(Total(summed, "mean"))): print(line)
    Elementwise(add, b)                                               dl    [V, 4]
    Total(mean, all vertices)                                         graph [V, 4]
    Propagate(sum, edges=graph, features)                             graph [V, 4]
    """
    if isinstance(node, Total):
        return _scaled(node) or (_shifted(node) if node.kind == "mean" else None)
    if isinstance(node, Apply) and node.op == SELECT and isinstance(node.arguments[0], Total):
        return _selected(node, node.arguments[0])
    return None


def _scaled(total: Total) -> Total | None:
    """Return the total of x with the scale s, for a total of s x."""
    found = None if total.scale is not None else _scaling(total.x)
    return None if found is None else altered(total, x=found[0], scale=found[1])


def _shifted(total: Total) -> Node | None:
    """Return the mean of x plus b, for a mean of x + b."""
    found = _sum(total)
    if found is None:
        return None
    x, b = found
    return Elementwise("aten.add.Tensor", (altered(total, x=x), b), (), total.output, total.layer)


def _selected(select: Apply, total: Total) -> Node | None:
    """Return the mean or the variance of x + b from the moments of x."""
    found = _sum(total)
    if found is None or total.kind != "moments" or select.arguments[1] not in (len(total.output.shape), -1):
        return None
    x, b = found
    moment = altered(select, arguments=(altered(total, x=x), *select.arguments[1:]))
    if select.arguments[2] == 1:
        return moment
    return Elementwise("aten.add.Tensor", (moment, b), (), select.output, select.layer)


def _sum(total: Total) -> tuple[Node, Node] | None:
    """Return x and b if a total reads x + b, where b is the same for all rows and x lies in the Graph Engine."""
    x = total.x
    if total.scale is not None or not isinstance(x, Elementwise) or x.op != "aten.add.Tensor" or x.keywords:
        return None
    rows, b = x.arguments
    if not isinstance(rows, Node) or not isinstance(b, Node) or b.output.rows != "none" or rows.output != x.output:
        return None
    return (rows, b) if _lies_there(rows) or _scaling(rows) is not None else None


def _scaling(node: Node) -> tuple[Node, StaticColumn] | None:
    """Return x and s if a node is s x, where s is a static column with a number for each row. Else None."""
    if not isinstance(node, Elementwise) or node.op != "aten.mul.Tensor" or node.keywords:
        return None
    for x, factor in (node.arguments, node.arguments[::-1]):
        if isinstance(x, Node) and x.output == node.output and len(x.output.shape) == 1 and _lies_there(x):
            scale = _number(factor)
            if scale is not None:
                return x, scale
    return None


def _number(node: object) -> StaticColumn | None:
    """Return the static column with a number for each row that a node is, perhaps with dimensions of 1, or None."""
    while isinstance(node, Apply) and node.op in RESHAPES and node.output.width == 1:
        node = node.arguments[0]
    return node if isinstance(node, StaticColumn) and node.output.width == 1 else None


def _lies_there(node: Node) -> bool:
    return isinstance(node, (GraphOperator, StaticColumn)) and node.output.rows == "vertex"


RULE = NodeRule(
    name="push_down_totals",
    apply=push_down_totals,
    on=(Total, Apply),
    idle="no reduction over all vertices reads a sum along edges that is scaled or shifted",
    in_general_plan=False,
)
