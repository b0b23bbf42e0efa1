"""Dropout of an edge column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from planner.nodes import Node, operator
from planner.physical import Column, Plan
from planner.spec import ValueType
from planner.steps.backward import Backward
from planner.steps.edge_step import EdgeOperator, EdgeStep
from planner.work import Work


@operator
class EdgeDropout(EdgeOperator):
    """Dropout of an edge column, whose random numbers depend on `key` and the edge."""

    x: Node
    p: float
    key: int
    layer: str = ""

    def _yields(self) -> ValueType:
        return self.x.output

    def step(self, output: Column, names: Mapping[Node, str]) -> EdgeStep:
        """Return the step with the same dropout of a column."""
        assert output.edges is not None  # it yields an edge column
        return EdgeDropoutStep(output, output.edges, names[self.x], self.p, self.key)

    @property
    def shown(self) -> list[str]:
        """The probability and the key of the dropout."""
        return [f"p={self.p:g}", f"key={self.key}"]


@dataclass(frozen=True)
class EdgeDropoutStep(EdgeStep):
    """Dropout of an edge column, as `lotan.dropout` in a stage. It is its own adjoint."""

    input: str
    p: float
    key: int
    model: int = 0  # number of the model in the batch, whose random numbers are drawn

    DRAWS = True

    @property
    def words(self) -> list[str]:
        """The name of the input, and the probability."""
        return [self.input, f"p={self.p:g}"]

    def side_by_side(self, output: Column, model: int) -> Self:
        """Return the step with the random numbers of one model. Each model has numbers of its own, so it is the only one."""
        return replace(self, output=output, model=model)

    def adjoint(self, gradient: str, backward: Backward) -> None:
        """Add the same dropout, which keeps and scales the same numbers."""
        given = backward.column(self.input, self.output.shape, self.output.edges)
        backward.add(replace(self, output=given, input=gradient), of=self.input)

    def work_on(self, edges: int, plan: Plan) -> Work:
        """Return a random number and an operation, for each number."""
        return Work(edge_values=edges * self.output.width, draws=edges * self.output.width)
