"""The report of a run as plain data for JSON: graph, plan, settings, costs and metrics."""

from __future__ import annotations

import json
import math
import platform
import statistics
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotan.files import expanded, write_atomically
from lotan.memory.watch import MEMORY_KEYS
from lotan.version import __version__

if TYPE_CHECKING:
    from lotan.planning.job import Job
    from planner.physical import Plan

PACKAGES = ("torch", "numpy", "pandas", "pyarrow", "pyspark", "pyzmq", "graphframes-py")
WARM_UP = 2  # first epochs that are left out of the median time, if there are more epochs
BYTES_KEYS = ("messenger_sent", "messenger_received", "shuffle_written")


def write_report(path: str | Path, report: Mapping[str, Any]) -> None:
    """Write the report as one complete JSON file. Numbers that are not finite become null, because JSON has no NaN."""
    path = expanded(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps(finite(report), indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda stream: stream.write(content.encode()))


def finite(value: Any) -> Any:
    """Return a value of plain data in which None replaces every NaN and infinity."""
    match value:
        case Mapping():
            return {key: finite(item) for key, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value


def versions() -> dict[str, str | None]:
    """Return the versions of the packages involved, by distribution name; None if a package is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "lotan": __version__}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def make_report(
    job: Job,
    seed: int,
    epochs: list[dict[str, Any]],
    best_epoch: int,
    metrics: Mapping[str, Mapping[str, float]],
    setup_seconds: float,
    estimates: Mapping[str, float] | None,
    peak_memory: Mapping[str, int],
    bytes_moved: Mapping[str, int],
    batches: Mapping[str, Any] | None = None,
    changes: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the report of a finished run, as docs/reference/report.md describes it. Seconds are wall time, sizes are bytes.

    If `estimates` is None, the model was one of a batch, and the measurements are those of the batch.
    """
    return {
        **job_figures(job),
        "measured": "in a batch" if estimates is None else "alone",
        "plan": {
            **plan_figures(job.shown.plan),
            **(estimates or {}),
            "measured_epoch_seconds": epoch_seconds(epochs),
            "measured_evaluation_seconds": evaluation_seconds(epochs),
        },
        **({} if batches is None else {"mini_batches": dict(batches)}),
        "epochs": epochs,
        **({"resumed_with": list(changes)} if changes else {}),
        "best_epoch": best_epoch,
        "metrics": {name: dict(values) for name, values in metrics.items()},
        **cost_figures(setup_seconds, peak_memory, bytes_moved),
        "seed": seed,
        "versions": versions(),
    }


def job_figures(job: Job) -> dict[str, Any]:
    """Return the figures of a job: graph, task and engine."""
    return {
        "graph": graph_figures(job),
        "task": job.loss.task,
        **({} if job.loss.form is None else {"loss": str(job.loss.form)}),
        "engine": job.engine.name,
        "engine_reason": job.engine.reason,
    }


def plan_figures(plan: Plan) -> dict[str, Any]:
    """Return the rules that fired, and the steps of each pass in words."""
    passes = {"once": plan.prepare, "train": plan.train, "evaluate": plan.evaluate}
    if plan.train_and_evaluate:
        passes["train_and_evaluate"] = plan.train_and_evaluate
    operators = {name: [step.label for step in steps] for name, steps in passes.items()}
    return {"rules_fired": list(plan.fired), "physical_operators": operators}


def cost_figures(
    setup_seconds: float, peak_memory: Mapping[str, int], bytes_moved: Mapping[str, int]
) -> dict[str, Any]:
    """Return the costs beside epochs: setup seconds, peak memory by process, bytes moved by way of transport."""
    return {
        "setup_seconds": setup_seconds,
        "peak_memory_bytes": {key: peak_memory.get(key, 0) for key in MEMORY_KEYS},
        "bytes": {key: bytes_moved.get(key, 0) for key in BYTES_KEYS},
        "transport": transport(bytes_moved),
    }


def graph_figures(job: Job) -> dict[str, int]:
    """Return the sizes of a job's graph."""
    return {
        "vertices": job.statistics.vertices,
        "edges": job.statistics.edges,
        "width": job.statistics.width,
        "classes": job.loss.classes,
    }


def epoch_seconds(epochs: Sequence[Mapping[str, Any]]) -> float:
    """Return the median seconds of a training pass. The first epochs are left out: their memory is fresh and code is compiled."""
    warm = epochs[WARM_UP:] or epochs[-1:]
    return statistics.median(float(epoch["train_seconds"]) for epoch in warm)


def evaluation_seconds(epochs: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the median seconds of an evaluation with a pass of its own; None if there was none."""
    found = [float(epoch["eval_seconds"]) for epoch in epochs if epoch["eval_seconds"]]
    return statistics.median(found) if found else None


def transport(bytes_moved: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes that the messenger moved, by way: in shared memory, or inline through sockets."""
    shared = bytes_moved.get("messenger_shared", 0)
    moved = bytes_moved.get("messenger_sent", 0) + bytes_moved.get("messenger_received", 0)
    return {"shared": shared, "inline": moved - shared}
