"""The measured cost of epochs of mini-batches beside the estimated one. A copy of the model is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from lotan.exploring.analysis import Measure
from lotan.planning.job import Job
from lotan.settings.config import TrainerConfig

NOT_COUNTED = 1
"""The epochs that are trained before those that count: the first one also fills caches and memory."""


def measures_of_epochs(
    job: Job, config: TrainerConfig, history: Sequence[Mapping[str, Any]], report: Mapping[str, Any]
) -> list[Measure]:
    """Return what epochs have taken beside the estimates: medians of seconds, and the means over epochs of all else.

    Args:
        job: The job, which has the estimates.
        config: The settings that it was planned with.
        history: The entries of the epochs of a copy of the model, at least one more than `NOT_COUNTED`.
        report: The report of its run.
    """
    counted = history[NOT_COUNTED:]
    evaluations = [entry["eval_seconds"] for entry in counted if entry["eval_seconds"]]
    training = median(entry["train_seconds"] for entry in counted)
    found = [
        Measure("training of an epoch", "seconds", job.training_seconds, training),
        *(Measure("evaluation", "seconds", job.evaluation_seconds, median(one)) for one in [evaluations] if one),
        Measure("peak memory", "bytes", job.peak_bytes(config), sum(report["peak_memory_bytes"].values())),
    ]
    counts = {name: value for name, value in report.get("mini_batches", {}).items() if name != "partitions"}
    figures = {name: value / len(history) for name, value in counts.items()}
    if job.batch is not None and figures.get("batches"):
        statistics = job.batch.statistics
        for what, estimated in (("vertices", statistics.vertices), ("edges", statistics.edges)):
            found.append(Measure(f"{what} of a batch", "rows", estimated, figures[what] / figures["batches"]))
        found += _of_batches(figures, sum(entry["train_seconds"] for entry in history) / len(history))
    schedule = job.schedule
    if schedule is not None:
        reading = figures["read_seconds"] + figures["write_seconds"] + figures["edge_seconds"]
        waiting = figures["partition_wait_seconds"] + figures["edge_seconds"]
        found += [
            Measure("swaps of a partition", "swaps", schedule.swaps, figures["swaps"]),
            Measure("read from the disk", "bytes", schedule.read_bytes, figures["read_bytes"]),
            Measure("written to the disk", "bytes", schedule.written_bytes, figures["written_bytes"]),
            Measure("edges read from the disk", "bytes", schedule.edge_bytes, figures["edge_bytes"]),
            Measure("reading and writing", "seconds", schedule.disk_seconds, reading),
            Measure("waiting for the disk", "seconds", schedule.wait_seconds, waiting),
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
