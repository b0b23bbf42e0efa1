"""Learned rows: a parameter of the model with a row for each vertex, read as a column that has a gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from planner.layout import Layout
from planner.nodes import GraphOperator, operator
from planner.physical import Column, Plan, of_model
from planner.spec import ValueType
from planner.statistics import Statistics
from planner.steps.backward import Backward
from planner.steps.step import AtSources, ColumnStep, GraphStep, Naming
from planner.traits import EngineTraits
from planner.work import Work


@operator
class LearnedRows(GraphOperator):
    """The rows of a parameter that has one for each vertex, in the order of the graph's ids."""

    parameter: str
    shape: tuple[int, ...]  # the shape of a row
    trainable: bool = True
    layer: str = ""

    def _yields(self) -> ValueType:
        return ValueType("vertex", self.shape)


@dataclass(frozen=True)
class LearnedRowsStep(ColumnStep):
    """output[v] = the parameter's row of v. Engines that order vertices in another way put the rows in that order."""

    parameter: str
    output: Column
    trainable: bool = True
    within: int | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Nothing, because a parameter is no column."""
        return ()

    @property
    def label(self) -> str:
        """The parameter and the step's output."""
        within = "" if self.within is None else f", within={self.within}"
        return f"LearnedRows({self.parameter}{within}) -> {self.output.name}"

    def renamed(self, to: Naming, stage: Naming = str) -> Self:
        """Return the same step with another name of its output."""
        return replace(self, output=replace(self.output, name=to(self.output.name)))

    def side_by_side(self, output: Column, model: int) -> Self:
        """Return the step for one model of a batch, whose parameters have names of their own."""
        return replace(self, parameter=of_model(model, self.parameter), output=output)

    def differentiate(self, backward: Backward) -> None:
        """Add the step that hands in the gradient, if the rows are trained."""
        gradient = backward.gradient(self.output) if self.trainable else None
        if gradient is not None:
            backward.add(LearnedRowsGradientStep(self.parameter, gradient, self.output.width, self.within))

    def work(self, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> Work:
        """Return the numbers that are copied."""
        return Work(edge_values=self.rows(statistics) * self.output.width)

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Return 0, because nothing crosses edges."""
        return 0.0


@dataclass(frozen=True)
class LearnedRowsGradientStep(GraphStep):
    """Hands in the gradient of learned rows: that of v's row is gradient[v], and 0 for vertices beyond the level.

    It makes no column. The engine returns the gradient with those of the other parameters.
    """

    parameter: str
    gradient: str
    width: int  # numbers in a row
    within: int | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The name of the gradient."""
        return (self.gradient,)

    @property
    def makes(self) -> tuple[str, ...]:
        """Nothing, because parameters are no columns."""
        return ()

    @property
    def columns_made(self) -> tuple[Column, ...]:
        """Nothing, because parameters are no columns."""
        return ()

    @property
    def label(self) -> str:
        """The gradient and the parameter."""
        within = "" if self.within is None else f", within={self.within}"
        return f"LearnedRowsGradient({self.gradient}{within}) -> {self.parameter}"

    def up_to(self, level: int) -> Self:
        """Return the same step on the vertices up to a level."""
        return replace(self, within=level)

    def renamed(self, to: Naming, stage: Naming = str) -> Self:
        """Return the same step with another name of the gradient."""
        return replace(self, gradient=to(self.gradient))

    def of_model(self, model: int) -> Self:
        """Return the step for one model of a batch, whose parameters have names of their own."""
        return replace(self, parameter=of_model(model, self.parameter))

    def differentiate(self, backward: Backward) -> None:
        """Do nothing, because a step of backward has no gradient."""

    def rows(self, statistics: Statistics) -> int:
        """Return the number of rows that have a gradient."""
        return statistics.rows_within(self.within)

    def bytes(self, statistics: Statistics, plan: Plan) -> int:
        """Return the bytes of these rows."""
        return 4 * self.width * self.rows(statistics)

    def work(self, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> Work:
        """Return the numbers that are copied."""
        return Work(edge_values=self.rows(statistics) * self.width)

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Return 0, because nothing crosses edges."""
        return 0.0


def learned_parameters(plan: Plan) -> dict[str, int]:
    """Return the parameters of a plan that have a row for each vertex, each with the numbers in a row."""
    steps = (step for steps in plan.passes for step in steps)
    return {step.parameter: step.output.width for step in steps if isinstance(step, LearnedRowsStep)}
