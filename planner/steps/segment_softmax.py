"""Softmax over the in-edges of each vertex."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.nodes import Node, operator
from planner.physical import Column, Plan
from planner.spec import ValueType
from planner.steps.backward import Backward
from planner.steps.edge_step import EdgeOperator, EdgeStep
from planner.work import Work

SOFTMAX = 5  # operations on each number of a softmax over in-edges
SOFTMAX_GRADIENT = 4  # operations on each number of the gradient of such a softmax


@operator
class SegmentSoftmax(EdgeOperator):
    """An edge column normalised over the in-edges of each destination."""

    scores: Node
    layer: str = ""

    def _yields(self) -> ValueType:
        return self.scores.output

    def step(self, output: Column, names: Mapping[Node, str]) -> EdgeStep:
        """Return the step that normalises its scores."""
        assert output.edges is not None  # it yields an edge column
        return SegmentSoftmaxStep(output, output.edges, names[self.scores])


@dataclass(frozen=True)
class SegmentSoftmaxStep(EdgeStep):
    """output[e] = exp(input[e] - max) / (sum + SOFTMAX_EPSILON). Max and sum are over the in-edges of e's destination."""

    input: str

    OF_EDGES = ("input",)
    IN_RUNS = True

    def adjoint(self, gradient: str, backward: Backward) -> None:
        """Add its vector-Jacobian product over in-edges."""
        given = backward.column(self.input, self.output.shape, self.edges)
        step = SegmentSoftmaxGradientStep(given, self.edges, self.output.name, gradient, within=self.within)
        backward.add(step, of=self.input)

    def work_on(self, edges: int, plan: Plan) -> Work:
        """Return its operations on each number."""
        return Work(edge_values=edges * self.output.width * SOFTMAX)


@dataclass(frozen=True)
class SegmentSoftmaxGradientStep(EdgeStep):
    """output[e] = softmax[e] * (gradient[e] - sum of softmax * gradient over the in-edges of e's destination)."""

    softmax: str
    gradient: str

    READS = ("softmax", "gradient")

    def work_on(self, edges: int, plan: Plan) -> Work:
        """Return its operations on each number."""
        return Work(edge_values=edges * self.output.width * SOFTMAX_GRADIENT)
