"""The plan of models that train together, and how many of them memory has room for."""

from __future__ import annotations

from collections.abc import Sequence

from lotan.borders import translated
from lotan.engines.blocks.sizes import least_partitions
from lotan.engines.choice import MEMORY_SHARE
from lotan.memory.free import free_memory
from lotan.memory.limit import SPARK_DEFAULT_HEAP, MemoryLimit
from lotan.planning.job import Job
from lotan.settings.config import TrainerConfig
from planner.batch import Batch, compile_batch
from planner.footprint import Footprint
from planner.shares import DRIVER_BYTES


@translated()
def plan_batch(jobs: Sequence[Job], config: TrainerConfig) -> Batch:
    """One plan for all."""
    return compile_batch([job.plan for job in jobs], share="share_models" not in config.disable)


def divide(jobs: Sequence[Job], numbers: Sequence[int], config: TrainerConfig, most: int | None) -> list[list[int]]:
    """Models to train together, in the order given: as many at a time as fit into memory.

    More at a time is never slower, for what they share is done once, until columns go to the disk. Models of other losses,
    such as of more outputs, are trained apart: their figures are counted otherwise.

    Args:
        jobs: of the models.
        numbers: by which they are called.
        config: says whether there is a memory limit; without one, what is free is the limit.
        most: models at a time; None: no more than fit.
    """
    found: list[list[int]] = []
    heap = _heap(jobs[0], config)
    for loss in dict.fromkeys(job.loss for job in jobs):
        waiting = [(number, job) for number, job in zip(numbers, jobs, strict=True) if job.loss == loss]
        while waiting:
            count = _fitting([job for _, job in waiting], config, most, heap)
            found.append([number for number, _ in waiting[:count]])
            waiting = waiting[count:]
    return found


def _heap(job: Job, config: TrainerConfig) -> int | None:
    """Bytes of the heap that blocks will lie in; None: there are none. It does not grow once Spark runs."""
    if job.engine.name != "blocks":
        return None
    from lotan.hosts.spark_session import active_session, heap_of

    spark = job.graph.tables()[0].sparkSession if job.graph.origin == "spark" else active_session()
    if spark is not None:
        return heap_of(spark)
    own = MemoryLimit.of(config).heap(Footprint("blocks", 0, 0, heap=free_memory()))  # the largest that we would start
    return SPARK_DEFAULT_HEAP if own is None else own.bytes


def _fitting(jobs: Sequence[Job], config: TrainerConfig, most: int | None, heap: int | None) -> int:
    """How many of the first, at least one."""
    fewest, beyond = 1, min(len(jobs), most or len(jobs)) + 1
    while beyond - fewest > 1:
        middle = (fewest + beyond) // 2
        if _fits(jobs[:middle], config, heap):
            fewest = middle
        else:
            beyond = middle
    return fewest


def _fits(jobs: Sequence[Job], config: TrainerConfig, heap: int | None) -> bool:
    plan, limit = plan_batch(jobs, config).plan, MemoryLimit.of(config).bytes
    needs = jobs[0].needs(config, plan)
    if heap is not None:
        fewest = least_partitions(plan, jobs[0].statistics)
        if needs.least_heap > heap or (config.partitions or fewest) < fewest:
            return False
    if limit is not None:
        return needs.least <= limit
    return needs.peak - DRIVER_BYTES <= MEMORY_SHARE * free_memory()
