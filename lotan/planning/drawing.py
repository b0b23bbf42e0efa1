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
PREPARED_SECONDS = 7.5e-3  # of a batch on local, whatever its size; measured on two cores, with 16 to 500 features
EDGE_SECONDS = 0.36e-6  # of an edge that is drawn there
BYTE_SECONDS = 0.65e-9  # of a byte of rows that are gathered there


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


def preparing_seconds(of_batch: Statistics, row: int, share: float = 1.0) -> float:
    """Estimate the seconds in which this process draws a batch and gathers its rows.

    A thread does so while the batch before is computed. But both need the processor, and mostly Python's lock too: on two
    cores, the seconds of a batch were their sum.

    Args:
        of_batch: The sizes of a batch.
        row: The bytes of a vertex's static columns.
        share: The share of the vertices among which neighbours are drawn.
    """
    return PREPARED_SECONDS + share * (EDGE_SECONDS * of_batch.edges + BYTE_SECONDS * row * of_batch.vertices)
