"""Operators of the Graph Engine -> steps over named columns."""

from __future__ import annotations

from collections.abc import Mapping

from planner.edge_nodes import EdgeDropout, EdgeExpression, EdgeSum, Extreme, ScaledPropagate, SegmentSoftmax
from planner.expressions import renamed
from planner.nodes import GraphOperator, Node, Propagate
from planner.physical import (
    Column,
    EdgeDropoutStep,
    EdgeExpressionStep,
    EdgeSumStep,
    ExtremeStep,
    PropagateStep,
    ScaledPropagateStep,
    SegmentSoftmaxStep,
    Step,
)
from planner.spec import EdgeSet


def graph_step(node: GraphOperator, names: Mapping[Node, str]) -> Step:
    """The step of an operator, except for Collect, which belongs to the stage that reads it.

    Args:
        node: the operator.
        names: of all columns.
    """
    column = Column(names[node], node.output.shape, edges=node.output.edges)
    match node:
        case Propagate():
            return PropagateStep(names[node.x], column, node.edges, node.weighted)
        case EdgeExpression():
            expression = renamed(node.expression, lambda operand: names[operand])
            return EdgeExpressionStep(column, _edges(node), expression)
        case SegmentSoftmax():
            return SegmentSoftmaxStep(column, _edges(node), names[node.scores])
        case EdgeDropout():
            return EdgeDropoutStep(column, _edges(node), names[node.x], node.p, node.key)
        case EdgeSum():
            return EdgeSumStep(column, _edges(node.x), names[node.x])
        case ScaledPropagate():
            heads = node.scales.output.width
            return ScaledPropagateStep(column, node.edges, names[node.x], names[node.scales], heads)
        case Extreme():
            return ExtremeStep(column, node.edges, names[node.x], node.kind)
    raise TypeError(f"{type(node).__name__} is no step of its own")  # every other one is listed above


def _edges(node: Node) -> EdgeSet:
    edges = node.output.edges
    assert edges is not None  # the rows of an edge column are edges
    return edges
