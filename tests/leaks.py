"""The watch over what tests leave behind: child processes, listening sockets, temporary files, persisted frames, views.

`Snapshot.take()` runs before and after; what the second has and the first had not is a leak. The JVM of the shared Spark
session, with its folder, and the Python daemon that it forks are the suite's own, and so is what `Snapshot.owning` saw start.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import psutil
from pyspark import SparkContext
from pyspark.sql import SparkSession

from lotan.hosts.spark_session import JavaFolder

SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Snapshot:
    """All that is there now.

    Attributes:
        processes: child processes, also those whose command line cannot be read yet because they have only just been started.
        found: everything else, as printable names.
    """

    own: ClassVar[set[psutil.Process | str]] = set()  # the suite's: what fixtures of the whole session have started

    processes: frozenset[psutil.Process]
    found: frozenset[str]

    @classmethod
    def take(cls) -> Snapshot:
        return cls(frozenset(_children()), frozenset([*_sockets(), *_files(), *_frames()]))

    @classmethod
    @contextmanager
    def owning(cls) -> Iterator[None]:
        """Takes all that is started within it as the suite's own."""
        before = cls.take()
        yield
        after = cls.take()
        cls.own |= (after.processes - before.processes) | (after.found - before.found)

    def leaks_since(self, deadline: float = 20.0) -> list[str]:
        """What is there beyond this snapshot, once what is on its way out has had `deadline` seconds to go."""
        end = time.monotonic() + deadline
        while leaked := self._beyond(self.take()):
            if time.monotonic() > end:
                return leaked
            threading.Event().wait(0.05)
        return []

    def _beyond(self, later: Snapshot) -> list[str]:
        started = later.processes - self.processes - self.own
        processes = [f"process {child.pid}: {line}" for child in started if (line := _command_line(child))]
        return sorted([*processes, *(later.found - self.found - self.own)])


def _children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _command_line(process: psutil.Process) -> str:
    """Empty for what is gone, or is the suite's own: Spark's JVM and daemon, and multiprocessing's tracker."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return ""
    line = " ".join(words)
    own = (
        "org.apache.spark.deploy.SparkSubmit",
        "pyspark.daemon",
        "pyspark/daemon",
        "multiprocessing.resource_tracker",
    )
    return "" if any(mark in line for mark in own) else line[:200]


def _sockets() -> list[str]:
    connections = psutil.Process().net_connections(kind="inet")
    return [f"listening socket {c.laddr.ip}:{c.laddr.port}" for c in connections if c.status == psutil.CONN_LISTEN]


def _files() -> list[str]:
    folders = [Path(tempfile.gettempdir()), SHARED_MEMORY]
    found = [path for folder in folders if folder.is_dir() for path in folder.glob("*lotan*")]
    return [f"file {path}" for path in found if path != JavaFolder.path]


def _frames() -> list[str]:
    context = SparkContext._active_spark_context
    session = SparkSession._instantiatedSession
    if context is None or session is None:
        return []
    shared = session._jsparkSession.sharedState()
    frames = [f"persisted RDD {key}" for key in context._jsc.getPersistentRDDs()]
    views = shared.globalTempViewManager().listViewNames("*").mkString(",")
    frames += [f"global temporary view {name}" for name in views.split(",") if name]
    return frames if shared.cacheManager().isEmpty() else [*frames, "a cached DataFrame"]
