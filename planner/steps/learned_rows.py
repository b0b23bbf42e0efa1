"""Learned rows: a parameter of the model with a row for each vertex, read as a column that has a gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from planner.estimate import BYTES, row_bytes
from planner.layout import Layout
from planner.nodes import GraphOperator, operator
from planner.physical import Column, Plan, of_model
from planner.spec import ValueType
from planner.statistics import Statistics
from planner.steps.backward import Backward
from planner.steps.step import AtSources, ColumnStep, GraphStep, Naming
from planner.traits import EngineTraits
from planner.work import Work, of_driver

# copies of learned rows: the model's, two of the optimizer's state, the best ones, and a gradient, or later the result
LEARNED_COPIES = 5


@dataclass(frozen=True)
class OfType:
    """The vertices that have learned rows, in a graph with several types of vertices."""

    number: int  # the number of their type
    count: int  # the number of these vertices

    def __str__(self) -> str:
        return f"of type {self.number}"


@operator
class LearnedRows(GraphOperator):
    """The rows of a parameter that has one for each vertex, in the order of the graph's ids.

    If only the vertices of one type have a row, that of any other is 0.
    """

    parameter: str
    shape: tuple[int, ...]  # the shape of a row
    trainable: bool = True
    layer: str = ""
    of_type: OfType | None = None  # None: all vertices have a row

    def _yields(self) -> ValueType:
        return ValueType("vertex", self.shape)


@dataclass(frozen=True)
class LearnedRowsStep(ColumnStep):
    """output[v] = the parameter's row of v, or 0 if v has none. Engines put the rows in their own order of the vertices."""

    parameter: str
    output: Column
    trainable: bool = True
    within: int | None = None
    of_type: OfType | None = None  # None: all vertices have a row

    @property
    def reads(self) -> tuple[str, ...]:
        """Nothing, because a parameter is no column."""
        return ()

    @property
    def label(self) -> str:
        """The parameter and the step's output."""
        return f"LearnedRows({self.parameter}{_scope(self.of_type, self.within)}) -> {self.output.name}"

    def numbers(self, vertices: int) -> int:
        """Return the numbers of the parameter, in a graph of so many vertices."""
        return self.output.width * (vertices if self.of_type is None else self.of_type.count)

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
            given = self.parameter, gradient, self.output.width, self.within, self.of_type
            backward.add(LearnedRowsGradientStep(*given))

    def work(self, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> Work:
        """Return the numbers that are copied, and on Spark the bytes that the driver sends."""
        numbers = self.rows(statistics) * self.output.width
        return Work(edge_values=numbers) + of_driver(_bytes_of_driver(numbers, traits, layout))

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Return the bytes of a row, which a shuffle brings from the driver to its vertex; 0 if it is there."""
        return 0.0 if layout.rows_in_spark else row_bytes(self.output)


@dataclass(frozen=True)
class LearnedRowsGradientStep(GraphStep):
    """Hands in the gradient of learned rows: that of v's row is gradient[v], and 0 for vertices beyond the level.

    If only the vertices of one type have a row, the gradient at others is of no use.

    It makes no column. The engine returns the gradient with those of the other parameters.
    """

    parameter: str
    gradient: str
    width: int  # numbers in a row
    within: int | None = None
    of_type: OfType | None = None  # None: all vertices have a row

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
        return f"LearnedRowsGradient({self.gradient}{_scope(self.of_type, self.within)}) -> {self.parameter}"

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
        """Return the numbers that are copied, and on Spark the bytes that the driver takes."""
        numbers = self.rows(statistics) * self.width
        return Work(edge_values=numbers) + of_driver(_bytes_of_driver(numbers, traits, layout))

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Return 0, because nothing crosses edges."""
        return 0.0


def _bytes_of_driver(numbers: int, traits: EngineTraits, layout: Layout) -> int:
    """Return the bytes of numbers that the driver sends or takes; none if they are in its process, or stay in Spark."""
    return 0 if traits.in_process or layout.rows_in_spark else BYTES["float32"] * numbers


def _scope(of_type: OfType | None, within: int | None) -> str:
    """Return in words which vertices have rows, and up to which level."""
    return f"{'' if of_type is None else f', {of_type}'}{'' if within is None else f', within={within}'}"


def learned_parameters(plan: Plan) -> dict[str, LearnedRowsStep]:
    """Return the parameters of a plan that have a row for each vertex, each with a step that reads it."""
    steps = (step for steps in plan.passes for step in steps)
    return {step.parameter: step for step in steps if isinstance(step, LearnedRowsStep)}


def learned_bytes(plan: Plan, statistics: Statistics) -> int:
    """Return the bytes of one copy of the parameters that have a row for each vertex."""
    return 4 * sum(step.numbers(statistics.vertices) for step in learned_parameters(plan).values())


def learned_held(plan: Plan, statistics: Statistics, copies: int = LEARNED_COPIES) -> int:
    """Return the bytes of all copies of learned rows. The plan of a batch does not count those of the whole graph again."""
    return 0 if statistics.sampled else copies * learned_bytes(plan, statistics)
