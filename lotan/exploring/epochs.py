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
    seconds = [entry["train_seconds"] + entry["eval_seconds"] for entry in history[NOT_COUNTED:]]
    found = [
        Measure("epoch, with its evaluation", "seconds", job.epoch_seconds, median(seconds)),
        Measure("peak memory", "bytes", job.peak_bytes(config), sum(report["peak_memory_bytes"].values())),
    ]
    figures = {name: value / len(history) for name, value in report.get("mini_batches", {}).items()}
    if job.batch is not None and figures.get("batches"):
        statistics = job.batch.statistics
        for what, estimated in (("vertices", statistics.vertices), ("edges", statistics.edges)):
            found.append(Measure(f"{what} of a batch", "rows", estimated, figures[what] / figures["batches"]))
        found += [
            Measure(f"batches: {what}", "seconds", None, figures[f"{name}_seconds"])
            for what, name in (("drawing", "sample"), ("copying", "load"), ("waiting for one", "wait"))
        ]
    schedule = job.schedule
    if schedule is not None:
        found += [
            Measure("read from the disk", "bytes", schedule.read_bytes, figures["read_bytes"]),
            Measure("written to the disk", "bytes", schedule.written_bytes, figures["written_bytes"]),
            Measure(
                "reading and writing",
                "seconds",
                schedule.disk_seconds,
                figures["read_seconds"] + figures["write_seconds"],
            ),
            Measure("waiting for the disk", "seconds", schedule.wait_seconds, figures["partition_wait_seconds"]),
        ]
    return found
