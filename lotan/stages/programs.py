"""The function that makes the program of a stage."""

from __future__ import annotations

from lotan.stages.program import StageProgram
from lotan.stages.saved_values import Memory
from lotan.stages.side_by_side import SideBySide
from planner.physical import SourceGradients, Stage

Program = StageProgram | SideBySide


def make_program(stage: Stage, source_gradients: SourceGradients = "summed", memory: Memory | None = None) -> Program:
    """Return a program for a stage of one model, or of a batch.

    Args:
        stage: the stage.
        source_gradients: "summed" or "per_edge", as in `StageProgram`.
        memory: memory for the values that a forward run keeps, as in `StageProgram`.

    Raises:
        StageError: If a call is not allowed, or reads a value that no call made.
    """
    if stage.parts:
        return SideBySide(stage, source_gradients, memory)
    return StageProgram(stage, source_gradients, memory=memory)
