"""The report of a run: what was trained, how, what it cost and what came out, as plain data for JSON."""

from __future__ import annotations

import json
import math
import platform
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import psutil

from lotan import __version__
from lotan.checkpoint import write_atomically
from planner.physical import CollectStep, EdgeStep, PipeStep, PropagateStep, Step

if TYPE_CHECKING:
    from lotan.job import Job

PACKAGES = ("torch", "numpy", "pandas", "pyarrow", "pyspark", "pyzmq", "graphframes-py")
MEMORY_KEYS = ("driver", "jvm", "workers")
BYTES_KEYS = ("messenger_sent", "messenger_received", "shuffle_written")


def write_report(path: str | Path, report: Mapping[str, Any]) -> None:
    """Write `report` as JSON, whole or not at all. What is not a finite number becomes null: JSON has no NaN."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps(finite(report), indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda stream: stream.write(content.encode()))


def finite(value: Any) -> Any:
    """`value` with every NaN and infinity in it replaced by None."""
    match value:
        case Mapping():
            return {key: finite(item) for key, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value


def versions() -> dict[str, str | None]:
    """Versions of what took part, by distribution name; None for what is not installed."""
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
    peak_memory: Mapping[str, int],
    bytes_moved: Mapping[str, int],
) -> dict[str, Any]:
    """The report of a finished run, see the README. Seconds are wall time, sizes are bytes."""
    steps = {name: operators(getattr(job.plan, name)) for name in ("train", "evaluate")}
    return {
        "graph": {
            "vertices": job.statistics.vertices,
            "edges": job.statistics.edges,
            "width": job.statistics.width,
            "classes": job.loss.outputs,
        },
        "task": job.loss.task,
        "engine": job.engine.name,
        "engine_reason": job.engine.reason,
        "plan": {"rules_fired": list(job.plan.fired), "physical_operators": steps},
        "epochs": epochs,
        "best_epoch": best_epoch,
        "metrics": {name: dict(values) for name, values in metrics.items()},
        "setup_seconds": setup_seconds,
        "peak_memory_bytes": {key: peak_memory.get(key, 0) for key in MEMORY_KEYS},
        "bytes": {key: bytes_moved.get(key, 0) for key in BYTES_KEYS},
        "transport": transport(bytes_moved),
        "seed": seed,
        "versions": versions(),
    }


def transport(bytes_moved: Mapping[str, int]) -> dict[str, int]:
    """How what the messenger moved has travelled, in bytes: in shared memory, or inline through sockets."""
    shared = bytes_moved.get("messenger_shared", 0)
    moved = bytes_moved.get("messenger_sent", 0) + bytes_moved.get("messenger_received", 0)
    return {"shared": shared, "inline": moved - shared}


def operators(steps: Sequence[Step]) -> list[str]:
    """The physical operators of a pass, one line each."""
    return [_operator(step) for step in steps]


def _operator(step: Step) -> str:
    match step:
        case PipeStep():
            return f"Pipe({step.stage}, {step.mode})"
        case PropagateStep():
            return f"Propagate({step.input} -> {step.output.name}, width={step.output.width}, reverse={step.reverse})"
        case CollectStep():
            return f"Collect({', '.join(step.columns)} -> {step.output})"
        case EdgeStep():
            name = type(step).__name__.removesuffix("Step")
            return f"{name}({', '.join(step.columns)} -> {step.output.name}, width={step.output.width})"
    return f"Gather({step.contributions} -> {step.output.name}, width={step.output.width})"


class MemoryWatch:
    """Samples resident memory while it is open: `with MemoryWatch() as watch: ...; watch.peak`.

    `peak` is in bytes, of the sum over processes at one time: "driver" is this process, "jvm" every Java process started
    by it or that started it, with all below them (executors, Spark's Python processes), "workers" its other children (DL
    workers, router). Processes on other hosts are not seen. Pages that processes share count in each of them.
    """

    def __init__(self, interval: float = 0.25) -> None:
        self.peak = dict.fromkeys(MEMORY_KEYS, 0)
        self._interval = interval  # seconds; a sample reads /proc once, about 5 ms
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lotan-memory", daemon=True)

    def __enter__(self) -> MemoryWatch:
        self.sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.sample()

    def sample(self) -> None:
        """Look once."""
        for key, size in resident_memory().items():
            self.peak[key] = max(self.peak[key], size)

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            self.sample()


def resident_memory() -> dict[str, int]:
    """Resident bytes now of the driver, the JVM and the workers, see `MemoryWatch`."""
    return {key: sum(_resident(process) for process in processes) for key, processes in process_groups().items()}


def process_groups() -> dict[str, set[psutil.Process]]:
    """The job's processes on this host, by the keys of `MemoryWatch`."""
    driver = psutil.Process()
    below = _trees(driver.children())
    submitter = [parent for parent in driver.parents()[:1] if _is_java(parent)]  # under spark-submit the JVM starts us
    jvm = _trees(process for process in below if _is_java(process)) | (_trees(submitter) - below - {driver})
    return {"driver": {driver}, "jvm": jvm, "workers": below - jvm}


def _trees(roots: Iterable[psutil.Process]) -> set[psutil.Process]:
    """The processes and all below them."""
    found = set()
    for root in roots:
        found.add(root)
        # a process that has ended meanwhile has nothing below it
        with suppress(psutil.Error):
            found.update(root.children(recursive=True))
    return found


def _is_java(process: psutil.Process) -> bool:
    try:
        return process.name().startswith("java")
    except psutil.Error:
        return False


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
