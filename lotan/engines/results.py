"""The tensors that a worker returns for a chunk of a pipe step, with the same names on every engine that pipes."""

from __future__ import annotations

from dataclasses import dataclass

from lotan.errors import EngineError
from lotan.stages import tensor_names
from planner.physical import Stage, StageInput
from planner.spec import EdgeSet
from planner.steps.pipe import PipeStep


@dataclass(frozen=True)
class ResultTensor:
    """A tensor of a result."""

    name: str
    # the edges to whose sources in the chunk its rows belong; None: they belong to the chunk's vertices
    edges: EdgeSet | None = None


def result_tensors(step: PipeStep, stage: Stage) -> list[ResultTensor]:
    """Return the tensors that come back, in the order of the step's outputs.

    Raises:
        EngineError: If the plan's step and its stage do not agree on the outputs.
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
