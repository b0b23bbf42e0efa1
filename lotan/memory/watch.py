"""How much memory a run takes: that of its processes on this host, sampled while it runs."""

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
GROWTH = 1.01  # of resident memory since the last look at shares, before it is worth another


class MemoryWatch:
    """Samples memory while it is open: `with MemoryWatch() as watch: ...; watch.peak`.

    `peak` is in bytes, of the moment at which all of them together had most: "driver" is this process, "jvm" every Java
    process started by it or that started it, with all below them (executors, Spark's Python processes), "workers" its other
    children (DL workers, router). Processes on other hosts are not seen. A page that n of the job's processes share counts
    1/n in each, so that the sum is what the job takes, whatever else runs on this host and has the same libraries (on Linux;
    elsewhere the resident set, which counts such a page n times). Shares are read only when resident memory has grown to a
    new peak: the kernel walks every page for them.
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


@dataclass(frozen=True)
class _Pages:
    """Bytes of a process."""

    own: int  # its own, and its share of what it has in common with others of the job, such as shared memory
    mapped: int = 0  # of files, with whoever else maps them: libraries for the most part
    program: str = ""  # by whose processes the same files are mapped


def shares(groups: dict[str, set[psutil.Process]]) -> dict[str, int]:
    """Bytes now of these processes, see `MemoryWatch`.

    Proportional set sizes are those of the host: of torch's libraries, 240 MB, they leave out what other jobs share. So what
    is mapped of files counts as if nobody else did, and once for each program: as much as the one that maps most.
    """
    pages = {key: [*map(_pages, processes)] for key, processes in groups.items()}
    mapped: dict[str, list[int]] = defaultdict(list)
    for one in (one for each in pages.values() for one in each):
        mapped[one.program].append(one.mapped)
    once = {program: max(each) / (sum(each) or 1) for program, each in mapped.items()}
    return {key: sum(one.own + int(once[one.program] * one.mapped) for one in each) for key, each in pages.items()}


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
    except (OSError, KeyError, psutil.Error):  # not Linux, an old one, another user's, or ended meanwhile
        return _Pages(_share(process))


def _kernel_bytes(file: Path) -> dict[str, int]:
    """What a file of `/proc` says in kB."""
    words = [line.split() for line in file.read_text().splitlines()]
    return {each[0].removesuffix(":"): int(each[1]) << 10 for each in words if each[-1:] == ["kB"]}


def _share(process: psutil.Process) -> int:
    """Its own bytes and its share of what it has in common with others; of other users' processes, all that is resident."""
    try:
        found = process.memory_full_info()
        return int(getattr(found, "pss", found.rss))
    except psutil.AccessDenied:
        return _resident(process)
    except psutil.Error:
        return 0
