"""Columns of edges in memory: the steps of `planner.physical.EdgeStep` as torch operators.

An edge column is a tensor [edges, heads] in the order of `Edges`: by destination, then by source. Wider intermediate
results are made for a run of edges at a time. Threads share the runs. Sums go in the order of the edges, so that
results have the same bits whichever thread computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lotan.engines.local.columns import Columns
from lotan.engines.local.crew import Crew
from lotan.engines.local.topology import Edges, first_rows
from lotan.errors import EngineError
from lotan.stages.chunk import padded, sparse_rows
from lotan.stages.edges import reduce_edges
from lotan.stages.randomness import Randomness, dropout
from planner.expressions import Expression
from planner.spec import SOFTMAX_EPSILON
from planner.steps.edge_dropout import EdgeDropoutStep
from planner.steps.edge_expression import EdgeExpressionStep
from planner.steps.edge_step import EdgeStep
from planner.steps.edge_sum import EdgeSumStep
from planner.steps.extreme import ExtremeGradientStep, ExtremeStep
from planner.steps.scaled_propagate import EdgeDotStep, ScaledPropagateStep
from planner.steps.segment_softmax import SegmentSoftmaxGradientStep, SegmentSoftmaxStep

RUN_BYTES = 1 << 20
"""Bytes of the rows of a run of edges, which stay in a core's cache through all operations on the run."""

MOST_AT_ONCE = 1 << 18
"""Limit of edges times heads, and of vertices times heads, for one sparse product over all heads instead of one per head.
It is 2.5 times as fast at 13,708 edges and 4 heads of 8 channels, and as fast at 220,000 edges; and its matrix is kept."""

OPERATIONS: Mapping[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "neg": torch.neg,
    "exp": torch.exp,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "leaky_relu": torch.nn.functional.leaky_relu,
    "leaky_relu_slope": lambda x, slope: torch.where(x > 0, 1.0, slope),
}


@dataclass(frozen=True)
class EdgeColumns:
    """Runs steps on one edge set, or on those of its edges that end in the first vertices.

    Columns may have more rows or edges than are read: only the first ones count.
    """

    edges: Edges
    keys: Tensor  # int64 [vertices], the row keys
    randomness: Randomness
    crew: Crew
    columns: Columns  # provides memory

    def run(self, step: EdgeStep, columns: Mapping[str, Tensor], rows: int | None = None) -> Tensor:
        """Return the result of a step: [rows, *shape], or [rows, heads] for an edge column.

        Args:
            step: The step to run.
            columns: The columns that it reads, by name.
            rows: The number of vertices or edges of the output; rows that the step does not make are zero. None: all
                that are here.

        Raises:
            EngineError: If the step is none of `planner.physical`'s.
        """
        flat = {name: column.flatten(1) if column.dim() > 1 else column[:, None] for name, column in columns.items()}
        if rows is None:
            rows = self.edges.vertices if step.output.edges is None else self.edges.block.edges
        made = self._run(step, flat, rows)
        found = padded(made, rows)
        if found is not made:
            self.columns.release(made)
        shape = found.shape[1:] if step.output.edges is not None else step.output.shape
        # a view would not be recognised by `columns`
        return found if found.shape[1:] == shape else found.view(-1, *shape)

    def _run(self, step: EdgeStep, columns: Mapping[str, Tensor], rows: int) -> Tensor:
        match step:
            case EdgeExpressionStep():
                return self._expression(step, columns)
            case SegmentSoftmaxStep():
                return self._softmax(self._first(columns[step.input]))
            case SegmentSoftmaxGradientStep():
                return self._softmax_gradient(self._first(columns[step.softmax]), self._first(columns[step.gradient]))
            case EdgeDropoutStep():
                return self._dropout(self._first(columns[step.input]), step)
            case EdgeSumStep():
                block = self.edges.block
                by_end = block.by_source(rows) if step.end == "source" else block.by_destination
                return reduce_edges(by_end, self._first(columns[step.input]))
            case ScaledPropagateStep():
                matrix = first_rows(self.edges.matrix(weighted=False, reverse=step.reverse), rows)
                scales, shape = self._first(columns[step.scales]), step.output.shape
                return self._scaled(matrix, columns[step.input], scales, step.reverse, shape)
            case EdgeDotStep():
                return self._dots(columns[step.source], columns[step.destination], step.output.width)
            case ExtremeStep():
                matrix, x = self.edges.matrix(weighted=False, reverse=False), columns[step.input]
                among = sparse_rows(matrix.crow_indices(), matrix.col_indices(), len(x), matrix.values())
                return reduce_edges(among, x, f"a{step.kind}")
            case ExtremeGradientStep():
                extreme, gradient = (columns[name][: self.edges.ends] for name in (step.extreme, step.gradient))
                return self._shares(columns[step.input], extreme, gradient, step.output.shape)
        raise EngineError(f"the local engine has no step {type(step).__name__}")

    def _first(self, column: Tensor) -> Tensor:
        """Return the first rows of an edge column: those of the edges that are here."""
        return column[: self.edges.block.edges]

    def _expression(self, step: EdgeExpressionStep, columns: Mapping[str, Tensor]) -> Tensor:
        out = self._new(step.output.width)

        def evaluate(run: slice) -> None:
            out[run] = self._evaluated(step.expression, columns, run)

        self._in_runs(step.output.width, evaluate)
        return out

    def _dropout(self, x: Tensor, step: EdgeDropoutStep) -> Tensor:
        keys, randomness = self.edges.keyed_block(self.keys.numpy()).keys, self.randomness.of(step.model)
        assert keys is not None  # a keyed block has keys
        out = self._new(x.shape[1])

        def drop(run: slice) -> None:
            out[run] = dropout(x[run], step.p, randomness, step.key, keys[run])

        self._in_runs(x.shape[1], drop)
        return out

    def _evaluated(self, expression: Expression, columns: Mapping[str, Tensor], run: slice) -> Tensor:
        """Evaluate an expression on a run of edges. [run, heads], or a shape that broadcasts to it."""
        block = self.edges.block
        match expression:
            case ("source", name):
                return columns[name].index_select(0, block.positions[run])
            case ("destination", name):
                return columns[name].index_select(0, self._destinations(run))
            case ("edge", name):
                return columns[name][run]
            case ("weight",):
                return torch.ones(1) if block.weight is None else block.weight[run].unsqueeze(1)
            case ("constant", value):
                return torch.tensor([value])
        values = [self._evaluated(part, columns, run) if isinstance(part, tuple) else part for part in expression[1:]]
        return OPERATIONS[expression[0]](*values)

    def _softmax(self, scores: Tensor) -> Tensor:
        block = self.edges.block
        greatest = reduce_edges(block.by_destination, scores, "amax")  # [vertices, heads]
        out = self._new(scores.shape[1])

        def exponentiate(run: slice) -> None:
            torch.sub(scores[run], greatest.index_select(0, block.destinations[run]), out=out[run]).exp_()

        def divide(run: slice) -> None:
            out[run] /= total.index_select(0, block.destinations[run])

        self._in_runs(scores.shape[1], exponentiate)
        total = reduce_edges(block.by_destination, out).add_(SOFTMAX_EPSILON)
        self._in_runs(scores.shape[1], divide)
        return out

    def _softmax_gradient(self, softmax: Tensor, gradient: Tensor) -> Tensor:
        block = self.edges.block
        out = torch.mul(softmax, gradient, out=self._new(softmax.shape[1]))
        mean = reduce_edges(block.by_destination, out)  # [vertices, heads]

        def centre(run: slice) -> None:
            out[run] -= softmax[run] * mean.index_select(0, block.destinations[run])

        self._in_runs(softmax.shape[1], centre)
        return out

    def _scaled(self, matrix: Tensor, x: Tensor, scales: Tensor, reverse: bool, shape: tuple[int, ...]) -> Tensor:
        """Return sparse products with the scales as values, one for each head or one for all. [rows of the matrix, *shape]."""
        heads = scales.shape[1]
        if heads > 1 and max(len(scales), self.edges.vertices) * heads <= MOST_AT_ONCE:
            return self._scaled_at_once(matrix, x, scales, reverse, shape)
        scales = scales[self.edges.reverse_order] if reverse else scales
        rows = x.view(x.shape[0], heads, -1)  # [vertices, heads, channels]
        found = self.columns.new(matrix.shape[0], shape)
        out = found.view(len(found), *rows.shape[1:])
        for head in range(heads):
            values = scales[:, head].contiguous()
            scaled = sparse_rows(matrix.crow_indices(), matrix.col_indices(), len(x), values)
            out[:, head] = scaled @ rows[:, head].contiguous()
        return found

    def _scaled_at_once(
        self, matrix: Tensor, x: Tensor, scales: Tensor, reverse: bool, shape: tuple[int, ...]
    ) -> Tensor:
        """Return one sparse product for all heads, whose rows are heads of vertices. [rows of the matrix, *shape]."""
        heads = scales.shape[1]
        indptr, columns, order = self.edges.by_head(heads, reverse)
        indptr = indptr[: matrix.shape[0] * heads + 1]
        there = int(indptr[-1])
        values = scales.reshape(-1).index_select(0, order[:there])
        scaled = sparse_rows(indptr, columns[:there], len(x) * heads, values)
        found = self.columns.new(matrix.shape[0], shape)
        return found.copy_((scaled @ x.view(len(x) * heads, -1)).view_as(found))

    def _destinations(self, run: slice) -> Tensor:
        """Return the vertices that a run of edges ends in. [run]."""
        found = self.edges.block.destinations[run]
        return found + self.edges.before if self.edges.before else found

    def _dots(self, source: Tensor, destination: Tensor, heads: int) -> Tensor:
        block = self.edges.block
        out = self._new(heads)

        def multiply(run: slice) -> None:
            product = source.index_select(0, block.positions[run])
            product *= destination.index_select(0, self._destinations(run))
            torch.sum(product.view(len(product), heads, -1), dim=-1, out=out[run])

        self._in_runs(source.shape[1], multiply)
        return out

    def _shares(self, x: Tensor, extreme: Tensor, gradient: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Give each gradient in equal shares to the sources that attain the extreme. [rows of x, *shape]."""
        share, found = self.columns.new(len(extreme), x.shape[1:]), self.columns.new(len(x), shape)

        def winners(extreme: Tensor, sources: Tensor, out: Tensor) -> None:
            torch.index_select(x, 0, sources, out=out).eq_(extreme)

        def shares(x: Tensor, destinations: Tensor, out: Tensor) -> None:
            torch.index_select(extreme, 0, destinations, out=out).eq_(x)
            out.mul_(share.index_select(0, destinations))

        self.edges.entry_sums(reverse=False, rows=len(extreme)).sum(winners, extreme, share, self.crew)
        torch.div(gradient, share.clamp_(min=1), out=share)
        self.edges.entry_sums(reverse=True, rows=len(x)).sum(shares, x, found.view_as(x), self.crew)
        self.columns.release(share)
        return found

    def _new(self, heads: int) -> Tensor:
        """Return an edge column with arbitrary numbers in it. [edges, heads]."""
        return self.columns.new(self.edges.block.edges, (heads,))

    def _in_runs(self, width: int, work: Callable[[slice], None]) -> None:
        """Run `work` on all edges, in runs whose rows of the given width stay in the cache."""
        runs = _runs(0, self.edges.block.edges, width)
        self.crew.run(len(runs), lambda number: work(runs[number]))


def _run_length(width: int) -> int:
    return max(1, RUN_BYTES // (4 * max(1, width)))


def _runs(begin: int, end: int, width: int) -> list[slice]:
    length = _run_length(width)
    return [slice(start, min(start + length, end)) for start in range(begin, end, length)]
