"""The maximum or minimum of rows over in-edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.estimate import row_bytes
from planner.nodes import Node, operator
from planner.physical import Column, Plan
from planner.spec import EdgeSet, ValueType
from planner.steps.backward import Backward
from planner.steps.edge_step import EdgeOperator, EdgeStep
from planner.work import Work

EXTREME_GRADIENT = 3  # comparisons for the gradient of a max or min, for each comparison of the max or min itself


@operator
class Extreme(EdgeOperator):
    """The maximum ("max") or minimum ("min") of the sources' rows over in-edges, number by number; 0 without in-edges."""

    x: Node
    kind: str
    edges: EdgeSet
    layer: str = ""

    def _yields(self) -> ValueType:
        return self.x.output

    def step(self, output: Column, names: Mapping[Node, str]) -> EdgeStep:
        """Return the step that takes the extreme of a column."""
        return ExtremeStep(output, self.edges, names[self.x], self.kind)

    @property
    def shown(self) -> list[str]:
        """The kind of the extreme, and its edges."""
        return [self.kind, f"edges={self.edges}"]


@dataclass(frozen=True)
class _ComparingStep(EdgeStep):
    """The common part of the steps that compare the input's rows at sources with an extreme over in-edges."""

    input: str
    kind: str  # "max" or "min"

    NEEDS = "extremes"
    AT_SOURCES = ("input",)

    @property
    def read_whole(self) -> tuple[str, ...]:
        """The names of all columns that it reads."""
        return self.columns

    @property
    def words(self) -> list[str]:
        """The kind of the extreme, and the columns that the step reads."""
        return [self.kind, *self.columns]


@dataclass(frozen=True)
class ExtremeStep(_ComparingStep):
    """output[v] = maximum ("max") or minimum ("min") of input[u] over in-edges (u, v), number by number; 0 without any."""

    IN_RUNS = True

    def adjoint(self, gradient: str, backward: Backward) -> None:
        """Add a step that divides the gradient among the sources that have the extreme."""
        given = backward.column(self.input, self.output.shape)
        parts = (self.input, self.kind, self.output.name, gradient)
        backward.add(ExtremeGradientStep(given, self.edges, *parts, within=self.within), of=self.input)

    def work_on(self, edges: int, plan: Plan) -> Work:
        """Return one comparison for each edge and number."""
        return Work(edges=edges, extreme_numbers=edges * self.output.width)


@dataclass(frozen=True)
class ExtremeGradientStep(_ComparingStep):
    """output[u] = sum over out-edges (u, v) with input[u] = extreme[v] of gradient[v] / (in-edges of v with that value)."""

    extreme: str
    gradient: str

    READS = ("input", "extreme", "gradient")

    def work_on(self, edges: int, plan: Plan) -> Work:
        """Return the comparisons for each edge and number."""
        return Work(edges=edges, extreme_numbers=EXTREME_GRADIENT * edges * self.output.width)

    def bytes_returned(self, others: float) -> float:
        """Return the bytes of the partitions' sums. A partition sends itself the sums of its own vertices too."""
        return row_bytes(self.output) * (others + 1)
