"""The estimated time of drawing and sending mini-batches on Spark, which the computation of a batch waits for."""

from __future__ import annotations

from lotan.engines.choice import ENGINES
from lotan.planning.cost_cache import Known
from lotan.planning.pricing import priced
from lotan.settings.config import TrainerConfig
from planner.cost.seconds import work_seconds
from planner.estimate import BYTES
from planner.regime import Sampling
from planner.statistics import Statistics
from planner.work import Work

STEPS_OF_LEVEL = 2
"""The joins for each level of a batch: the edges of its vertices, and the vertices that were not met before."""

STEPS_OF_EPOCH = 2
"""The other shuffles of an epoch: the order of the examples, and the rows of each batch to their task."""


def drawing_seconds(sampling: Sampling, of_batch: Statistics, config: TrainerConfig, known: Known) -> float:
    """Estimate the seconds in which Spark draws the batches of an epoch and sends them to workers.

    Draws are joins of frames and tasks in Python, which cost what they cost on the engine `rows`. Each batch is a task of
    its own, which costs what a pass costs on `blocks`, and so do its bytes.

    Args:
        sampling: The sampling of batches.
        of_batch: The sizes of a batch.
        config: The settings of the run.
        known: The known costs of this machine.
    """
    steps = STEPS_OF_LEVEL * len(sampling.fanouts) + STEPS_OF_EPOCH
    numbers = sampling.batches * (of_batch.vertices * of_batch.width + of_batch.edges)
    drawn = work_seconds(Work(steps=steps, collected_numbers=numbers), priced(ENGINES["rows"], config, known))
    sent = Work(passes=sampling.batches, piped_bytes=BYTES["float32"] * numbers)
    return drawn + work_seconds(sent, priced(ENGINES["blocks"], config, known))
