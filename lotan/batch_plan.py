"""The plan of models that train together, and how many of them memory has room for."""

from __future__ import annotations

from collections.abc import Sequence

from lotan.borders import translated
from lotan.engines.choice import MEMORY_SHARE
from lotan.free_memory import free_memory
from lotan.job import Job
from lotan.memory_limit import MemoryLimit
from lotan.settings import TrainerConfig
from planner.batch import Batch, compile_batch
from planner.shares import DRIVER_BYTES


@translated()
def plan_batch(jobs: Sequence[Job], config: TrainerConfig) -> Batch:
    """One plan for all."""
    return compile_batch([job.plan for job in jobs], share="share_models" not in config.disable)


def divide(jobs: Sequence[Job], numbers: Sequence[int], config: TrainerConfig, most: int | None) -> list[list[int]]:
    """Models to train together, in the order given: as many at a time as fit into memory.

    More at a time is never slower, for what they share is done once, until columns go to the disk.

    Args:
        jobs: of the models.
        numbers: by which they are called.
        config: says whether there is a memory limit; without one, what is free is the limit.
        most: models at a time; None: no more than fit.
    """
    found, begin = [], 0
    while begin < len(jobs):
        count = _fitting(jobs[begin:], config, most)
        found.append(list(numbers[begin : begin + count]))
        begin += count
    return found


def _fitting(jobs: Sequence[Job], config: TrainerConfig, most: int | None) -> int:
    """How many of the first, at least one."""
    fewest, beyond = 1, min(len(jobs), most or len(jobs)) + 1
    while beyond - fewest > 1:
        middle = (fewest + beyond) // 2
        if _fits(jobs[:middle], config):
            fewest = middle
        else:
            beyond = middle
    return fewest


def _fits(jobs: Sequence[Job], config: TrainerConfig) -> bool:
    needs, limit = jobs[0].needs(config, plan_batch(jobs, config).plan), MemoryLimit.of(config).bytes
    if limit is not None:
        return needs.least <= limit
    return needs.peak - DRIVER_BYTES <= MEMORY_SHARE * free_memory()
