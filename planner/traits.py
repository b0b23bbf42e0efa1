"""The traits of an engine: everything that the planner knows about it. Each engine in `lotan.engines` states its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.rates import LOCAL, Rates
from planner.spec import Ability

Chunking = Literal["whole", "partitions"]
"""What is cut into the chunks that stages run on. whole: all vertices, in even chunks that threads share. partitions: each
partition by itself, in chunks that workers run one after the other."""

Memory = Literal["process", "workers"]
"""Whose memory holds what a forward run keeps for its backward. process: this process, which has to have room for all of it.
workers: each worker, up to a share; what exceeds it goes to a file or is computed again."""


@dataclass(frozen=True)
class EngineTraits:
    """What the planner knows of an engine. The defaults are those of an engine that is one process.

    What a pass, a step and a run of a stage take beside their work are the rates `passes`, `steps` and `pipes`.
    """

    name: str  # for printing; measured rates and past runs are filed under it
    abilities: tuple[Ability, ...] = ()  # beyond sums of rows and collecting
    in_process: bool = True  # it runs in this process: nothing is sent, and columns stay where they are made
    chunking: Chunking = "whole"
    memory: Memory = "process"
    spills: bool = False  # its own operators put on the disk what memory has no room for
    more_partitions_fit: bool = False  # with more partitions, tasks need less memory at one time
    python_tasks: bool = False  # each of its tasks has a Python process beside it
    counts_shuffles: bool = False  # what crosses partitions is counted; else it is a part of what steps take
    needs_rgb: bool = False  # it always sums gradients before they cross partitions
    rates: Rates = LOCAL  # for machines on which nobody has measured


ONE_PROCESS = EngineTraits("local")
"""An engine that can do no more than any: what plans are for, where nobody says."""
