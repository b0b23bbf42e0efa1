"""Measures the memory of a run: that of its processes on this host, sampled while it runs."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

MEMORY_KEYS = ("driver", "jvm", "workers")
GROWTH = 1.01  # growth of resident memory since the last look at shares that makes another look worthwhile


class MemoryWatch:
    """Samples memory while it is open: `with MemoryWatch() as watch: ...; watch.peak`.

    `peak` is in bytes, at the moment when all processes together had most. "driver" is this process. "jvm" is every
    Java process that this process started or was started by, with all processes below (executors, Spark's Python
    processes). "workers" are the other child processes (DL workers, Router). Processes on other hosts are not seen.

    A page that n processes of the job share counts 1/n in each, so the sum is the memory of the job. It does not depend
    on other programs on this host that have the same libraries. This holds on Linux; elsewhere the resident set is
    counted, in which a shared page counts n times. Shares are read only when resident memory has reached a new peak,
    because the kernel walks every page for them.
    """

    def __init__(self, interval: float = 0.5) -> None:
        self.peak = dict.fromkeys(MEMORY_KEYS, 0)
        self._resident = 0.0  # resident bytes at the last look at shares
        self._interval = interval  # seconds between samples; a sample reads /proc once, about 5 ms
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
        """Take one sample."""
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


@dataclass(frozen=True)
class _Pages:
    """The bytes of one process."""

    own: int  # its own bytes, and its share of memory such as shared memory that other processes of the job have too
    mapped: int = 0  # bytes of mapped files, mostly libraries, whoever else maps them
    program: str = ""  # the program, whose processes map the same files


def shares(groups: dict[str, set[psutil.Process]]) -> dict[str, int]:
    """Return the bytes that these processes use now, see `MemoryWatch`.

    The kernel's proportional set sizes hold for the whole host: they leave out the part of torch's libraries (240 MB)
    that other jobs share. So mapped files are counted as if no other job mapped them, once for each program: as many
    bytes as the process that maps most.
    """
    pages = {key: [*map(_pages, processes)] for key, processes in groups.items()}
    mapped: dict[str, list[int]] = defaultdict(list)
    for one in (one for each in pages.values() for one in each):
        mapped[one.program].append(one.mapped)
    once = {program: max(each) / (sum(each) or 1) for program, each in mapped.items()}
    return {key: sum(one.own + int(once[one.program] * one.mapped) for one in each) for key, each in pages.items()}


def process_groups() -> dict[str, set[psutil.Process]]:
    """Return the job's processes on this host, by the keys of `MemoryWatch`."""
    driver = psutil.Process()
    below = _trees(driver.children())
    submitter = [parent for parent in driver.parents()[:1] if _is_java(parent)]  # under spark-submit the JVM starts us
    jvm = _trees(process for process in below if _is_java(process)) | (_trees(submitter) - below - {driver})
    return {"driver": {driver}, "jvm": jvm, "workers": below - jvm}


def _trees(roots: Iterable[psutil.Process]) -> set[psutil.Process]:
    """Return the processes and all processes below them."""
    found = set()
    for root in roots:
        found.add(root)
        # a process that has just ended has no processes below it
        with suppress(psutil.Error):
            found.update(root.children(recursive=True))
    return found


def _is_java(process: psutil.Process) -> bool:
    try:
        return str(process.name()).startswith("java")
    except psutil.Error:
        return False


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _pages(process: psutil.Process) -> _Pages:
    try:
        rollup = _kernel_bytes(Path(f"/proc/{process.pid}/smaps_rollup"))
        mapped = _kernel_bytes(Path(f"/proc/{process.pid}/status"))["RssFile"]
        return _Pages(rollup["Pss_Anon"] + rollup["Pss_Shmem"], mapped, process.exe())
    except (OSError, KeyError, psutil.Error):  # not Linux, an old kernel, another user's process, or it has just ended
        return _Pages(_share(process))


def _kernel_bytes(file: Path) -> dict[str, int]:
    """Return the entries of a file of `/proc` that are in kB, in bytes."""
    words = [line.split() for line in file.read_text().splitlines()]
    return {each[0].removesuffix(":"): int(each[1]) << 10 for each in words if each[-1:] == ["kB"]}


def _share(process: psutil.Process) -> int:
    """Return the process's own bytes and its share of common memory; for other users' processes, all resident bytes."""
    try:
        found = process.memory_full_info()
        return int(getattr(found, "pss", found.rss))
    except psutil.AccessDenied:
        return _resident(process)
    except psutil.Error:
        return 0
