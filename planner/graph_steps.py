"""Turns operators of the Graph Engine into steps over named columns."""

from __future__ import annotations

from collections.abc import Mapping

from planner.nodes import GraphOperator, Node, Propagate
from planner.physical import Column
from planner.steps.edge_step import EdgeOperator
from planner.steps.learned_rows import LearnedRows, LearnedRowsStep
from planner.steps.propagate import PropagateStep
from planner.steps.step import Step
from planner.steps.total import ChunkSum, Total, TotalStep


def graph_step(node: GraphOperator, names: Mapping[Node, str]) -> Step:
    """Return the step of an operator. Collect has none, because it belongs to the stage that reads it.

    Args:
        node: The operator.
        names: The name of every column, by its operator.
    """
    column = Column(names[node], node.output.shape, edges=node.output.edges, few=isinstance(node, Total))
    match node:
        case Propagate():
            return PropagateStep(names[node.x], column, node.edges, node.weighted)
        case Total():
            scale = None if node.scale is None else names[node.scale]
            return TotalStep(names[node.x], column, node.kind, scale, isinstance(node.x, ChunkSum))
        case LearnedRows():
            return LearnedRowsStep(node.parameter, column, node.trainable, of_type=node.of_type)
        case EdgeOperator():
            return node.step(column, names)
    raise TypeError(f"{type(node).__name__} is no step of its own")  # all other operators are listed above
