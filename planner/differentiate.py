"""Derives the steps of a training epoch from forward steps.

Backward has the adjoint of each forward step, in reverse order:

    pipe forward(stage)      ->  pipe backward(stage): the stage's vector-Jacobian product
    propagate over the graph ->  propagate over the reverse graph, under the same vertex placement
    collect                  ->  gather: one summed vector per source vertex
    steps on edges           ->  the adjoint of each kind: see planner.steps

If a column has several readers, its gradient is the sum of several columns. The stage that made the column adds them.
For a column that a graph operator made, a stage of its own adds them, so that the operator's adjoint runs once on the
sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from planner.expressions import Expression
from planner.lower import Forward
from planner.physical import Column, Stage, StageInput, StageOutput, gradient_name
from planner.spec import Call, Ref, ValueType
from planner.steps.backward import Backward
from planner.steps.edge_expression import EdgeExpressionStep
from planner.steps.pipe import PipeStep
from planner.steps.step import Step

Value = TypeVar("Value", StageInput, StageOutput)


@dataclass(frozen=True)
class Epoch:
    """The steps of a training epoch, and the stages that they run."""

    stages: tuple[Stage, ...]
    steps: tuple[Step, ...]


@dataclass
class _Backward(Backward):
    """The backward pass while it is built, which adds several contributions to one gradient by a stage or a step."""

    sums: int = 0  # number of stages that do nothing but add columns

    def gradient(self, column: Column) -> str | None:
        """Return the name of the column that holds the gradient of a graph operator's output, or None if there is none.

        A step on edges adds the contributions to an edge column, and a stage those to a vertex column.
        """
        parts = self.gradients.get(column.name, [])
        if len(parts) < 2:
            return parts[0] if parts else None
        return self._summed(parts, column) if column.edges is None else self._summed_on_edges(parts, column)

    def _summed(self, parts: Sequence[str], column: Column) -> str:
        self.sums += 1
        total = Column(self.fresh(column.name), column.shape, within=column.within)
        self.add_stage(_adding(f"train.sum.{self.sums}", parts, total.name, column.shape), total)
        return total.name

    def _summed_on_edges(self, parts: Sequence[str], column: Column) -> str:
        assert column.edges is not None  # it is an edge column
        total: Expression = ("edge", parts[0])
        for part in parts[1:]:
            total = ("add", total, ("edge", part))
        given = self.column(column.name, column.shape, column.edges)
        self.add(EdgeExpressionStep(given, column.edges, total, within=column.within))
        return given.name


def _adding(name: str, parts: Sequence[str], total: str, shape: tuple[int, ...]) -> Stage:
    """Return a stage that adds columns, one after the other."""
    inputs = tuple(StageInput(part, part, shape) for part in parts)
    sums = [parts[0], *(f"{total}.{number}" for number in range(2, len(parts))), total]
    rows = ValueType("vertex", shape)
    calls = [
        Call(after, "aten.add.Tensor", (Ref(before), Ref(part)), rows)
        for before, part, after in zip(sums, parts[1:], sums[1:], strict=False)
    ]
    return Stage(name, inputs, (), tuple(calls), (StageOutput(total, total, shape),))


def differentiate(forward: Forward, rgb: bool = True) -> Epoch:
    """Return the steps of an epoch: forward, the turn, and backward, with a gradient for each value that has one.

    Args:
        forward: The stages and steps of the forward pass.
        rgb: True for Reverse Graph Backpropagation (section 5.1 of the Lotan report), which sums gradients per vertex
            before they cross a partition boundary. False is the naive way, for comparison.
    """
    levels = {column.name: column.within for step in forward.steps for column in step.columns_made}
    backward = _Backward({stage.name: stage for stage in forward.stages}, rgb, levels)
    for step in reversed(forward.steps):
        step.differentiate(backward)
    return Epoch((*forward.stages, *backward.made), (*forward.steps[:-1], *backward.steps))


def marked(epoch: Epoch) -> Epoch:
    """Return the epoch without the stages that no step runs. In the other stages, `mark_gradients` sets the marks."""
    run = {step.stage for step in epoch.steps if isinstance(step, PipeStep)}
    stages = mark_gradients([stage for stage in epoch.stages if stage.name in run], epoch.steps)
    return Epoch(stages, epoch.steps)


def mark_gradients(stages: Sequence[Stage], steps: Sequence[Step]) -> tuple[Stage, ...]:
    """Return the stages with `needs_gradient` set on the inputs and outputs whose gradients the steps make."""
    own: dict[str, list[PipeStep]] = {stage.name: [] for stage in stages}
    for step in steps:
        if isinstance(step, PipeStep) and step.mode != "forward":
            own[step.stage].append(step)
    return tuple(_marked(stage, own[stage.name]) for stage in stages)


def _marked(stage: Stage, own: Sequence[PipeStep]) -> Stage:
    """Return a stage with its marks set. `own` are the steps of this stage that make gradients."""
    made = {column.name for step in own for column in step.outputs}
    received = {gradient.value for step in own for gradient in step.gradients}
    inputs = tuple(_needing(value, gradient_name(value.value, stage.name) in made) for value in stage.inputs)
    outputs = tuple(_needing(output, output.value in received) for output in stage.outputs)
    return replace(stage, inputs=inputs, outputs=outputs)


def _needing(value: Value, needed: bool) -> Value:
    """Return an input or output of a stage with the given mark, or the same object if it has it already."""
    return value if value.needs_gradient is needed else replace(value, needs_gradient=needed)
