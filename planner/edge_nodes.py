"""Operators of the Graph Engine on edges: columns of edges, and what leads from them to vertices.

An edge column is a value of every edge of an edge set, of a few numbers (one for each head of an attention layer).
"""

from __future__ import annotations

from planner.expressions import Expression
from planner.nodes import GraphOperator, Node, operator
from planner.spec import EdgeSet, ValueType


@operator
class EdgeExpression(GraphOperator):
    """Arithmetic on both ends of each edge, its weight, and other edge columns; see `planner.expressions`."""

    expression: Expression
    type: ValueType
    layer: str = ""


@operator
class SegmentSoftmax(GraphOperator):
    """An edge column normalised over the in-edges of each destination."""

    scores: Node
    layer: str = ""

    def _yields(self) -> ValueType:
        return self.scores.output


@operator
class EdgeDropout(GraphOperator):
    """Dropout of an edge column whose random numbers belong to `key` and the edge."""

    x: Node
    p: float
    key: int
    layer: str = ""

    def _yields(self) -> ValueType:
        return self.x.output


@operator
class EdgeSum(GraphOperator):
    """The sum of an edge column over the in-edges of each vertex."""

    x: Node
    type: ValueType
    layer: str = ""


@operator
class ScaledPropagate(GraphOperator):
    """The sum over in-edges of the source's row, each head of it times its number in an edge column."""

    x: Node
    scales: Node
    edges: EdgeSet
    type: ValueType
    layer: str = ""


@operator
class Extreme(GraphOperator):
    """The greatest ("max") or least ("min") of the sources' rows over in-edges, number by number; 0 without in-edges."""

    x: Node
    kind: str
    edges: EdgeSet
    layer: str = ""

    def _yields(self) -> ValueType:
        return self.x.output
