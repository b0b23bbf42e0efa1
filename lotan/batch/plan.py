"""The common plan of models that train together, and the number of models that fit into memory."""

from __future__ import annotations

from collections.abc import Sequence

from lotan.borders import translated
from lotan.engines.blocks.sizes import least_partitions
from lotan.engines.choice import MEMORY_SHARE
from lotan.memory.free import free_memory
from lotan.memory.limit import SPARK_DEFAULT_HEAP, MemoryLimit
from lotan.planning.job import Job
from lotan.settings.config import TrainerConfig
from planner import Planned
from planner.batch import Batch, compile_batch, compile_cheapest
from planner.footprint import Footprint
from planner.shares import DRIVER_BYTES


@translated()
def plan_batch(jobs: Sequence[Job], config: TrainerConfig) -> Batch:
    """Return one plan for all models, in which they share steps if that is enabled and estimated to take less time.

    If the models train on mini-batches, it is the plan of their evaluation.
    """
    return _common([job.planned for job in jobs], config)


@translated()
def plan_mini_batch(jobs: Sequence[Job], config: TrainerConfig) -> Batch:
    """Return one plan for all models to train on mini-batches."""
    return _common([job.batch for job in jobs if job.batch is not None], config)


def _common(planned: Sequence[Planned], config: TrainerConfig) -> Batch:
    plans, first = [one.plan for one in planned], planned[0]
    if "share_models" in config.disable:
        return compile_batch(plans, share=False)
    return compile_cheapest(plans, first.statistics, first.options.pricing)


def divide(jobs: Sequence[Job], numbers: Sequence[int], config: TrainerConfig, most: int | None) -> list[list[int]]:
    """Divide models into batches that fit into memory, in the order given.

    Larger batches are never slower while columns stay in memory, because common work is done once. Models with
    different losses, for example with different numbers of outputs, are trained apart, because their statistics have
    different shapes.

    Args:
        jobs: The jobs of the models.
        numbers: The numbers of the models, in the same order.
        config: The settings, with the memory limit. Without a limit, the free memory is the limit.
        most: The largest number of models in a batch; None: no limit but memory.
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
    """Return the bytes of the Spark heap that blocks will use, or None on other engines.

    The heap does not grow once Spark runs.
    """
    if job.engine.name != "blocks":
        return None
    from lotan.hosts.spark_session import active_session, heap_of

    spark = job.graph.tables()[0].sparkSession if job.graph.origin == "spark" else active_session()
    if spark is not None:
        return heap_of(spark)
    own = MemoryLimit.of(config).heap(Footprint("blocks", 0, 0, heap=free_memory()))  # the largest that we would start
    return SPARK_DEFAULT_HEAP if own is None else own.bytes


def _fitting(jobs: Sequence[Job], config: TrainerConfig, most: int | None, heap: int | None) -> int:
    """Return how many of the first models fit into memory together, at least one."""
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
        return needs.least <= limit and not needs.spills(limit)
    return needs.peak - DRIVER_BYTES <= MEMORY_SHARE * free_memory()
