"""The sum of an edge column over the edges of each vertex."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from planner.estimate import row_bytes
from planner.nodes import Node, operator
from planner.physical import Column, Plan
from planner.spec import ValueType
from planner.steps.backward import Backward
from planner.steps.edge_step import OUT_OF_ORDER, EdgeOperator, EdgeStep
from planner.work import Work


@operator
class EdgeSum(EdgeOperator):
    """The sum of an edge column over the in-edges of each vertex."""

    x: Node
    type: ValueType
    layer: str = ""

    def step(self, output: Column, names: Mapping[Node, str]) -> EdgeStep:
        """Return the step that sums by destination."""
        edges = self.x.output.edges
        assert edges is not None  # x is an edge column
        return EdgeSumStep(output, edges, names[self.x])


@dataclass(frozen=True)
class EdgeSumStep(EdgeStep):
    """output[v] = sum of input[e] over the in-edges of v; with end="source", over its out-edges."""

    input: str
    end: Literal["source", "destination"] = "destination"

    OF_EDGES = ("input",)

    @property
    def in_runs(self) -> bool:
        """True if it may run on the in-edges of some vertices after those of others."""
        return self.end == "destination"

    @property
    def read_whole(self) -> tuple[str, ...]:
        """The name of its input if it sums by source, because a vertex has out-edges in all partitions."""
        return (self.input,) if self.end == "source" else ()

    @property
    def words(self) -> list[str]:
        """The name of the input, and the end of the edges at which the step sums."""
        return [self.input, f"by {self.end}"]

    def adjoint(self, gradient: str, backward: Backward) -> None:
        """Add a step that puts the gradient of each edge's vertex on the edge."""
        from planner.steps.edge_expression import EdgeExpressionStep  # its own adjoint sums over edges

        given = backward.column(self.input, self.output.shape, self.edges)
        row = ("destination", gradient)
        backward.add(EdgeExpressionStep(given, self.edges, row, within=self.within), of=self.input)

    def turned(self) -> EdgeStep:
        """Return the sum at the other end of the edges."""
        return self.exchanged(end="source" if self.end == "destination" else "destination")

    def work_on(self, edges: int, plan: Plan) -> Work:
        """Return one sum for each edge and number."""
        reads = OUT_OF_ORDER if self.end == "source" else 1
        return Work(edges=edges, edge_values=edges * self.output.width * reads)

    def bytes_returned(self, others: float) -> float:
        """Return the bytes of a partition's sum, if it sums by source."""
        return row_bytes(self.output) * others if self.end == "source" else 0.0
