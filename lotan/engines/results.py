"""What a worker returns for a chunk of a pipe step: the same tensors, by the same names, on every engine that pipes."""

from __future__ import annotations

from dataclasses import dataclass

from lotan.errors import EngineError
from lotan.stages import tensor_names
from planner.physical import PipeStep, Stage, StageInput
from planner.spec import EdgeSet


@dataclass(frozen=True)
class ResultTensor:
    """A tensor of a result."""

    name: str
    edges: EdgeSet | None = None  # to whose sources in the chunk its rows belong; None: to the chunk's vertices


def result_tensors(step: PipeStep, stage: Stage) -> list[ResultTensor]:
    """What comes back, in the order of the step's outputs.

    Raises:
        EngineError: the plan's step and its stage do not agree on what that is.
    """
    if step.emits:
        tensors = [ResultTensor(tensor_names.output(output.value)) for output in stage.outputs]
    else:
        tensors = [
            ResultTensor(tensor_names.input_gradient(i.value), _edges(i)) for i in stage.inputs if i.needs_gradient
        ]
    if len(tensors) != len(step.outputs):
        asked = ", ".join(column.name for column in step.outputs)
        made = ", ".join(tensor.name for tensor in tensors)
        raise EngineError(
            f"the plan asks stage {stage.name} ({step.mode}) for ({asked}), which yields ({made}): a defect of the planner"
        )
    return tensors


def _edges(of: StageInput) -> EdgeSet | None:
    return of.edges if of.role == "source" else None
