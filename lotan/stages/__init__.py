"""Stages as programs: what a worker, or the local engine, runs on a chunk of vertices.

A `planner.physical.Stage` is data: a list of calls of allow-listed operators. A `StageProgram` compiles it once and runs
it in the mode that a `StageRun` names; `codec` is its form on the wire.
"""
