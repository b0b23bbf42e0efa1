"""Total, which reduces a column over all vertices and gives every vertex the result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Self

from planner.layout import Layout
from planner.nodes import GraphOperator, Node, operator
from planner.physical import Column, Plan, Stage, StageInput, StageOutput
from planner.spec import TRACK, Call, Ref, TotalKind, ValueType
from planner.statistics import Statistics
from planner.steps.backward import Backward, is_constant
from planner.steps.step import AtSources, InputStep
from planner.traits import EngineTraits
from planner.work import Work

MOMENTS = 2
"""The numbers that "moments" yields for each number of a row: the mean and the variance."""
OPERATIONS = {"sum": 1, "mean": 1, "sample": 1, "moments": 3}
"""The operations on each number of the input, by the kind of the total."""


def shape_of_total(kind: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a row of a total.

    >>> shape_of_total("mean", (8,)), shape_of_total("moments", (8,))
    ((8,), (8, 2))
    """
    return (*shape, MOMENTS) if kind == "moments" else shape


@operator
class Total(GraphOperator):
    """A reduction of rows over all vertices, whose result every vertex gets.

    Attributes:
        x: the rows.
        kind: one of `planner.spec.TOTALS`.
        layer: the name of the layer that it belongs to.
    """

    x: Node
    kind: TotalKind
    layer: str = ""

    def _yields(self) -> ValueType:
        of = self.x.output
        return ValueType("vertex", shape_of_total(self.kind, of.shape), of.dtype)


@dataclass(frozen=True)
class TotalStep(InputStep):
    """output[v] = the reduction of input over all vertices, which is the same for every v.

    A sum is its own adjoint: the gradient of each row is the sum of the gradients of all rows. A mean is its own adjoint as
    well. Sums are taken in float64, in the order of the engine's parts of a column, so that repeating a step
    gives the same bits.
    """

    input: str
    output: Column
    kind: TotalKind
    within: int | None = None  # always None, because the rows of all vertices take part

    @property
    def read_everywhere(self) -> tuple[str, ...]:
        """The name of its input."""
        return (self.input,)

    @property
    def label(self) -> str:
        """The step's input, kind and output."""
        return f"Total({self.input}, {self.kind}) -> {self.output.name}"

    def up_to(self, level: int) -> Self:
        """Return the same step, because the rows of all vertices take part at every level."""
        return self

    def differentiate(self, backward: Backward) -> None:
        """Add the same total of the gradient, or for moments, a stage that reads the mean of the gradient."""
        gradient = None if is_constant(self.input) else backward.gradient(self.output)
        if gradient is None:
            return
        if self.kind == "moments":
            self._differentiate_moments(gradient, backward)
            return
        column = backward.column(self.input, self.output.shape)
        backward.add(replace(self, input=gradient, output=column), of=self.input)

    def _differentiate_moments(self, gradient: str, backward: Backward) -> None:
        """Add d x = mean(d mean) + 2 (x - mean) mean(d variance).

        The mean inside the variance adds nothing to the gradient, because the sum of x - mean over all vertices is 0.
        """
        mean = backward.column(self.output.name, self.output.shape)
        backward.add(replace(self, input=gradient, output=mean, kind="mean"))
        given = backward.column(self.input, self.output.shape[:-1])
        stage = _moments_gradient(self.input, self.output, mean.name, given)
        backward.add_stage(stage, given)
        backward.contribute(self.input, given.name)

    def work(self, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> Work:
        """Return the operations on each number of the input."""
        width = prod(self.output.shape) / (MOMENTS if self.kind == "moments" else 1)
        return Work(edge_values=OPERATIONS[self.kind] * statistics.vertices * width)

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Return 0, because each partition sends one row, however many sources it has."""
        return 0.0


def _moments_gradient(x: str, moments: Column, mean: str, given: Column) -> Stage:
    """Return the stage that computes the gradient of a column from the gradient of its moments.

    Args:
        x: The name of the column.
        moments: The column of its moments.
        mean: The name of the column that holds the mean over all vertices of the gradient of the moments.
        given: The column for the gradient of x.
    """
    shape = given.shape
    rows = ValueType("vertex", shape)
    last = len(moments.shape)  # the dimension of the moments; dimension 0 counts rows

    def named(part: str) -> str:
        return f"{given.name}.{part}"

    def call(part: str, op: str, *arguments: Ref | int | float) -> Call:
        return Call(named(part), f"aten.{op}", arguments, rows)

    calls = (
        call("mean", "select.int", Ref(moments.name), last, 0),
        call("of_mean", "select.int", Ref(mean), last, 0),
        call("of_variance", "select.int", Ref(mean), last, 1),
        call("centred", "sub.Tensor", Ref(x), Ref(named("mean"))),
        call("scaled", "mul.Tensor", Ref(named("centred")), Ref(named("of_variance"))),
        call("twice", "mul.Tensor", Ref(named("scaled")), 2.0),
        Call(given.name, "aten.add.Tensor", (Ref(named("twice")), Ref(named("of_mean"))), rows),
    )
    inputs = (StageInput(x, x, shape), *(StageInput(name, name, moments.shape) for name in (moments.name, mean)))
    return Stage(f"train.moments.{given.name}", inputs, (), calls, (StageOutput(given.name, given.name, shape),))


def tracks(stage: Stage) -> bool:
    """Return True if the stage sums rows for running statistics. Such a stage has to run on the rows of all vertices."""
    return any(call.op == TRACK for one in stage.each for call in one.calls)
