"""Leave out gradients that reach no trained parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.differentiate import Epoch, marked
from planner.draft import Draft
from planner.physical import Stage, gradient_name
from planner.places import forward_half
from planner.rule import DraftRule
from planner.steps.backward import is_constant
from planner.steps.learned_rows import LearnedRowsGradientStep, LearnedRowsStep
from planner.steps.pipe import PipeStep
from planner.steps.step import Step


def drop_dead_gradients(steps: Sequence[Step], stages: Sequence[Stage]) -> tuple[Step, ...]:
    """A gradient is never used if it leads to no trained parameter, such as the gradient of a static column.

    Args:
        steps: The steps of a training epoch, forward and backward.
        stages: The stages of the epoch. Gradients that lead to one of their trainable parameters are kept.

    Returns:
        The steps without those that make only unused gradients, and with only the used outputs of the others.
    """
    by_name = {stage.name: stage for stage in stages}
    turn = _turn(steps)
    read: set[str] = set()
    kept: list[Step] = []
    for step in reversed(steps[turn:]):
        live = _live(step, by_name, read)
        if live is not None:
            kept.append(live)
            read |= _gradients_read(live)
    return (*steps[:turn], *reversed(kept))


def _live(step: Step, by_name: Mapping[str, Stage], read: set[str]) -> Step | None:
    """Return a step of backward with only the outputs that are read, or None if none is.

    A pipe forward adds gradients and makes one column, so it is kept whole or not at all.
    """
    if isinstance(step, PipeStep) and not step.emits:
        return _live_pipe(step, by_name[step.stage], read)
    is_handed_in = isinstance(step, LearnedRowsGradientStep)
    return step if is_handed_in or read.intersection(step.makes) else None


def _turn(steps: Sequence[Step]) -> int:
    """Return the index of the turn, where backward begins. No step before it makes a gradient."""
    return next(index for index, step in enumerate(steps) if step.turns)


def _live_pipe(step: PipeStep, stage: Stage, read: set[str]) -> PipeStep | None:
    """Return the backward of a stage with only the outputs that are read, or None if it is not needed."""
    outputs = tuple(column for column in step.outputs if column.name in read)
    names = {column.name for column in outputs}
    sinks = {value.value for value in stage.inputs if gradient_name(value.value, stage.name) in names}
    sinks |= {parameter.name for parameter in stage.parameters if parameter.trainable}
    reached = stage.computed_from(sinks)
    gradients = tuple(gradient for gradient in step.gradients if gradient.value in reached)
    if step.mode == "backward" and not gradients:
        return None
    contributions = tuple(name for name in step.contributions if name in names)
    return replace(step, gradients=gradients, outputs=outputs, contributions=contributions)


def _gradients_read(step: Step) -> set[str]:
    """Return the names of the columns that a step of backward reads. For the backward of a stage, only gradients count."""
    if isinstance(step, PipeStep) and not step.emits:
        return {column for gradient in step.gradients for column in gradient.columns}
    return set(step.reads)


# --- the rule --------------------------------------------------------------------------------------------------------


def _apply(draft: Draft) -> Draft:
    naive = draft.naive
    steps = drop_dead_gradients(naive.steps, naive.stages)
    return draft if steps == naive.steps else replace(draft, epoch=marked(Epoch(naive.stages, steps)))


def _count(draft: Draft) -> int:
    """Return the number of gradient columns that the rule has left out."""
    return _columns_made(draft.naive.steps) - _columns_made(draft.epoch.steps)


def _columns_made(steps: Sequence[Step]) -> int:
    return sum(len(step.makes) for step in steps)


def _where(draft: Draft, _: str) -> list[str]:
    """Return the columns that training reads and that depend on no trainable parameter.

    Columns for which no gradient is defined are left out.
    """
    plan = draft.plan
    trained: set[str] = set()
    read: dict[str, None] = {}
    for step in forward_half(plan):
        if isinstance(step, PipeStep):
            stage = plan.stage(step.stage)
            read |= dict.fromkeys(i.column for i in stage.inputs if i.dtype.startswith("float"))
            trained |= _trained_outputs(stage, trained)
        else:
            read |= dict.fromkeys(step.reads)
            learned = isinstance(step, LearnedRowsStep) and step.trainable
            trained |= set(step.makes) if learned or trained.intersection(step.reads) else set()
    return [name for name in read if name not in trained and not is_constant(name)]


def _trained_outputs(stage: Stage, trained: set[str]) -> set[str]:
    """Return the columns that a stage computes from trainable parameters, or from columns among `trained`."""
    behind = {parameter.name for parameter in stage.parameters if parameter.trainable}
    behind |= {i.value for i in stage.inputs if i.column in trained}
    reached = stage.computed_from(behind)
    return {output.column for output in stage.outputs if output.value in reached}


RULE = DraftRule(
    name="drop_dead_gradients",
    phase="epoch",
    apply=_apply,
    count=_count,
    where=_where,
    idle="every gradient leads to a parameter",
)
