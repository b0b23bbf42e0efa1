"""Steps on edges, as calls of the Scala operators. An edge column is an RDD whose rows are with the edges' destinations.

Values at the sources of edges are brought to the edges as rows of vertices. Results for sources are sent to them as one
sum for each source. Edges and their columns never move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lotan.engines.blocks.load import Loaded
from lotan.engines.blocks.pipe import Column, numbered
from lotan.errors import EngineError
from lotan.stages.randomness import Randomness, threshold_of
from planner.edge_sets import is_reversed
from planner.expressions import ROWS, Expression, operands
from planner.steps.edge_dropout import EdgeDropoutStep
from planner.steps.edge_expression import EdgeExpressionStep
from planner.steps.edge_step import EdgeStep
from planner.steps.edge_sum import EdgeSumStep
from planner.steps.extreme import ExtremeGradientStep, ExtremeStep
from planner.steps.scaled_propagate import EdgeDotStep, ScaledPropagateStep
from planner.steps.segment_softmax import SegmentSoftmaxGradientStep, SegmentSoftmaxStep
from planner.steps.step import Step


@dataclass(frozen=True)
class EdgeSteps:
    """Runs a pass's steps on edges, lazily."""

    graph: Loaded
    randomness: Randomness
    shuffled: bool  # True to exchange rows by shuffles even if all partitions are in one JVM
    hold: Callable[[Any], None] | None  # persists an RDD until the pass ends; None if partitions share no heap
    # rows at the sources, brought there once; by column, the level within which edges end, and whether edges are turned round
    _sources: dict[tuple[str, int | None, bool], Any] = field(default_factory=dict)

    def run(self, step: EdgeStep, columns: Mapping[str, Column]) -> Any:
        """Return the result of a step: an RDD of rows of vertices or edges.

        Args:
            step: The step to run.
            columns: The columns that it reads, by name.

        Raises:
            EngineError: If the step is none of `planner.physical`'s.
        """
        scala, blocks, width = self.graph.facade, self.graph.blocks, step.output.width
        edges, within, made = scope = _scope(step)
        rows = {name: column.rows for name, column in columns.items()}
        match step:
            case EdgeExpressionStep():
                return self._expression(step, rows)
            case SegmentSoftmaxStep():
                return scala.segmentSoftmax(blocks, *scope, rows[step.input])
            case SegmentSoftmaxGradientStep():
                return scala.segmentSoftmaxGradient(blocks, *scope, rows[step.softmax], rows[step.gradient])
            case EdgeDropoutStep():
                draws = self.randomness.of(step.model)
                state = np.uint64(draws.operator(step.key)).view(np.int64).item()  # the bits as a Java long
                keys = self.graph.edge_keys[step.edges]
                return scala.edgeDropout(blocks, *scope, keys, rows[step.input], state, threshold_of(step.p))
            case EdgeSumStep():
                by_source = step.end == "source"
                return scala.edgeSum(blocks, *scope, rows[step.input], width, by_source, self.shuffled)
            case ScaledPropagateStep(reverse=False):
                sources = self._at_sources(step.input, step, rows)
                return scala.scaledPropagate(blocks, *scope, sources, rows[step.scales], step.heads)
            case ScaledPropagateStep():
                read = (rows[step.input], rows[step.scales])
                return scala.scaledPropagateReverse(blocks, *scope, *read, step.heads, width, self.shuffled)
            case EdgeDotStep():
                sources = self._at_sources(step.source, step, rows)
                return scala.edgeDot(blocks, *scope, sources, rows[step.destination], width)
            case ExtremeStep():
                return scala.extreme(blocks, *scope, self._at_sources(step.input, step, rows), step.kind == "max")
            case ExtremeGradientStep():
                sources = self._at_sources(step.input, step, rows)
                shares = scala.extremeShares(blocks, edges, within, sources, rows[step.extreme], rows[step.gradient])
                if self.hold is not None:
                    self.hold(shares)
                return scala.extremeGradient(blocks, edges, made, shares, width, self.shuffled)
        raise EngineError(f"the blocks engine has no step {type(step).__name__}")

    def _at_sources(self, name: str, step: EdgeStep, rows: Mapping[str, Any]) -> Any:
        """Return a column's rows at the edges' sources. One exchange serves all steps of a layer that read them."""
        key = name, step.within, is_reversed(step.edges)  # a column is made only once
        if key not in self._sources:
            read = step.edges, rows[name], numbered(step.within)
            self._sources[key] = self.graph.facade.sources(self.graph.blocks, *read, self.shuffled)
        return self._sources[key]

    def _expression(self, step: EdgeExpressionStep, rows: Mapping[str, Any]) -> Any:
        places: dict[str, list[str]] = {kind: [] for kind in ROWS}
        function = postfix(step.expression, places)
        sources, destinations, columns = (places[kind] for kind in ROWS)
        return self.graph.facade.edgeExpression(
            self.graph.blocks,
            *_scope(step),
            function,
            step.output.width,
            [self._at_sources(name, step, rows) for name in sources],
            [rows[name] for name in destinations],
            [rows[name] for name in columns],
        )


def _scope(step: EdgeStep) -> tuple[str, int, int]:
    """Return a step's edge set, the level within which its edges end, and the level within which its output has rows."""
    return step.edges, numbered(step.within), numbered(step.output.within)


def postfix(expression: Expression, places: dict[str, list[str]]) -> str:
    """Return an expression as text for `EdgeFunction.parse`. Columns are named by their positions in the lists of `places`.

    >>> places = {"source": [], "destination": [], "edge": []}
    >>> postfix(("leaky_relu", ("add", ("source", "a"), ("mul", ("source", "b"), ("constant", 0.5))), 0.2), places)
    'source:0 source:1 constant:0.5 mul add leaky_relu:0.2'
    >>> places["source"]
    ['a', 'b']
    """
    match expression:
        case (kind, name) if kind in ROWS:
            if name not in places[kind]:
                places[kind].append(name)
            return f"{kind}:{places[kind].index(name)}"
        case ("constant", value):
            return f"constant:{_number(value)}"
    inner = operands(expression)
    settings = [f":{_number(value)}" for value in expression[1 + len(inner) :]]
    return " ".join([*(postfix(operand, places) for operand in inner), "".join([expression[0], *settings])])


def _number(value: float) -> str:
    """Return a float32 as Java reads it."""
    text = str(np.float32(value))
    return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text)


def passing(steps: Sequence[Step]) -> frozenset[str]:
    """Return the edge columns that one step alone reads in place. The step computes them as it goes, and nobody stores them."""
    read = Counter(name for step in steps for name in step.reads)
    sent = {name for step in steps if _is_adjoint_by_source(step) for name in step.reads}
    made = [step.output for step in steps if isinstance(step, EdgeStep)]
    return frozenset(
        column.name
        for column in made
        if column.edges is not None and read[column.name] == 1 and column.name not in sent
    )


def _is_adjoint_by_source(step: Step) -> bool:
    """Return True if several tasks read the step's edge column: on a shared heap, those of all partitions."""
    by_source = isinstance(step, EdgeSumStep) and step.end == "source"
    return by_source or (isinstance(step, ScaledPropagateStep) and step.reverse)
