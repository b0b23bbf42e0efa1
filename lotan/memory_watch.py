"""How much memory a run takes: that of its processes on this host, sampled while it runs."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType

import psutil

MEMORY_KEYS = ("driver", "jvm", "workers")


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
