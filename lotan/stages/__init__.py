"""Stages as programs, which a worker or the local engine runs on a chunk of vertices.

A `planner.physical.Stage` is data: a list of calls of allow-listed operators. `StageProgram` compiles it once and runs
it forward and backward. `encode_stage` and `decode_stage` convert it to its form on the wire and back.
"""

from lotan.stages.chunk import Chunk, EdgeBlock, Saved, StageGradients, Terms
from lotan.stages.codec import decode_stage, encode_stage
from lotan.stages.program import StageProgram
from lotan.stages.programs import Program, make_program
from lotan.stages.saved_values import Memory

__all__ = [
    "Chunk",
    "EdgeBlock",
    "Memory",
    "Program",
    "Saved",
    "StageGradients",
    "StageProgram",
    "Terms",
    "decode_stage",
    "encode_stage",
    "make_program",
]
