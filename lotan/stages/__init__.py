"""Stages as programs, which a worker or the local engine runs on chunks of vertices.

A `planner.physical.Stage` is data: a list of calls of allow-listed operators. `StageProgram` compiles it once and runs
it in the mode that a `StageRun` names; `encode_stage` and `decode_stage` are its form on the wire.
"""

from lotan.stages.chunk import Chunk, EdgeBlock, Saved, Terms
from lotan.stages.codec import decode_stage, encode_stage
from lotan.stages.program import StageProgram
from lotan.stages.programs import Program, make_program
from lotan.stages.saved_values import Memory
from lotan.stages.stage_run import StageResult, StageRun

__all__ = [
    "Chunk",
    "EdgeBlock",
    "Memory",
    "Program",
    "Saved",
    "StageProgram",
    "StageResult",
    "StageRun",
    "Terms",
    "decode_stage",
    "encode_stage",
    "make_program",
]
