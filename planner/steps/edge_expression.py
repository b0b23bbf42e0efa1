"""Arithmetic on edges, from the values at each edge to an edge column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from planner.expressions import Expression, adjoint, columns, ends_exchanged, leaves, operations, renamed, text
from planner.nodes import Node, operator
from planner.physical import Column, Plan
from planner.spec import ValueType
from planner.steps.backward import Backward
from planner.steps.edge_step import EdgeOperator, EdgeStep
from planner.steps.edge_sum import EdgeSumStep
from planner.steps.step import Naming
from planner.work import Work


@operator
class EdgeExpression(EdgeOperator):
    """Arithmetic on both ends of each edge, its weight, and other edge columns: see `planner.expressions`."""

    expression: Expression
    type: ValueType
    layer: str = ""

    def step(self, output: Column, names: Mapping[Node, str]) -> EdgeStep:
        """Return the step with the expression over names of columns."""
        assert output.edges is not None  # it yields an edge column
        return EdgeExpressionStep(output, output.edges, renamed(self.expression, lambda operand: names[operand]))

    @property
    def shown(self) -> list[str]:
        """The expression, with the kinds of its columns in place of their names."""
        return [text(renamed(self.expression, lambda _: ""))]


@dataclass(frozen=True)
class EdgeExpressionStep(EdgeStep):
    """output[e] = an expression over the rows at both ends of e, its weight and other edge columns."""

    expression: Expression

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that it reads."""
        return columns(self.expression)

    IN_RUNS = True

    @property
    def of_edges(self) -> tuple[str, ...]:
        """The names of the edge columns that it reads."""
        return tuple(leaf[1] for leaf in leaves(self.expression) if leaf[0] == "edge")

    @property
    def at_sources(self) -> tuple[str, ...]:
        """The names of the columns that it reads where its edges begin."""
        return tuple(leaf[1] for leaf in leaves(self.expression) if leaf[0] == "source")

    @property
    def read_whole(self) -> tuple[str, ...]:
        """The names of all columns that it reads."""
        return self.columns

    @property
    def words(self) -> list[str]:
        """The text of the expression."""
        return [text(self.expression)]

    def renamed(self, to: Naming, stage: Naming = str) -> Self:
        """Return the same step under other names."""
        output = replace(self.output, name=to(self.output.name))
        return replace(self, expression=renamed(self.expression, to), output=output)

    def turned(self) -> EdgeStep:
        """Return the expression with the ends of its leaves exchanged."""
        return self.exchanged(expression=ends_exchanged(self.expression))

    def adjoint(self, gradient: str, backward: Backward) -> None:
        """Add an expression for the gradient of each operand. For an operand on vertices, add its sum over edges too."""
        shape, edges = self.output.shape, self.output.edges
        held: dict[tuple[Expression, int | None], str] = {(("edge", gradient), self.within): gradient}
        for (kind, name), derivative in adjoint(self.expression, ("edge", gradient)).items():
            level = backward.levels.get(name) if kind == "edge" else self.within
            if (derivative, level) not in held:
                given = replace(backward.column(self.output.name, shape, edges), within=level)
                backward.add(EdgeExpressionStep(given, self.edges, derivative, within=self.within))
                held[derivative, level] = given.name
            if kind == "edge":
                backward.contribute(name, held[derivative, level])
            else:
                given, summed = backward.column(name, shape), held[derivative, level]
                backward.add(EdgeSumStep(given, self.edges, summed, kind, within=self.within), of=name)

    def work_on(self, edges: int, plan: Plan) -> Work:
        """Return its operations, on each number of its output."""
        return Work(edge_values=edges * self.output.width * max(1, operations(self.expression)))
