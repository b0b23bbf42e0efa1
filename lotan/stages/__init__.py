"""Stages as programs, which a worker or the local engine runs on chunks of vertices.

A `planner.physical.Stage` is data: a list of calls of allow-listed operators. A `StageProgram` compiles it once and runs
it in the mode that a `StageRun` names. `codec` encodes a stage for the wire, and decodes it.
"""
