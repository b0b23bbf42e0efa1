"""Steps, stages and plans under other names for the columns that they read and make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from planner.expressions import renamed
from planner.physical import (
    CollectStep,
    Column,
    EdgeExpressionStep,
    EdgeStep,
    GatherStep,
    Gradients,
    PipeStep,
    Plan,
    PropagateStep,
    Stage,
    Step,
)
from planner.records import changed

Naming = Callable[[str], str]
"""From an old name to a new one."""


def rename_step(step: Step, to: Naming, stage: Naming = str) -> Step:
    """The step, with columns and collections so named, and its stage."""

    def column(one: Column) -> Column:
        return changed(one, name=to(one.name))

    match step:
        case PipeStep():
            return changed(
                step,
                stage=stage(step.stage),
                inputs=tuple(map(to, step.inputs)),
                collections=tuple(map(to, step.collections)),
                gradients=tuple(Gradients(one.value, tuple(map(to, one.columns))) for one in step.gradients),
                outputs=tuple(map(column, step.outputs)),
                contributions=tuple(map(to, step.contributions)),
            )
        case PropagateStep():
            return changed(step, input=to(step.input), output=column(step.output))
        case CollectStep():
            return changed(step, columns=tuple(map(to, step.columns)), output=to(step.output))
        case GatherStep():
            return changed(step, contributions=to(step.contributions), output=column(step.output))
        case EdgeExpressionStep():
            return changed(step, expression=renamed(step.expression, to), output=column(step.output))
    assert isinstance(step, EdgeStep)
    read: dict[str, Any] = {name: to(getattr(step, name)) for name in step.READS}
    return changed(step, output=column(step.output), **read)


def rename_stage(stage: Stage, to: Naming, name: Naming = str) -> Stage:
    """The stage so named, with the columns that it reads and makes."""
    inputs = tuple(changed(i, column=to(i.column)) for i in stage.inputs)
    outputs = tuple(changed(o, column=to(o.column)) for o in stage.outputs)
    return changed(stage, name=name(stage.name), inputs=inputs, outputs=outputs)


def rename_plan(plan: Plan, to: Naming, stage: Naming = str) -> Plan:
    """The plan with its columns and stages so named; the graph's own columns keep their names."""
    own = {column.name for column in plan.static_columns}

    def name(old: str) -> str:
        return old if old in own else to(old)

    prepare, train, both, evaluate, predict = (tuple(rename_step(step, name, stage) for step in s) for s in plan.passes)
    return replace(
        plan,
        stages=tuple(rename_stage(one, name, stage) for one in plan.stages),
        train=train,
        train_and_evaluate=both,
        evaluate=evaluate,
        predict=predict,
        prepare=prepare,
        hoisted=tuple(changed(column, name=name(column.name)) for column in plan.hoisted),
    )
