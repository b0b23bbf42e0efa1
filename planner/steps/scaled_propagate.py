"""The sum of rows along edges, each scaled by an edge column; and the products of both ends' rows, its counterpart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from planner.estimate import row_bytes
from planner.nodes import Node, operator
from planner.physical import Column, Plan
from planner.spec import EdgeSet, ValueType
from planner.steps.backward import Backward
from planner.steps.edge_step import BOTH_ENDS, OUT_OF_ORDER, EdgeOperator, EdgeStep
from planner.work import Work


@operator
class ScaledPropagate(EdgeOperator):
    """The sum over in-edges of the source's row. Each head of the row is multiplied by its number in an edge column."""

    x: Node
    scales: Node
    edges: EdgeSet
    type: ValueType
    layer: str = ""

    def step(self, output: Column, names: Mapping[Node, str]) -> EdgeStep:
        """Return the step that sums the scaled rows."""
        return ScaledPropagateStep(output, self.edges, names[self.x], names[self.scales], self.scales.output.width)

    @property
    def shown(self) -> list[str]:
        """The kind of its aggregate, and its edges."""
        return ["sum", f"edges={self.edges}"]


@dataclass(frozen=True)
class ScaledPropagateStep(EdgeStep):
    """output[v] = sum over in-edges e = (u, v) of scales[e] * input[u]; with reverse, over out-edges (v, u) instead.

    A row of `input` has `heads` runs of equally many numbers. Each run is scaled by its own number of scales[e],
    [heads].
    """

    input: str
    scales: str
    heads: int
    reverse: bool = False

    READS = ("input", "scales")
    OF_EDGES = ("scales",)

    @property
    def in_runs(self) -> bool:
        """True if it may run on the in-edges of some vertices after those of others."""
        return not self.reverse

    @property
    def at_sources(self) -> tuple[str, ...]:
        """The name of its input, or in reverse nothing."""
        return () if self.reverse else (self.input,)

    @property
    def read_whole(self) -> tuple[str, ...]:
        """The name of its input. In reverse also that of its scales, because a vertex has out-edges in all partitions."""
        return self.columns if self.reverse else (self.input,)

    @property
    def words(self) -> list[str]:
        """The names of the columns, and "reverse" if the step runs over the reverse graph."""
        return [*self.columns, *["reverse"] * self.reverse]

    def side_by_side(self, output: Column, model: int) -> Self:
        """Return the step with the heads of all models."""
        return replace(self, output=output, heads=self.heads * output.width // self.output.width)

    def turned(self) -> EdgeStep:
        """Return the sum in the other direction."""
        return self.exchanged(reverse=not self.reverse)

    def adjoint(self, gradient: str, backward: Backward) -> None:
        """Add the reverse propagate with the same scales. The scales get a dot product of both ends' rows, by head."""
        given = backward.column(self.input, self.output.shape, self.output.edges)
        backward.add(replace(self, output=given, input=gradient, reverse=True), of=self.input)
        scales = backward.column(self.scales, (self.heads,), self.edges)
        backward.add(EdgeDotStep(scales, self.edges, self.input, gradient, within=self.within), of=self.scales)

    def work_on(self, edges: int, plan: Plan) -> Work:
        """Return a multiplication and a sum for each edge and number, and the scales that are read."""
        scales = edges * self.heads * (OUT_OF_ORDER if self.reverse else 1)
        return Work(edges=edges, scaled_numbers=edges * self.output.width, edge_values=scales)

    def bytes_returned(self, others: float) -> float:
        """Return the bytes of a partition's sum, in reverse."""
        return row_bytes(self.output) * others if self.reverse else 0.0


@operator
class EdgeDot(EdgeOperator):
    """For each edge and head, the dot product of the rows at both ends. [E, heads]"""

    source: Node
    destination: Node
    type: ValueType
    layer: str = ""

    def step(self, output: Column, names: Mapping[Node, str]) -> EdgeStep:
        """Return the step that multiplies the rows."""
        assert output.edges is not None  # it yields an edge column
        rows = names[self.source], names[self.destination]
        return EdgeDotStep(output, output.edges, *rows, shape=self.source.output.shape)


@dataclass(frozen=True)
class EdgeDotStep(EdgeStep):
    """output[e, h] = dot product of run h of source[u] and run h of destination[v], for e = (u, v).

    Both rows have as many runs as `output` has numbers for an edge.
    """

    source: str
    destination: str
    shape: tuple[int, ...] = field(default=(), kw_only=True)  # of both rows; in backward, nobody asks for it

    READS = ("source", "destination")
    AT_SOURCES = ("source",)
    IN_RUNS = True

    @property
    def read_whole(self) -> tuple[str, ...]:
        """The names of both columns."""
        return self.columns

    def adjoint(self, gradient: str, backward: Backward) -> None:
        """Add to the gradient of either row the sum of the rows at the other ends, scaled by the gradient."""
        for own, other, reverse in ((self.source, self.destination, True), (self.destination, self.source, False)):
            given = backward.column(own, self.shape)
            scaled = ScaledPropagateStep(
                given, self.edges, other, gradient, self.output.width, reverse, within=self.within
            )
            backward.add(scaled, of=own)

    def side_by_side(self, output: Column, model: int) -> Self:
        """Return the step with the heads of all models."""
        return replace(self, output=output, shape=())

    def turned(self) -> EdgeStep:
        """Return the products of the same rows at exchanged ends."""
        return self.exchanged(source=self.destination, destination=self.source)

    def work_on(self, edges: int, plan: Plan) -> Work:
        """Return the numbers of both rows, for each edge."""
        return Work(edges=edges, scaled_numbers=BOTH_ENDS * edges * plan.columns[self.source].width)
