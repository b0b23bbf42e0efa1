"""Values of edges in an operator graph, as expressions and edge columns of the Graph Engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.expressions import OPERATIONS, Expression, leaves, operations
from planner.nodes import (
    Apply,
    Dropout,
    EdgeSoftmax,
    EdgeWeight,
    Node,
    NodeArgument,
    Parameter,
    Scatter,
    tensor_arguments,
)
from planner.patterns import RESHAPES
from planner.spec import ValueType, operator_name
from planner.steps.edge_dropout import EdgeDropout
from planner.steps.edge_expression import EdgeExpression
from planner.steps.segment_softmax import SegmentSoftmax

EDGE_WIDTH = 16
"""Numbers that an edge column may hold for each edge, which is about what the edge takes in a CSR matrix both ways. Wider
values are computed where neighbourhoods are collected, chunk by chunk, and never held for all edges."""

OPERATIONS_AT_ONCE = 16
"""Operations in one expression: beyond that it is cut, for one that reads a part of itself twice doubles in length."""


OPERATIONS_DEEP = 64
"""Operations on the way from an end of an edge to a message: each takes a few of Python's own calls to translate, of which
there may be a thousand, and the user's program has some."""


class ObstacleError(Exception):
    """What keeps a value of edges out of the Graph Engine, in words that go on from "the message ..."."""


@dataclass
class EdgeValues:
    """Translates values of edges; each once, however often it is read."""

    _expressions: dict[Node, Expression] = field(default_factory=dict)

    def expression(self, node: Node) -> Expression:
        """A value of edges as an expression.

        Raises:
            ObstacleError: a part of it needs parameters, or is no operation of `planner.expressions`.
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
        """A value of edges as a part of an expression of that width: number by number, or one number for all."""
        found = self.expression(node)
        uniform = set(leaves(found)) <= {("weight",)}
        if node.output.width != width and not (uniform and node.output.width == 1):
            raise ObstacleError(f"combines {node.output.width} with {width} numbers on each edge")
        return found

    def column(self, node: Node) -> Node:
        """A value of edges as an edge column."""
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
            case EdgeSoftmax():
                return ("edge", SegmentSoftmax(self.column(node.scores), node.layer))
            case Dropout():
                return ("edge", EdgeDropout(self.column(node.x), node.p, node.key, node.layer))
            case Apply():
                return self._operation(node)
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


def column(expression: Expression, type: ValueType, layer: str) -> Node:
    """The edge column that holds the results of an expression.

    Raises:
        ObstacleError: they are too wide for one.
    """
    if type.width > EDGE_WIDTH:
        raise ObstacleError(f"is {type.width} numbers wide on each edge; an edge column holds {EDGE_WIDTH} at most")
    node = expression[1] if expression[0] == "edge" else EdgeExpression(expression, type, layer)
    assert isinstance(node, Node)  # expressions of an operator graph read operators
    return node


def check_depth(node: Node) -> None:
    """Look at a value of edges before it is translated.

    Raises:
        ObstacleError: it is computed in too many operations one after the other.
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
    """The value below operators that only arrange the numbers of a row."""
    while isinstance(node, Apply) and node.op in RESHAPES and len(tensor_arguments(node)) == 1:
        node = tensor_arguments(node)[0]
    return node
