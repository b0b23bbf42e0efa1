"""Steps on edges, as calls of the Scala operators: an edge column is an RDD whose rows lie with the edges' destinations.

What a step reads at the sources of edges comes to them as rows of vertices; what it makes for sources goes to them as one
sum for each. Edges and their columns never move.
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
    shuffled: bool  # exchange rows by shuffles also where all partitions are in one JVM
    hold: Callable[[Any], None] | None  # persists an RDD until the pass ends; None where partitions share no heap
    _sources: dict[tuple[str, int | None], Any] = field(
        default_factory=dict
    )  # by column, and level up to which edges end: its rows at their sources, brought there once

    def run(self, step: EdgeStep, columns: Mapping[str, Column]) -> Any:
        """What a step makes: an RDD of rows, of vertices or of edges.

        Args:
            step: the step.
            columns: what it reads, by name.

        Raises:
            EngineError: a step that is none of `planner.physical`'s.
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
                read = (self._at_sources(step.input, step, rows), rows[step.extreme], rows[step.gradient])
                shares = scala.extremeShares(blocks, edges, within, *read)
                if self.hold is not None:
                    self.hold(shares)
                return scala.extremeGradient(blocks, made, shares, width, self.shuffled)
        raise EngineError(f"the blocks engine has no step {type(step).__name__}")

    def _at_sources(self, name: str, step: EdgeStep, rows: Mapping[str, Any]) -> Any:
        """Rows of a column where the edges are: of one exchange, however many steps of a layer read them."""
        key = name, step.within  # columns are made once
        if key not in self._sources:
            within = numbered(step.within)
            self._sources[key] = self.graph.facade.sources(self.graph.blocks, rows[name], within, self.shuffled)
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
    """Its edges, the level up to which they end, and the one up to which its output has rows."""
    return step.edges, numbered(step.within), numbered(step.output.within)


def postfix(expression: Expression, places: dict[str, list[str]]) -> str:
    """An expression as the text that `EdgeFunction.parse` reads, columns being named by their places in these lists.

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
    """A float32 as Java reads it."""
    text = str(np.float32(value))
    return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text)


def passing(steps: Sequence[Step]) -> frozenset[str]:
    """The edge columns that one step alone reads, where they lie: it computes them as it goes, and nobody holds them."""
    read = Counter(name for step in steps for name in step.reads)
    sent = {name for step in steps if _is_adjoint_by_source(step) for name in step.reads}
    made = [step.output for step in steps if isinstance(step, EdgeStep)]
    return frozenset(
        column.name
        for column in made
        if column.edges is not None and read[column.name] == 1 and column.name not in sent
    )


def _is_adjoint_by_source(step: Step) -> bool:
    """Whether several tasks read the step's edge column: each partition's, and where they share a heap, all others'."""
    by_source = isinstance(step, EdgeSumStep) and step.end == "source"
    return by_source or (isinstance(step, ScaledPropagateStep) and step.reverse)
