"""How much memory a run takes: that of its processes on this host, sampled while it runs."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType

import psutil

MEMORY_KEYS = ("driver", "jvm", "workers")
GROWTH = 1.01  # of resident memory since the last look at shares, before it is worth another


class MemoryWatch:
    """Samples memory while it is open: `with MemoryWatch() as watch: ...; watch.peak`.

    `peak` is in bytes, of the moment at which all of them together had most: "driver" is this process, "jvm" every Java
    process started by it or that started it, with all below them (executors, Spark's Python processes), "workers" its other
    children (DL workers, router). Processes on other hosts are not seen. A page that n processes share counts 1/n in each,
    so that the sum is what the job takes (Linux's proportional set size; elsewhere the resident set, which counts it n
    times). Shares are read only when resident memory has grown to a new peak: the kernel walks every page for them.
    """

    def __init__(self, interval: float = 0.5) -> None:
        self.peak = dict.fromkeys(MEMORY_KEYS, 0)
        self._resident = 0.0  # bytes at the last look at shares
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
        groups = process_groups()
        resident = sum(_resident(process) for processes in groups.values() for process in processes)
        if resident > self._resident * GROWTH:
            self._resident = resident
            found = shares(groups)
            if sum(found.values()) > sum(self.peak.values()):
                self.peak = found

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            self.sample()


def shares(groups: dict[str, set[psutil.Process]]) -> dict[str, int]:
    """Bytes now of these processes, see `MemoryWatch`."""
    return {key: sum(_share(process) for process in processes) for key, processes in groups.items()}


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


def _share(process: psutil.Process) -> int:
    """Its own bytes and its share of what it has in common with others; of other users' processes, all that is resident."""
    try:
        found = process.memory_full_info()
        return int(getattr(found, "pss", found.rss))
    except psutil.AccessDenied:
        return _resident(process)
    except psutil.Error:
        return 0
