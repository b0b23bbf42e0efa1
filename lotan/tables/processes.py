"""The processes of row tables on this host: they are started, watched, started again with their files, and always stopped."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from lotan.errors import EngineError
from lotan.hosts.session import ROOT, read_line
from messenger.endpoint import Endpoint

log = logging.getLogger(__name__)

START_SECONDS = 60.0  # deadline for a table to print its address
STOP_SECONDS = 5.0  # deadline for a table to end before it is killed
WATCH_SECONDS = 0.1  # seconds between two looks at the processes
RESPAWNS = 8  # tables that are started again, over the life of a run


@dataclass
class _Table:
    """A table that runs in a process of its own."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes]
    address: str = ""

    def free(self) -> None:
        """Close our ends of the process's pipes."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class TableProcesses:
    """Row tables in processes of their own. Whoever makes them closes them.

    Args:
        count: the number of tables.
        limit: the most bytes of rows and timestamps in each; None: any number.

    Raises:
        EngineError: If a table does not start.
    """

    def __init__(self, count: int, limit: int | None = None) -> None:
        self._limit = limit
        self.restarts = 0  # tables that were started again so far
        self._stopping, self._lock = threading.Event(), threading.Lock()
        self._tables: list[_Table] = []
        self._watcher: threading.Thread | None = None
        try:
            for number in range(count):
                folder = Path(tempfile.mkdtemp(prefix="lotan-table-"))
                self._tables.append(_Table(f"table-{number}", folder, self._spawn(folder, "tcp://127.0.0.1:*")))
            for table in self._tables:
                table.address = self._address(table)
        except BaseException:
            self.close()
            raise
        self._watcher = threading.Thread(target=self._watch, name="lotan-table-watch", daemon=True)
        self._watcher.start()

    @property
    def endpoints(self) -> list[Endpoint]:
        """The addresses of the tables."""
        return [Endpoint(table.address) for table in self._tables]

    @property
    def pids(self) -> list[int]:
        """The process ids of the tables."""
        with self._lock:
            return [table.process.pid for table in self._tables]

    def close(self) -> None:
        """Stop all tables, and delete their files. This may be called twice."""
        self._stopping.set()
        if self._watcher is not None:
            self._watcher.join()
        for table in self._tables:
            if table.process.stdin is not None:
                table.process.stdin.close()
        for table in self._tables:
            try:
                table.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                table.process.kill()
                table.process.wait()
            table.free()
            shutil.rmtree(table.folder, ignore_errors=True)

    def _spawn(self, folder: Path, bind: str) -> subprocess.Popen[bytes]:
        words = ["messenger.table_process", "--exit-with-parent", "--bind", bind, "--folder", str(folder)]
        words += [] if self._limit is None else ["--memory", str(self._limit)]
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environment.get("PYTHONPATH")])])
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=subprocess.PIPE,  # the end of this stream tells the table that we are gone
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is handled by this process alone
        )

    def _address(self, table: _Table) -> str:
        assert table.process.stdout is not None
        line = read_line(table.process.stdout, START_SECONDS)
        if not line:
            raise EngineError(
                f"the row table {table.name} printed no address within {START_SECONDS:.0f} s; see its output"
            )
        return line

    def _watch(self) -> None:
        while not self._stopping.wait(WATCH_SECONDS):
            for table in self._tables:
                if table.process.poll() is not None:
                    self._replace(table)

    def _replace(self, table: _Table) -> None:
        """Start a table again that has ended. It has its rows from its files, and its user sends again what it lacks."""
        if self.restarts >= RESPAWNS:
            return
        self.restarts += 1
        log.warning(
            "row table %s: its process ended with status %d; another takes its place with its files, and nothing is lost%s",
            table.name,
            table.process.returncode,
            "" if self.restarts < RESPAWNS else ". It is the last one that is started again",
        )
        table.free()
        try:
            with self._lock:
                table.process = self._spawn(table.folder, table.address)
            self._address(table)
        except (OSError, EngineError) as error:
            log.error("cannot start another row table %s: %s", table.name, error)
