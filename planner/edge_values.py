"""Translates values on edges of an operator graph to expressions and edge columns of the Graph Engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.expressions import OPERATIONS, Expression, leaves, operations
from planner.nodes import (
    Apply,
    Dropout,
    EdgeColumn,
    EdgeSoftmax,
    EdgeWeight,
    Node,
    NodeArgument,
    Parameter,
    Random,
    Scatter,
    tensor_arguments,
)
from planner.patterns import RESHAPES
from planner.spec import ValueType, operator_name
from planner.steps.edge_dropout import EdgeDropout
from planner.steps.edge_expression import EdgeExpression
from planner.steps.scaled_propagate import EdgeDot
from planner.steps.segment_softmax import SegmentSoftmax

EDGE_WIDTH = 16
"""The most numbers that an edge column may hold for each edge.

This is about what an edge takes in the CSR matrices of both directions. Wider values are computed chunk by chunk, on
collected neighbourhoods, and never held for all edges.
"""

OPERATIONS_AT_ONCE = 16
"""The most operations in one expression. A larger one is cut, because an expression that uses a part twice doubles its
length."""


OPERATIONS_DEEP = 64
"""The most operations between an end of an edge and a message.

Translating each takes a few nested calls in Python, which allows a thousand, and the user's program needs some of
these.
"""


class ObstacleError(Exception):
    """An error about a value on edges that the Graph Engine cannot compute. Its text continues "the message ..."."""


@dataclass
class EdgeValues:
    """A translator of values on edges. It translates each value once, however often it is read."""

    _expressions: dict[Node, Expression] = field(default_factory=dict)

    def expression(self, node: Node) -> Expression:
        """Return a value on edges as an expression.

        Raises:
            ObstacleError: If a part of it needs parameters, or is no operation of `planner.expressions`.
        """
        if node.output.dtype != "float32":
            raise ObstacleError(f"holds {node.output.dtype} on edges")
        if node not in self._expressions:
            found = self._translated(node)
            if operations(found) > OPERATIONS_AT_ONCE:
                found = ("edge", self._column_of(found, node))
            self._expressions[node] = found
        return self._expressions[node]

    def operand(self, node: Node, width: int) -> Expression:
        """Return a value on edges as an operand of an expression with a width. Weights and constants fit any width."""
        found = self.expression(node)
        uniform = set(leaves(found)) <= {("weight",)}
        if node.output.width != width and not (uniform and node.output.width == 1):
            raise ObstacleError(f"combines {node.output.width} with {width} numbers on each edge")
        return found

    def column(self, node: Node) -> Node:
        """Return the operator whose edge column holds a value on edges."""
        return self._column_of(self.expression(node), node)

    def _column_of(self, expression: Expression, node: Node) -> Node:
        return column(expression, node.output, getattr(node, "layer", ""))

    def _translated(self, node: Node) -> Expression:
        if unshaped(node) is not node:
            return self.expression(unshaped(node))
        match node:
            case Scatter():
                return (node.end, node.x)
            case EdgeWeight():
                return ("constant", 1.0) if node.unit else ("weight",)
            case EdgeColumn():
                raise ObstacleError(f"reads {node.name}, which only stages have")
            case EdgeSoftmax():
                return ("edge", SegmentSoftmax(self.column(node.scores), node.layer))
            case Dropout():
                return ("edge", EdgeDropout(self.column(node.x), node.p, node.key, node.layer))
            case Random():
                raise ObstacleError("draws random numbers for every edge")
            case Apply():
                dot = _dot(node)
                return self._operation(node) if dot is None else ("edge", dot)
            case Parameter():
                raise ObstacleError(f"uses parameter {node.name} on edges")
        raise ObstacleError(f"needs {type(node).__name__} on edges")

    def _operation(self, node: Apply) -> Expression:
        name = operator_name(node.op)
        taken = OPERATIONS.get("leaky_relu" if name == "relu" else name, 0)
        if parameters := [child.name for child in node.children if isinstance(child, Parameter)]:
            raise ObstacleError(f"uses parameter {parameters[0]} on edges")
        given, settings = node.arguments[:taken], node.arguments[taken:]
        if not taken or node.keywords or (settings and name != "leaky_relu"):
            raise ObstacleError(f"computes {name} on edges, which no expression of edges has")
        parts = [self._part(value, node) for value in given]
        match name:
            case "relu":
                return ("leaky_relu", *parts, 0.0)
            case "leaky_relu":
                return (name, *parts, *(settings or (0.01,)))
        return (name, *parts)

    def _part(self, value: NodeArgument, node: Apply) -> Expression:
        if isinstance(value, (int, float)):
            return ("constant", float(value))
        if not isinstance(value, Node) or value.output.rows != "edge":
            raise ObstacleError("combines values of edges with what is none")
        return self.operand(value, node.output.width)


def _dot(node: Apply) -> EdgeDot | None:
    """Return the dot product, by head, of the rows at both ends of each edge, if a value is such a sum of products."""
    if node.op != "aten.sum.dim_IntList" or node.keywords:
        return None
    product, dimensions, *_ = node.arguments
    if (
        not isinstance(product, Apply)
        or product.op != "aten.mul.Tensor"
        or dimensions not in ((-1,), (len(product.output.shape),))
    ):
        return None
    rows = {one.end: one.x for one in product.arguments if isinstance(one, Scatter) and one.output == product.output}
    heads = ValueType("edge", product.output.shape[:-1], edges=product.output.edges)
    if len(rows) < 2 or product.output.dtype != "float32":
        return None
    return EdgeDot(rows["source"], rows["destination"], heads, node.layer)


def column(expression: Expression, type: ValueType, layer: str) -> Node:
    """Return the operator whose edge column holds the results of an expression.

    Raises:
        ObstacleError: If the results are too wide for an edge column.
    """
    if type.width > EDGE_WIDTH:
        raise ObstacleError(f"is {type.width} numbers wide on each edge; an edge column holds {EDGE_WIDTH} at most")
    node = expression[1] if expression[0] == "edge" else EdgeExpression(expression, type, layer)
    assert isinstance(node, Node)  # in an operator graph, expressions read operators
    return node


def check_depth(node: Node) -> None:
    """Check that a value on edges is not too deep to be translated.

    Raises:
        ObstacleError: If too many operations depend on one another.
    """
    depths: dict[Node, int] = {}
    stack = [node]
    while stack:
        top = stack[-1]
        inputs = [] if isinstance(top, Scatter) else [one for one in top.children if one.output.rows == "edge"]
        if waiting := [one for one in inputs if one not in depths]:
            stack += waiting
            continue
        depths[stack.pop()] = 1 + max((depths[one] for one in inputs), default=-1)
    if depths[node] > OPERATIONS_DEEP:
        raise ObstacleError(f"is {depths[node]} operations deep on each edge; {OPERATIONS_DEEP} are translated at most")


def unshaped(node: Node) -> Node:
    """Return the value below operators that only change the shape of a row."""
    while isinstance(node, Apply) and node.op in RESHAPES and len(tensor_arguments(node)) == 1:
        node = tensor_arguments(node)[0]
    return node
