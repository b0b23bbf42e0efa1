"""The measured cost of epochs of mini-batches beside the estimated one. A copy of the model is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any

from lotan.exploring.analysis import Measure
from lotan.planning.job import Job
from lotan.settings.config import TrainerConfig
from planner.explain.sizes import PEAK_MEMORY

NOT_COUNTED = 1
"""The epochs that are trained before those that count: the first one also fills caches and memory."""


def measures_of_epochs(
    job: Job,
    config: TrainerConfig,
    history: Sequence[Mapping[str, Any]],
    figures_after: Sequence[Mapping[str, float]],
    peak: int,
) -> list[Measure]:
    """Return what the epochs that count have taken beside the estimates: medians of seconds, and means of all else.

    Args:
        job: The job, which has the estimates.
        config: The settings that it was planned with.
        history: The entries of the epochs of a copy of the model, at least one more than `NOT_COUNTED`.
        figures_after: The figures of mini-batches after each epoch, of all epochs until then.
        peak: The measured peak bytes of all processes.
    """
    counted = history[NOT_COUNTED:]
    evaluations = [entry["eval_seconds"] for entry in counted if entry["eval_seconds"]]
    training = median(entry["train_seconds"] for entry in counted)
    found = [
        Measure("training of an epoch", "seconds", job.training_seconds, training),
        *(Measure("evaluation", "seconds", job.evaluation_seconds, median(one)) for one in [evaluations] if one),
        Measure(PEAK_MEMORY, "bytes", job.peak_bytes(config), peak),
    ]
    before, after = figures_after[NOT_COUNTED - 1], figures_after[-1]
    figures = {name: (value - before[name]) / len(counted) for name, value in after.items()}
    if job.batch is not None and figures.get("batches"):
        statistics = job.batch.statistics
        for what, estimated in (("vertices", statistics.vertices), ("edges", statistics.edges)):
            found.append(Measure(f"{what} of a batch", "rows", estimated, figures[what] / figures["batches"]))
        found += _of_batches(figures, mean(entry["train_seconds"] for entry in counted))
    numbers = range(NOT_COUNTED + 1, len(history) + 1)
    if schedules := [one for one in map(job.schedule_of, numbers) if one is not None]:
        reading = figures["read_seconds"] + figures["write_seconds"] + figures["edge_seconds"]
        waiting = figures["partition_wait_seconds"] + figures["edge_seconds"]
        found += [
            Measure(what, unit, mean(getattr(one, estimate) for one in schedules), measured)
            for what, unit, estimate, measured in (
                ("swaps of a partition", "swaps", "swaps", figures["swaps"]),
                ("read from the disk", "bytes", "read_bytes", figures["read_bytes"]),
                ("written to the disk", "bytes", "written_bytes", figures["written_bytes"]),
                ("edges read from the disk", "bytes", "edge_bytes", figures["edge_bytes"]),
                ("reading and writing", "seconds", "disk_seconds", reading),
                ("waiting for the disk", "seconds", "wait_seconds", waiting),
            )
        ]
    return found


def _of_batches(figures: Mapping[str, float], training: float) -> list[Measure]:
    """Return the seconds of an epoch's batches, with their shares of the seconds of training.

    Batches are drawn and copied while others are computed, so shares may add up to more than one.
    """
    waits = figures["wait_seconds"] + figures.get("partition_wait_seconds", 0.0)
    parts = {
        "drawing": figures["sample_seconds"],
        "copying": figures["load_seconds"],
        "waiting for one": figures["wait_seconds"],
        "computing": figures.get("compute_seconds", max(0.0, training - waits)),
    }
    return [
        Measure(f"batches: {what}", "seconds", None, seconds, seconds / training) for what, seconds in parts.items()
    ]
