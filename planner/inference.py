"""Derives the forward pass of evaluation from that of training, if the two differ only in dropout.

This takes less time than lowering the graph of evaluation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from planner.lower import Forward
from planner.physical import Stage, collection_name
from planner.spec import Call, Ref, instead
from planner.steps.collect import CollectStep
from planner.steps.edge_dropout import EdgeDropoutStep
from planner.steps.pipe import PipeStep
from planner.steps.step import Step

DROPOUT = "lotan.dropout"


def rename_stages(forward: Forward, old: str, new: str) -> Forward:
    """Return the same pass with stages renamed: their names begin with `new` instead of `old`."""
    names = {stage.name: new + stage.name.removeprefix(old) for stage in forward.stages}
    collections = {
        collection_name(edges, stage.name): collection_name(edges, names[stage.name])
        for stage in forward.stages
        for edges in stage.edge_sets
    }

    def renamed(step: Step) -> Step:
        if isinstance(step, PipeStep):
            read = tuple(collections[name] for name in step.collections)
            return replace(step, stage=names[step.stage], collections=read)
        return replace(step, output=collections[step.output]) if isinstance(step, CollectStep) else step

    stages = tuple(replace(stage, name=names[stage.name]) for stage in forward.stages)
    return Forward(stages, tuple(map(renamed, forward.steps)))


def without_draws(forward: Forward) -> Forward | None:
    """Return the pass without dropout, or None if lowering the graph without dropout might give other stages.

    This is so if a stage is left without calls, or if the input of a dropout has other readers, leaves its stage, or
    depends on static columns alone.
    """
    dropped: dict[str, Mapping[str, str]] = {}
    columns: dict[str, str] = {}  # old name -> the column to read instead
    for stage in forward.stages:
        found = _dropped(stage)
        if found is None:
            return None
        dropped[stage.name] = found
        columns |= {o.column: found[o.value] for o in stage.outputs if o.value in found and stage.loss is None}
    for step in forward.steps:
        if isinstance(step, EdgeDropoutStep):
            columns[step.output.name] = columns.get(step.input, step.input)
    stages = tuple(_stage(stage, dropped[stage.name], columns) for stage in forward.stages)
    steps = [step for step in forward.steps if not isinstance(step, EdgeDropoutStep)]
    return Forward(stages, tuple(_step(step, columns) for step in steps))


def _dropped(stage: Stage) -> dict[str, str] | None:
    """Return the value to read instead of each dropout's output in a stage, or None if stages might be cut elsewhere."""
    if not any(call.op == DROPOUT for call in stage.calls):
        return {}
    read = Counter(name for call in stage.calls for name in call.reads)
    given, exported = {i.value for i in stage.inputs}, {o.value for o in stage.outputs}
    static = {i.value for i in stage.inputs if i.static and i.role == "vertex"}  # and values computed from these alone
    found: dict[str, str] = {}
    for call in stage.calls:
        if call.op == DROPOUT:
            (x,) = call.reads
            found[call.output] = found.get(x, x)
            nothing_left = call.output in exported and found[call.output] in given
            if nothing_left or x in static or x in exported or read[x] > 1:
                return None
        elif call.reads and static.issuperset(call.reads) and not call.op.startswith("lotan."):
            static.add(call.output)
    return found


def _stage(stage: Stage, dropped: Mapping[str, str], columns: Mapping[str, str]) -> Stage:
    """Return a stage without its dropouts. It reads the columns that other stages make without theirs."""
    given = {i.value: columns[i.column] for i in stage.inputs if i.role == "vertex" and i.column in columns}
    if not dropped and columns.keys().isdisjoint(i.column for i in stage.inputs):
        return stage
    names = given | {output: given.get(x, x) for output, x in dropped.items()}
    refs = {name: Ref(x) for name, x in names.items()}
    return replace(
        stage,
        inputs=tuple(
            replace(i, value=names.get(i.value, i.value), column=columns[i.column]) if i.column in columns else i
            for i in stage.inputs
        ),
        calls=tuple(_call(call, refs) for call in stage.calls if call.op != DROPOUT),
        outputs=tuple(
            replace(o, value=names[o.value], column=columns.get(o.column, o.column)) if o.value in names else o
            for o in stage.outputs
        ),
    )


def _call(call: Call, refs: Mapping[str, Ref]) -> Call:
    if refs.keys().isdisjoint(call.reads):
        return call
    return replace(call, arguments=instead(call.arguments, refs), keywords=instead(call.keywords, refs))


def _step(step: Step, columns: Mapping[str, str]) -> Step:
    if columns.keys().isdisjoint((*step.reads, *step.makes)):
        return step
    return step.renamed(lambda name: columns.get(name, name))
