"""The check that a stage can run: every call is allowed and reads only values that were made before it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from lotan.errors import StageError
from lotan.stages.operators import compile_call, names_read
from planner.physical import Stage, StageInput, StageOutput, of_model
from planner.spec import Call


def validate_stage(stage: Stage) -> None:
    """Check that a stage can run.

    Raises:
        StageError: the stage has one of these faults. A name is made twice or read before it is made. An operator is not
            allowed. An operator other than lotan.scatter reads a source input. A loss has no single output. The parts
            do not agree with their stage.
    """
    if stage.parts:
        _check_parts(stage)
        return
    sources = {i.value: i.edges for i in stage.inputs if i.role == "source"}
    made: set[str] = set()
    for name in [i.value for i in stage.inputs] + [p.name for p in stage.parameters]:
        _make(name, made, stage)
    for call in stage.calls:
        for name in names_read(call):
            if name not in made:
                raise StageError(
                    f"stage {stage.name}: {call.output} = {call.op} reads {name!r}, which no earlier call makes"
                )
        _check_sources(call, sources, stage)
        compile_call(call, {})
        _make(call.output, made, stage)
    for output in stage.outputs:
        if output.value not in made:
            raise StageError(f"stage {stage.name}: no call makes its output {output.value!r}")
    if stage.loss is not None and len(stage.outputs) != 1:
        raise StageError(f"stage {stage.name}: a loss needs exactly one output, not {len(stage.outputs)}")


def _check_parts(stage: Stage) -> None:
    """Check that a row's numbers and the parameters belong to the parts."""
    for part in stage.parts:
        validate_stage(part.stage)
        if part.model >= stage.models:
            raise StageError(f"stage {stage.name}: there is no model {part.model} among {stage.models}")
    owned = [of_model(part.model, p.name) for part in stage.parts for p in part.stage.parameters]
    if stage.calls or owned != [p.name for p in stage.parameters]:
        raise StageError(f"stage {stage.name}: its calls and parameters are not those of its parts")
    for place, whole in enumerate(stage.inputs):
        _check_widths(stage, whole.value, whole.width, [part.stage.inputs[place : place + 1] for part in stage.parts])
    for place, made in enumerate(stage.outputs):
        widths = [part.stage.outputs[place : place + 1] for part in stage.parts]
        _check_widths(stage, made.value, made.width, widths)


def _check_widths(stage: Stage, value: str, width: int, of_parts: Sequence[Sequence[StageInput | StageOutput]]) -> None:
    widths = [prod(own.shape) for found in of_parts for own in found]
    if len(widths) != len(of_parts) or (width != sum(widths) and any(own != width for own in widths)):
        raise StageError(f"stage {stage.name}: {value!r} has {width} numbers a row, and its parts have {widths}")


def _make(name: str, made: set[str], stage: Stage) -> None:
    if name in made:
        raise StageError(f"stage {stage.name}: {name!r} is made twice")
    made.add(name)


def _check_sources(call: Call, sources: dict[str, Any], stage: Stage) -> None:
    read = names_read(call)
    scatters = call.op == "lotan.scatter" and call.arguments[1:2] == ("source",)
    for name in read & sources.keys():
        if not scatters or call.arguments[2:] != (sources[name],):
            raise StageError(
                f"stage {stage.name}: {call.op} reads the source input {name!r}; only "
                f"lotan.scatter(_, 'source', {sources[name]!r}) can"
            )
    if scatters and not read & sources.keys():
        raise StageError(f"stage {stage.name}: {call.output} scatters from sources, but reads no source input")
