"""Forward steps -> the steps of a training epoch: backward is the adjoint of each forward step, in reverse order.

    pipe forward(stage)      ->  pipe backward(stage): the stage's vector-Jacobian product
    propagate over the graph ->  propagate over the reverse graph, under the same vertex placement
    collect                  ->  gather: one summed vector per source vertex
    steps on edges           ->  see planner.edge_adjoints

A gradient that several readers contribute to is the sum of columns. The stage that made the value adds them; where a graph
operator made it, a stage of its own does, so that one sum goes back through the operator and not each contribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from planner.edge_adjoints import EdgeAdjoint
from planner.lower import Forward
from planner.physical import (
    CollectStep,
    Column,
    EdgeStep,
    GatherStep,
    Gradients,
    Mode,
    PipeStep,
    PropagateStep,
    Stage,
    StageInput,
    StageOutput,
    Step,
    collection_name,
    columns_made,
    gradient_name,
)
from planner.records import changed
from planner.spec import STATIC_COLUMNS, Call, Ref, ValueType

CONSTANTS = frozenset(STATIC_COLUMNS) - {"features"}
"""Static columns that no gradient is defined for."""

Value = TypeVar("Value", StageInput, StageOutput)


@dataclass(frozen=True)
class Epoch:
    """The steps of a training epoch, and the stages that they run."""

    stages: tuple[Stage, ...]
    steps: tuple[Step, ...]


@dataclass
class _Backward:
    stages: dict[str, Stage]
    rgb: bool
    levels: dict[str, int | None]  # of the columns that forward makes
    sums: list[Stage] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    gradients: dict[str, list[str]] = field(default_factory=dict)  # column -> columns whose sum is its gradient
    contributions: dict[tuple[str, str], Column] = field(default_factory=dict)  # (collection, column) -> contributions
    passed: int = 0  # columns made by adjoints of graph operators so far, to number them

    def fresh(self, column: str) -> str:
        """A name for a gradient that has to do with a column."""
        self.passed += 1
        return f"d_{column}.{self.passed}"

    def gradient(self, column: Column) -> str | None:
        """The gradient of what a graph operator made; several contributions are added first."""
        parts = self.gradients.get(column.name, [])
        if len(parts) < 2:
            return parts[0] if parts else None
        stage = _adding(f"train.sum.{len(self.sums) + 1}", parts, self.fresh(column.name), column.shape)
        self.sums.append(stage)
        made = tuple(Column(output.column, output.shape, within=column.within) for output in stage.outputs)
        self.steps.append(PipeStep(stage.name, "forward", tuple(parts), (), (), made, within=column.within))
        return made[0].name

    def gradient_of(self, column: str, shape: tuple[int, ...], name: str | None = None) -> Column:
        """(A part of) the gradient of a vertex column: it has the rows that the column has."""
        return Column(name or self.fresh(column), shape, within=self.levels.get(column))


def _adding(name: str, parts: Sequence[str], total: str, shape: tuple[int, ...]) -> Stage:
    """A stage that adds columns, one after the other."""
    inputs = tuple(StageInput(part, part, shape) for part in parts)
    sums = [parts[0], *(f"{total}.{number}" for number in range(2, len(parts))), total]
    rows = ValueType("vertex", shape)
    calls = [
        Call(after, "aten.add.Tensor", (Ref(before), Ref(part)), rows)
        for before, part, after in zip(sums, parts[1:], sums[1:], strict=False)
    ]
    return Stage(name, inputs, (), tuple(calls), (StageOutput(total, total, shape),))


def differentiate(forward: Forward, rgb: bool = True) -> Epoch:
    """The steps of an epoch: forward, the turn, and backward with a gradient for everything that has one.

    Args:
        forward: the stages and forward steps.
        rgb: Reverse Graph Backpropagation (section 5.1 of the Lotan report): gradients are summed per vertex before
            they cross a partition boundary. False is the naive way, for comparison.
    """
    levels = {column.name: column.within for step in forward.steps for column in columns_made(step)}
    backward = _Backward({stage.name: stage for stage in forward.stages}, rgb, levels)
    for step in reversed(forward.steps):
        match step:
            case PipeStep():
                _pipe(step, backward)
            case PropagateStep():
                _propagate(step, backward)
            case CollectStep():
                _collect(step, backward)
            case EdgeStep():
                _on_edges(step, backward)
    return Epoch((*forward.stages, *backward.sums), (*forward.steps[:-1], *backward.steps))


def _pipe(step: PipeStep, backward: _Backward) -> None:
    stage = backward.stages[step.stage]
    gradients = tuple(
        Gradients(output.value, tuple(backward.gradients[output.column]))
        for output in stage.outputs
        if output.column in backward.gradients
    )
    if step.mode != "turn" and not gradients:
        return
    outputs, contributions = [], []
    for value in stage.inputs:
        if value.column in CONSTANTS or not value.dtype.startswith("float"):
            continue
        column = backward.gradient_of(value.column, value.shape, gradient_name(value.value, stage.name))
        outputs.append(column)
        if value.edges is not None:  # rows of sources
            contributions.append(column.name)
            backward.contributions[collection_name(value.edges, step.stage), value.column] = column
        else:
            backward.gradients.setdefault(value.column, []).append(column.name)
    mode: Mode = "turn" if step.mode == "turn" else "backward"
    backward.steps.append(
        changed(step, mode=mode, gradients=gradients, outputs=tuple(outputs), contributions=tuple(contributions))
    )


def _propagate(step: PropagateStep, backward: _Backward) -> None:
    gradient = None if step.input in CONSTANTS else backward.gradient(step.output)
    if gradient is None:
        return
    column = backward.gradient_of(step.input, step.output.shape)
    backward.steps.append(changed(step, input=gradient, output=column, reverse=True, combine=backward.rgb))
    backward.gradients.setdefault(step.input, []).append(column.name)


def _collect(step: CollectStep, backward: _Backward) -> None:
    for name in step.columns:
        contributions = backward.contributions.get((step.output, name))
        if contributions is None:
            continue
        column = backward.gradient_of(name, contributions.shape)
        backward.steps.append(GatherStep(contributions.name, column, backward.rgb, step.within))
        backward.gradients.setdefault(name, []).append(column.name)


def _on_edges(step: EdgeStep, backward: _Backward) -> None:
    """Contributions to an edge column are added on the edges, those to a vertex column by a stage."""
    parts = backward.gradients.get(step.output.name, [])
    if not parts:
        return
    found = EdgeAdjoint(backward.fresh, backward.levels)
    on_edges = step.output.edges is not None
    gradient = found.summed(parts, step.output) if on_edges else backward.gradient(step.output)
    assert gradient is not None  # it has parts
    found.of(step, gradient)
    backward.steps += found.steps
    for column, part in found.gradients:
        if column not in CONSTANTS:
            backward.gradients.setdefault(column, []).append(part)


def marked(epoch: Epoch) -> Epoch:
    """The epoch without stages that no step runs; of the others, the inputs whose gradient somebody reads are marked."""
    run = {step.stage for step in epoch.steps if isinstance(step, PipeStep)}
    stages = mark_gradients([stage for stage in epoch.stages if stage.name in run], epoch.steps)
    return Epoch(stages, epoch.steps)


def mark_gradients(stages: Sequence[Stage], steps: Sequence[Step]) -> tuple[Stage, ...]:
    """The stages with `needs_gradient` set on the inputs and outputs whose gradients the steps make."""
    own: dict[str, list[PipeStep]] = {stage.name: [] for stage in stages}
    for step in steps:
        if isinstance(step, PipeStep) and step.mode != "forward":
            own[step.stage].append(step)
    return tuple(_marked(stage, own[stage.name]) for stage in stages)


def _marked(stage: Stage, own: Sequence[PipeStep]) -> Stage:
    """A stage, by the steps of its own that make gradients."""
    made = {column.name for step in own for column in step.outputs}
    received = {gradient.value for step in own for gradient in step.gradients}
    inputs = tuple(_needing(value, gradient_name(value.value, stage.name) in made) for value in stage.inputs)
    outputs = tuple(_needing(output, output.value in received) for output in stage.outputs)
    return changed(stage, inputs=inputs, outputs=outputs)


def _needing(value: Value, needed: bool) -> Value:
    """An input or output of a stage with that mark; itself where it has it, for a deep model has hundreds."""
    return value if value.needs_gradient is needed else changed(value, needs_gradient=needed)
