"""Total, which reduces a column over all vertices and gives every vertex the result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Self

from planner.layout import Layout
from planner.nodes import GraphOperator, Node, operator
from planner.physical import Column, Plan, Stage
from planner.spec import TRACK, TotalKind, ValueType
from planner.statistics import Statistics
from planner.steps.backward import Backward, is_constant
from planner.steps.step import AtSources, ColumnStep, InputStep, Naming
from planner.traits import EngineTraits
from planner.work import Work

ADDING = ("sum", "mean", "sample")
"""The kinds of totals that are sums, times a number."""
MOMENTS = 2
"""The numbers that "moments" yields for each number of a row: the mean and the variance."""
OPERATIONS = {"sum": 1, "mean": 1, "sample": 1, "moments": 3, "max": 1}
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
        scale: a static column with a number for each vertex, by which its row is multiplied first; None: rows as they are.
    """

    x: Node
    kind: TotalKind
    layer: str = ""
    scale: Node | None = None

    def _yields(self) -> ValueType:
        of = self.x.output
        return ValueType("vertex", shape_of_total(self.kind, of.shape), of.dtype)


@operator
class ChunkSum(Node):
    """The sum over the rows of a chunk of x, or of the products x y^T. It belongs to the stage that makes x.

    It has one row for each chunk. Only a total of the kinds in `ADDING` reads it, or one of the kind "max".

    Attributes:
        x: the rows.
        y: the rows that they are multiplied by, or None.
        layer: the name of the layer that it belongs to.
        group: a number below `groups` for each row, by which rows are summed apart; None: all rows together.
        groups: the number of groups, or 0.
        greatest: if True, it has the greatest numbers in place of sums.
    """

    x: Node
    y: Node | None = None
    layer: str = ""
    group: Node | None = None
    groups: int = 0
    greatest: bool = False

    def _yields(self) -> ValueType:
        of = self.x.output
        if self.group is not None:
            return ValueType("vertex", (self.groups, *of.shape), of.dtype)
        return ValueType("vertex", of.shape if self.y is None else (*of.shape, *self.y.output.shape), of.dtype)


@dataclass(frozen=True)
class TotalStep(InputStep):
    """output[v] = the reduction over all vertices of scale * input, which is the same for every v.

    Stages read it as one row. Sums are taken in float64, in the order of the engine's parts of a column, so that
    repeating a step gives the same bits.
    """

    input: str
    output: Column
    kind: TotalKind
    scale: str | None = None
    of_chunks: bool = False  # True if the input has a row for each chunk, all of which add up to the sum of all rows
    within: int | None = None  # always None, because the rows of all vertices take part

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of its input and of the column of scales."""
        return _named(self.input, self.scale)

    @property
    def read_everywhere(self) -> tuple[str, ...]:
        """The names of all that it reads."""
        return self.reads

    @property
    def label(self) -> str:
        """The step's input, kind and output."""
        return f"Total({_times(self.input, self.scale)}, {self.kind}) -> {self.output.name}"

    def up_to(self, level: int) -> Self:
        """Return the same step, because the rows of all vertices take part at every level."""
        return self

    def renamed(self, to: Naming, stage: Naming = str) -> Self:
        """Return the same step under other names."""
        scale = None if self.scale is None else to(self.scale)
        return replace(self, input=to(self.input), scale=scale, output=replace(self.output, name=to(self.output.name)))

    def differentiate(self, backward: Backward) -> None:
        """Add the gradient of the input, which takes in the parts of that gradient that are there already."""
        parts = () if is_constant(self.input) else tuple(backward.gradients.get(self.output.name, ()))
        if not parts or self.kind == "max":
            return
        if self.of_chunks:  # a sum of chunks is its own adjoint: the gradient of each chunk is the sum of all gradients
            for part in parts:
                column = replace(backward.column(self.input, self.output.shape), within=None, few=True)
                backward.add(replace(self, input=part, output=column), of=self.input)
            return
        shape = self.output.shape[:-1] if self.kind == "moments" else self.output.shape
        column = backward.column(self.input, shape)
        plus = tuple(backward.gradients.pop(self.input, ()))
        rows, moments = (self.input, self.output.name) if self.kind == "moments" else (None, None)
        backward.add(TotalGradientStep(parts, column, self.kind, rows, moments, self.scale, plus), of=self.input)

    def work(self, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> Work:
        """Return the operations on each number of the input."""
        if self.of_chunks:
            return Work()
        width = prod(self.output.shape) / (MOMENTS if self.kind == "moments" else 1)
        return Work(edge_values=OPERATIONS[self.kind] * statistics.vertices * width)

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Return 0, because each partition sends one row, however many sources it has."""
        return 0.0


@dataclass(frozen=True)
class TotalGradientStep(ColumnStep):
    """output[v] = the sum of `plus` at v, and the gradient of a total for the row of v.

    Let g be the sum of all rows of `gradients`. They are the gradients that stages have put out, one row for each chunk,
    and those of steps that read the total as a column. Let s be the scale of v, and n the number of vertices. The
    gradient for v is s g for a sum, s g / n for a mean, and s g / (n - 1) for "sample". For moments it is
    s (g of the mean + 2 (s x[v] - mean) g of the variance) / n.

    The mean inside the variance adds nothing to the gradient, because the sum of s x - mean over all vertices is 0.
    """

    gradients: tuple[str, ...]
    output: Column
    kind: TotalKind
    x: str | None = None  # the column that was reduced, for moments
    moments: str | None = None  # the total itself, for moments
    scale: str | None = None
    plus: tuple[str, ...] = ()  # other parts of the gradient of the column that was reduced
    within: int | None = None  # always None, because the gradient of each row depends on those of all

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of all columns that it reads, each once."""
        return _named(*self.gradients, self.x, self.moments, self.scale, *self.plus)

    @property
    def read_everywhere(self) -> tuple[str, ...]:
        """The names of the gradients of the total."""
        return self.gradients

    @property
    def label(self) -> str:
        """The step's inputs, kind and output."""
        of = [] if self.x is None else [_times(self.x, self.scale)]
        plus = [f"plus {', '.join(self.plus)}"] * bool(self.plus)
        return f"TotalGradient({', '.join([*self.gradients, *of, self.kind, *plus])}) -> {self.output.name}"

    def up_to(self, level: int) -> Self:
        """Return the same step, because each row that was reduced has a gradient."""
        return self

    def renamed(self, to: Naming, stage: Naming = str) -> Self:
        """Return the same step under other names."""
        x, moments, scale = (None if name is None else to(name) for name in (self.x, self.moments, self.scale))
        return replace(
            self,
            gradients=tuple(map(to, self.gradients)),
            output=replace(self.output, name=to(self.output.name)),
            x=x,
            moments=moments,
            scale=scale,
            plus=tuple(map(to, self.plus)),
        )

    def differentiate(self, backward: Backward) -> None:
        """Do nothing, because a step of backward has no gradient."""

    def work(self, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> Work:
        """Return the operations on each number of the output."""
        operations = OPERATIONS[self.kind] + len(self.plus)
        return Work(edge_values=operations * statistics.vertices * self.output.width)

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Return 0, because each partition sends one row, however many sources it has."""
        return 0.0


def _named(*names: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name is not None))


def _times(x: str, scale: str | None) -> str:
    return x if scale is None else f"{scale} * {x}"


def tracks(stage: Stage) -> bool:
    """Return True if the stage sums rows for running statistics. Such a stage has to run on the rows of all vertices."""
    return any(call.op == TRACK for one in stage.each for call in one.calls)
