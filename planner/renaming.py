"""Renaming of stages, and of plans with all the columns that they read and make."""

from __future__ import annotations

from dataclasses import replace

from planner.physical import Plan, Stage
from planner.steps.step import Naming


def rename_stage(stage: Stage, to: Naming, name: Naming = str) -> Stage:
    """Return a stage under another name, with new names for the columns that it reads and makes."""
    inputs = tuple(replace(i, column=to(i.column)) for i in stage.inputs)
    outputs = tuple(replace(o, column=to(o.column)) for o in stage.outputs)
    return replace(stage, name=name(stage.name), inputs=inputs, outputs=outputs)


def rename_plan(plan: Plan, to: Naming, stage: Naming = str) -> Plan:
    """Return a plan with its columns and stages renamed. The graph's own columns keep their names."""
    own = {column.name for column in plan.static_columns}

    def name(old: str) -> str:
        return old if old in own else to(old)

    prepare, train, both, evaluate, predict = (tuple(step.renamed(name, stage) for step in s) for s in plan.passes)
    return replace(
        plan,
        stages=tuple(rename_stage(one, name, stage) for one in plan.stages),
        train=train,
        train_and_evaluate=both,
        evaluate=evaluate,
        predict=predict,
        prepare=prepare,
        hoisted=tuple(replace(column, name=name(column.name)) for column in plan.hoisted),
    )
