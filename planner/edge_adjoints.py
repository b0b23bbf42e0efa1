"""The adjoints of the steps on edges: for each, the steps that turn the gradient of its output into those of its inputs.

expression                     ->  the derivative for each operand, an expression again; at a vertex, its sum over edges
softmax over in-edges          ->  its vector-Jacobian product over in-edges
dropout                        ->  the same dropout: the same numbers are kept and scaled
sum over in-edges              ->  the destination's row on each edge
propagate scaled by a column   ->  for the rows: the reverse propagate, scaled alike; for the column: a dot product of both
                                   ends' rows for each edge and head
max or min                     ->  shares for the sources that have it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from planner.expressions import Expression, adjoint
from planner.physical import (
    Column,
    EdgeDotStep,
    EdgeDropoutStep,
    EdgeExpressionStep,
    EdgeStep,
    EdgeSumStep,
    ExtremeGradientStep,
    ExtremeStep,
    ScaledPropagateStep,
    SegmentSoftmaxGradientStep,
    SegmentSoftmaxStep,
)
from planner.records import changed
from planner.spec import EdgeSet


@dataclass
class EdgeAdjoint:
    """What the backward of one step consists of."""

    fresh: Callable[[str], str]  # a name for a column that has to do with the given one
    levels: Mapping[str, int | None]  # of the columns that forward makes
    steps: list[EdgeStep] = field(default_factory=list)
    gradients: list[tuple[str, str]] = field(default_factory=list)  # (column, a part of its gradient)

    def of(self, step: EdgeStep, gradient: str) -> EdgeAdjoint:
        """Add the backward of a forward step, given (a part of) the gradient of its output."""
        output = step.output
        match step:
            case EdgeExpressionStep():
                self._expression(step, gradient)
            case SegmentSoftmaxStep():
                given = self._column(step.input, output.shape, step.edges)
                names = (output.name, gradient)
                self._add(step.input, SegmentSoftmaxGradientStep(given, step.edges, *names, within=step.within))
            case EdgeDropoutStep():
                self._add(step.input, changed(step, output=self._like(step.input, output), input=gradient))
            case EdgeSumStep():
                given = self._column(step.input, output.shape, step.edges)
                row = ("destination", gradient)
                self._add(step.input, EdgeExpressionStep(given, step.edges, row, within=step.within))
            case ScaledPropagateStep():
                self._scaled(step, gradient)
            case ExtremeStep():
                parts = (step.input, step.kind, output.name, gradient)
                given = self._column(step.input, output.shape)
                self._add(step.input, ExtremeGradientStep(given, step.edges, *parts, within=step.within))
            case _:
                raise TypeError(f"{type(step).__name__} is no step of forward")  # all of those are listed above
        return self

    def summed(self, parts: list[str], column: Column) -> str:
        """One edge column, the sum of several."""
        if len(parts) == 1 or column.edges is None:
            return parts[0]
        total: Expression = ("edge", parts[0])
        for part in parts[1:]:
            total = ("add", total, ("edge", part))
        given = self._like(column.name, column)
        self.steps.append(EdgeExpressionStep(given, column.edges, total, within=column.within))
        return given.name

    def _expression(self, step: EdgeExpressionStep, gradient: str) -> None:
        held: dict[tuple[Expression, int | None], str] = {(("edge", gradient), step.within): gradient}
        for (kind, name), derivative in adjoint(step.expression, ("edge", gradient)).items():
            level = self.levels.get(name) if kind == "edge" else step.within
            if (derivative, level) not in held:
                given = changed(self._like(step.output.name, step.output), within=level)
                self.steps.append(EdgeExpressionStep(given, step.edges, derivative, within=step.within))
                held[derivative, level] = given.name
            if kind == "edge":
                self.gradients.append((name, held[derivative, level]))
            else:
                given = self._column(name, step.output.shape)
                self._add(name, EdgeSumStep(given, step.edges, held[derivative, level], kind, within=step.within))

    def _scaled(self, step: ScaledPropagateStep, gradient: str) -> None:
        self._add(step.input, changed(step, output=self._like(step.input, step.output), input=gradient, reverse=True))
        scales = self._column(step.scales, (step.heads,), step.edges)
        self._add(step.scales, EdgeDotStep(scales, step.edges, step.input, gradient, within=step.within))

    def _add(self, column: str, step: EdgeStep) -> None:
        self.steps.append(step)
        self.gradients.append((column, step.output.name))

    def _like(self, name: str, column: Column) -> Column:
        return self._column(name, column.shape, column.edges)

    def _column(self, name: str, shape: tuple[int, ...], edges: EdgeSet | None = None) -> Column:
        return Column(self.fresh(name), shape, edges=edges, within=self.levels.get(name))
