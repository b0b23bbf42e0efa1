"""A Spark session: the user's where there is one, else one of our own, within a deadline."""

from __future__ import annotations

import atexit
import os
import re
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import psutil
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from lotan.borders import first_line
from lotan.errors import ConfigurationError, EngineError
from lotan.hosts.jar import spark_default, spark_jars
from lotan.hosts.java_output import JavaOutput, has_own_logging, log_errors_alone, logging_options
from lotan.hosts.local_folder import LocalFolder
from lotan.settings.byte_sizes import byte_count
from planner.shares import MALLOC_ARENAS, MIB, STORAGE_SHARE

ROOT = Path(__file__).resolve().parents[2]
CAPPED_JAVA = (
    # G1 leaves gaps between large arrays that no collection closes
    "-XX:+UseParallelGC -XX:NewRatio=4 -XX:-UseGCOverheadLimit "
    "-XX:MaxMetaspaceSize=256m -XX:ReservedCodeCacheSize=96m -XX:MaxDirectMemorySize=96m -Djdk.nio.maxCachedBufferSize=1048576"
)
"""Of a JVM whose heap is capped: what it has beside the heap is capped too."""
DYING_JAVA = "-XX:+ExitOnOutOfMemoryError"
"""A JVM that goes on without memory may have lost a thread that Spark waits for, and then hangs."""
JAVA_SECONDS = 5.0  # for one that has been told to end
END_SECONDS = 0.5  # for a Java process that has barely started to end in order


@dataclass(frozen=True)
class Heap:
    """Of an embedded Spark's JVM."""

    bytes: int
    capped: bool = False  # whether what the JVM has beside it is capped too, and columns go to the disk early


@dataclass(frozen=True)
class SparkSettings:
    """How to start Spark where none runs."""

    master: str | None = None  # None: the active session, else local[*]
    heap: Heap | None = None  # None: Spark's own default, or what spark-defaults.conf says
    connect_seconds: float = 10.0  # for the master's port to answer
    start_seconds: float = 120.0  # for the first task to have run


@dataclass(eq=False)
class _Started:
    """A session that was started here, until the last of those who use it has closed it."""

    current: ClassVar[_Started | None] = None  # there is one session in a process
    lock: ClassVar = threading.RLock()  # while it starts or stops; a finalizer may close what its own thread is opening

    session: SparkSession
    folder: LocalFolder | None = None
    users: int = 0

    def use(self) -> OpenSpark:
        """For one user more, such as another trainer of this process."""
        self.users += 1
        _Started.current = self
        return OpenSpark(self.session, self)

    def leave(self) -> None:
        """One user less; the last one stops it."""
        self.users -= 1
        if self.users:
            return
        if _Started.current is self:
            _Started.current = None
        try:
            self.session.stop()
        finally:
            if self.folder is not None:
                self.folder.close()


@dataclass
class OpenSpark:
    """A session, and what is to be stopped when nobody uses it any more, if it was started here."""

    session: SparkSession
    started: _Started | None = None

    def close(self) -> None:
        """Stop Spark if it was started for us, and for nobody else who still uses it. May be called twice."""
        with _Started.lock:
            started, self.started = self.started, None
            if started is not None:
                started.leave()


class JavaFolder:
    """Of the temporary files of the JVM that this process starts: it ends with the process, not with a session."""

    path: ClassVar[Path | None] = None

    @classmethod
    def option(cls) -> str:
        """Have the JVM use it."""
        if cls.path is None:
            folder = LocalFolder()
            atexit.register(_remove_after_java, folder)
            cls.path = folder.path
        return f'"-Djava.io.tmpdir={cls.path}"'


def _remove_after_java(folder: LocalFolder) -> None:
    """Java makes its folder anew if it is gone before the last of its hooks has run."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.stdin.close()  # which tells it to end
        with suppress(subprocess.TimeoutExpired):
            process.wait(JAVA_SECONDS)
    JavaOutput.end()
    folder.close()


def driver_heap(spark: SparkSession) -> int:
    """Bytes that the heap of this process's JVM may grow to."""
    return int(spark._jvm.java.lang.Runtime.getRuntime().maxMemory())  # type: ignore[union-attr]


def heap_of(spark: SparkSession) -> int:
    """Bytes of the heap that Spark's tasks share: of this process's JVM, or on a cluster of all executors."""
    context = spark.sparkContext
    if re.match(r"local(\[|$)", context.master or ""):
        return driver_heap(spark)
    executors = int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver is among them
    return max(1, executors) * byte_count("spark.executor.memory", spark.conf.get("spark.executor.memory", "1g"))


def active_session() -> SparkSession | None:
    """The session that there is, whichever thread started it, if it has not been stopped."""
    active = SparkSession.getActiveSession()  # none in a thread that has not used it yet
    if active is None and SparkContext._active_spark_context is not None:
        active = SparkSession.builder.getOrCreate()
    return active if active is not None and active.sparkContext._jsc is not None else None


def open_spark(settings: SparkSettings | None = None) -> OpenSpark:
    """The active session as it is, or a new one.

    Raises:
        ConfigurationError: another master is asked for than that of the active session.
        EngineError: the master does not answer, or gives no executors in time.
    """
    with _Started.lock:
        return _open(settings or SparkSettings())


def _open(settings: SparkSettings) -> OpenSpark:
    active = active_session()
    if active is not None:
        running = active.sparkContext.master
        if settings.master not in (None, running):
            raise ConfigurationError(
                f"master is {settings.master!r}, but a Spark session with master {running!r} is active. "
                "Stop that session first, or leave master out."
            )
        started = _Started.current
        if started is not None and started.session.sparkContext is active.sparkContext:
            return started.use()
        return OpenSpark(active)
    if settings.master is None and "PYSPARK_GATEWAY_PORT" in os.environ:
        # under spark-submit, whose options settle everything
        return _Started(SparkSession.builder.getOrCreate()).use()
    master = settings.master or "local[*]"
    _check_reachable(master, settings.connect_seconds)
    opened = _start(master, settings)
    try:
        _run_a_task(opened.session, settings.start_seconds)
    except BaseException:
        opened.close()
        raise
    return opened


def _check_reachable(master: str, seconds: float) -> None:
    """Find out in seconds what Spark itself retries for minutes."""
    if not master.startswith("spark://"):
        return
    tried = []
    for place in master.removeprefix("spark://").split(","):
        host, separator, port = place.rpartition(":")
        if not separator or not port.isdecimal() or int(port) > 65535:
            raise ConfigurationError(f"master {master!r} is not of the form spark://host:port")
        try:
            socket.create_connection((host, int(port)), timeout=seconds).close()
            return
        except (OSError, UnicodeError) as error:  # no name of a host may have a label that is empty or long
            tried.append(f"{place}: {error}")
    raise EngineError(
        f"no Spark master answers at {master} ({'; '.join(tried)}). Is it running, and reachable from here?"
    )


def _start(master: str, settings: SparkSettings) -> OpenSpark:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    path = os.pathsep.join(
        dict.fromkeys([str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    )
    os.environ["PYTHONPATH"] = path
    folder = LocalFolder()
    atexit.register(folder.close)  # for a process that ends before it could close
    options = {
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",
        "spark.executorEnv.PYTHONPATH": path,
        "spark.sql.warehouse.dir": str(folder.path / "warehouse"),
        "spark.local.dir": str(folder.path),
        # what moves most are floats, which hardly get smaller: a shuffled propagate takes 0.39 instead of 0.46 processor seconds
        "spark.shuffle.compress": "false",
        # on rows, a training pass and an evaluation run a hundred generated classes: with 100, the default, dozens are compiled
        # anew in every pass
        "spark.sql.codegen.cache.maxEntries": "1000",
    }
    if SparkContext._gateway is None:
        given = spark_default("spark.driver.defaultJavaOptions")
        java = [DYING_JAVA, *logging_options(), *filter(None, [given]), JavaFolder.option()]
        options["spark.driver.defaultJavaOptions"] = " ".join(java)
    if _is_here(master):
        options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if (jars := spark_jars()) is not None:
        options["spark.jars"] = jars
    # what PYSPARK_SUBMIT_ARGS says has precedence anyway
    if settings.heap is not None and (settings.heap.capped or not spark_default("spark.driver.memory")):
        options["spark.driver.memory"] = f"{settings.heap.bytes // MIB}m"
    if settings.heap is not None and settings.heap.capped:
        os.environ.setdefault("MALLOC_ARENA_MAX", MALLOC_ARENAS)  # of the processes started from here
        options |= {
            "spark.driver.extraJavaOptions": CAPPED_JAVA,
            "spark.memory.fraction": str(STORAGE_SHARE),
            # reads a column of a row group at once, into memory beside the heap
            "spark.hadoop.parquet.hadoop.vectored.io.enabled": "false",
        }
    builder = SparkSession.builder.master(master).appName("lotan")
    for name, value in options.items():
        builder = builder.config(name, value)
    before = psutil.Process().children()
    try:
        if SparkContext._gateway is None:
            JavaOutput.launch(SparkConf().setMaster(master).setAppName("lotan").setAll(list(options.items())))
        if not has_own_logging():
            log_errors_alone(SparkContext._jvm)
        session = builder.getOrCreate()
    except BaseException as error:
        if SparkContext._gateway is None:  # PySpark knows nothing of the Java process that it was about to start
            _end([child for child in psutil.Process().children() if child not in before])
        folder.close()
        if isinstance(error, Exception):
            raise EngineError(f"Spark with master {master!r} did not start: {first_line(error)}") from error
        raise
    return _Started(session, folder).use()


def _end(processes: list[psutil.Process]) -> None:
    """End processes and all below them: Java, which would wait for ever to be told what to do, or the script that starts it."""
    ended = []
    for process in processes:
        with suppress(psutil.Error):
            ended += [process, *process.children(recursive=True)]
    for process in ended:
        with suppress(psutil.Error):
            process.terminate()
    for process in psutil.wait_procs(ended, END_SECONDS)[1]:
        with suppress(psutil.Error):
            process.kill()


def _run_a_task(session: SparkSession, seconds: float) -> None:
    """A cluster without free executors takes an application and lets it wait for ever: find out."""
    context, late = session.sparkContext, threading.Event()

    def give_up() -> None:
        late.set()
        context.cancelAllJobs()

    timer = threading.Timer(seconds, give_up)
    timer.start()
    try:
        session.range(1).count()
    except Exception as error:
        if late.is_set():
            raise EngineError(
                f"Spark with master {context.master!r} ran no task within {seconds:.0f} s (start_seconds). "
                "Does it have a worker with free cores and enough memory?"
            ) from None
        raise EngineError(f"Spark with master {context.master!r} cannot run a task: {first_line(error)}") from error
    finally:
        timer.cancel()


def _is_here(master: str) -> bool:
    return re.match(r"local(\[|-cluster|$)|spark://(127\.|localhost:)", master) is not None
