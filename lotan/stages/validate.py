"""Whether a stage can run: every call is allowed, and reads only what was made before it."""

from __future__ import annotations

from typing import Any

from lotan.errors import StageError
from lotan.stages.operators import compile_call, names_read
from planner.physical import Stage
from planner.spec import Call


def validate_stage(stage: Stage) -> None:
    """Check that a stage can run.

    Raises:
        StageError: a name is made twice or read before it is made, an operator is not allowed, a source input is read
            otherwise than by lotan.scatter, or a loss stands without its one output.
    """
    sources = {i.value: i.edges for i in stage.inputs if i.role == "source"}
    made: set[str] = set()
    for name in [i.value for i in stage.inputs] + [p.name for p in stage.parameters]:
        _make(name, made, stage)
    for call in stage.calls:
        for name in names_read(call):
            if name not in made:
                raise StageError(
                    f"stage {stage.name}: {call.output} = {call.op} reads {name!r}, made by nothing before"
                )
        _check_sources(call, sources, stage)
        compile_call(call, {})
        _make(call.output, made, stage)
    for output in stage.outputs:
        if output.value not in made:
            raise StageError(f"stage {stage.name}: its output {output.value!r} is made by nothing")
    if stage.loss is not None and len(stage.outputs) != 1:
        raise StageError(f"stage {stage.name}: a loss needs exactly one output, not {len(stage.outputs)}")


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
        raise StageError(f"stage {stage.name}: {call.output} scatters from sources what is not a source input")
