"""The traits of an engine: everything that the planner knows about it. Each engine in `lotan.engines` states its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.rates import LOCAL, Rates
from planner.spec import Ability

Chunking = Literal["whole", "partitions"]
"""The way in which vertices are cut into the chunks that stages run on.

- whole: all vertices together, in even chunks that threads share.
- partitions: each partition by itself, in chunks that workers run one after the other.
"""

Memory = Literal["process", "workers"]
"""The owner of the memory for saved values of forward runs.

- process: this process, which must have room for all of them.
- workers: each worker has room for a share. Further values go to a file or are computed again.
"""


@dataclass(frozen=True)
class EngineTraits:
    """The properties of an engine that planning depends on. The defaults are those of an engine that is one process.

    The fixed costs of a pass, of a step and of a stage's run are the rates `passes`, `steps` and `pipes`.
    """

    name: str  # for printing, and for finding measured rates and past runs
    abilities: tuple[Ability, ...] = ()  # beyond sums of rows and collecting, which every engine can do
    in_process: bool = True  # runs in this process: it sends nothing, and columns stay where they are made
    chunking: Chunking = "whole"
    memory: Memory = "process"
    spills: bool = False  # its own operators write to the disk if memory is full
    more_partitions_fit: bool = False  # with more partitions, tasks need less memory at one time
    python_tasks: bool = False  # each of its tasks has a Python process
    counts_shuffles: bool = False  # shuffled bytes are counted; otherwise they are part of the rates
    widest_total: int | None = (
        None  # the most numbers of a reduction over all vertices, which each vertex has beside it
    )
    needs_rgb: bool = False  # always sums gradients before they cross partitions
    rates: Rates = LOCAL  # rates for machines on which nobody has measured


ONE_PROCESS = EngineTraits("local")
"""An engine without special abilities, for which a plan is made if no engine is given."""
