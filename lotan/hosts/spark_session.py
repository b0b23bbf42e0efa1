"""The Spark session: the user's if there is one, or else one that is started here, within a deadline."""

from __future__ import annotations

import atexit
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psutil
from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER, FinalizerWorker
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from lotan.borders import first_line
from lotan.errors import ConfigurationError, EngineError
from lotan.hosts.jar import spark_default, spark_jars
from lotan.hosts.java_output import JavaOutput, has_own_logging, is_given, log_errors_alone, logging_options
from lotan.hosts.local_folder import LocalFolder
from lotan.settings.byte_sizes import byte_count
from planner.shares import MALLOC_ARENAS, MIB, STORAGE_SHARE

ROOT = Path(__file__).resolve().parents[2]
COLLECTOR = "-XX:+UseParallelGC -XX:NewRatio=4 -XX:-UseGCOverheadLimit"
"""Options of a JVM whose heap is capped: G1 leaves gaps between large arrays, which no collection closes."""
OWN_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
CAPPED_JAVA = (
    "-XX:MaxMetaspaceSize=256m -XX:ReservedCodeCacheSize=96m -XX:MaxDirectMemorySize=96m "
    "-Djdk.nio.maxCachedBufferSize=1048576"
)
"""Options of a JVM whose heap is capped: its memory beside the heap is capped too."""
DYING_JAVA = "-XX:+ExitOnOutOfMemoryError"
"""Ends a JVM that runs out of memory. It may have lost a thread that Spark waits for, and would hang."""
JAVA_SECONDS = 5.0  # seconds for a Java process to end once it has been told to
END_SECONDS = 0.5  # seconds for a Java process that has barely started to end by itself


@dataclass(frozen=True)
class Heap:
    """The heap of the JVM in which an embedded Spark runs."""

    bytes: int
    capped: bool = False  # True if memory beside the heap is capped too, and columns go to the disk early


@dataclass(frozen=True)
class SparkSettings:
    """The settings of a Spark session that is started here."""

    master: str | None = None  # None: the active session's master, or else local[*]
    heap: Heap | None = None  # None: Spark's own default, or that of spark-defaults.conf
    connect_seconds: float = 10.0  # deadline for the master's port to answer
    start_seconds: float = 120.0  # deadline for a first task to finish


@dataclass(eq=False)
class _Started:
    """A session that was started here. It stops when its last user closes it."""

    current: ClassVar[_Started | None] = None  # a process has one session
    # held while the session starts or stops; reentrant, because a finalizer may close it in the thread that opens it
    lock: ClassVar = threading.RLock()

    session: SparkSession
    users: int = 0
    own_python: bool = False  # True if its tasks run the Python of this process
    ended: bool = False

    def use(self) -> OpenSpark:
        """Count another user, such as another trainer of this process, and return the session for it."""
        self.users += 1
        _Started.current = self
        return OpenSpark(self.session, self)

    def leave(self) -> None:
        """Count one user less. The last one stops the session."""
        self.users -= 1
        if not self.users:
            self._stop()

    @classmethod
    def end(cls) -> None:
        """Stop the session of a process that ends, whoever uses it still. Nobody stops it again."""
        with cls.lock:
            if cls.current is not None:
                with suppress(Py4JError, OSError):  # Java may have died
                    cls.current._stop()

    def _stop(self) -> None:
        if self.ended:
            return
        self.ended = True
        if _Started.current is self:
            _Started.current = None
        self.session.stop()


@dataclass
class OpenSpark:
    """A session with one of its users. If it was started here, it stops after its last user."""

    session: SparkSession
    started: _Started | None = None

    def close(self) -> None:
        """Stop Spark if it was started here and nobody else uses it. This may be called twice."""
        with _Started.lock:
            started, self.started = self.started, None
            if started is not None:
                started.leave()


class JavaFolder:
    """The folder for all files that the JVM of this process writes: Spark's blocks, warehouse and temporary files.

    It exists until the process ends, not only for a session: a JVM keeps the `spark.local.dir` of its first session for all
    later ones. What a session writes is removed by Spark when the session stops.
    """

    path: ClassVar[Path | None] = None

    @classmethod
    def make(cls) -> Path:
        """Return the folder, which the first call makes."""
        if cls.path is None:
            folder = LocalFolder()
            atexit.register(_remove_after_java, folder)
            cls.path = folder.path
        return cls.path


def _remove_after_java(folder: LocalFolder) -> None:
    """Remove the folder after Java has ended, because Java would make it again for the last of its exit hooks."""
    _Started.end()
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        _free_no_more_objects(threading.enumerate())
        process.stdin.close()  # the end of its input tells Java to end
        with suppress(subprocess.TimeoutExpired):
            process.wait(JAVA_SECONDS)
    JavaOutput.end()
    folder.close()


def _free_no_more_objects(threads: Iterable[threading.Thread]) -> None:
    """End those threads in which Py4J tells Java of dead objects, which print an error if Java ends meanwhile."""
    for thread in threads:
        if isinstance(thread, FinalizerWorker):
            sends = bool(thread.deque)  # else it sleeps, for a second at most
            thread.deque.clear()
            thread.deque.append(SHUTDOWN_FINALIZER_WORKER)
            if sends:
                thread.join(JAVA_SECONDS)


def driver_heap(spark: SparkSession) -> int:
    """Return the largest size in bytes of the heap of this process's JVM."""
    return int(spark._jvm.java.lang.Runtime.getRuntime().maxMemory())  # type: ignore[union-attr]


def heap_of(spark: SparkSession) -> int:
    """Return the bytes of the heap that Spark's tasks share: that of this process's JVM, or of all executors on a cluster."""
    context = spark.sparkContext
    if re.match(r"local(\[|$)", context.master or ""):
        return driver_heap(spark)
    executors = int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver is one of them
    memory = spark.conf.get("spark.executor.memory", "1g") or "1g"
    memory += "m" * memory.isdecimal()  # Spark takes a number without a unit as mebibytes there
    return max(1, executors) * byte_count("spark.executor.memory", memory)


def storage_of(spark: SparkSession) -> int | None:
    """Return the bytes of columns for which a running Spark has room, in all executors; None if no executor is known yet."""
    context, only_active = spark.sparkContext._jsc, True
    executors = context.sc().statusStore().executorList(only_active).iterator()
    rooms: dict[str, int] = {}
    while executors.hasNext():
        one = executors.next()
        rooms[str(one.id())] = int(one.maxMemory())
    of_driver = rooms.pop("driver", None)  # it has no columns, unless it is alone
    if context.isLocal():
        return of_driver
    return sum(rooms.values()) or None


def local_folders(spark: SparkSession | None) -> tuple[str, list[str]]:
    """Return the folders of Spark's local disk in this process's JVM, after the name of the setting that has them.

    Args:
        spark: The running session; None: one that would be started here.
    """
    named = os.environ.get("SPARK_LOCAL_DIRS")
    if spark is None:
        return ("SPARK_LOCAL_DIRS", named.split(",")) if named else ("TMPDIR", [tempfile.gettempdir()])
    jvm: Any = spark._jvm
    folders = jvm.org.apache.spark.util.Utils.getConfiguredLocalDirs(spark.sparkContext._jsc.sc().getConf())
    return "SPARK_LOCAL_DIRS" if named else "spark.local.dir", [str(folder) for folder in folders]


def active_session() -> SparkSession | None:
    """Return the running session, whichever thread has started it; None if there is none."""
    active = SparkSession.getActiveSession()  # None in a thread that has not used the session yet
    if active is None and SparkContext._active_spark_context is not None:
        active = SparkSession.builder.getOrCreate()
    return active if active is not None and active.sparkContext._jsc is not None else None


def has_own_python(spark: SparkSession) -> bool:
    """Return True for a session that was started here and whose tasks run the Python of this process."""
    started = _Started.current
    return started is not None and started.own_python and started.session.sparkContext is spark.sparkContext


def open_spark(settings: SparkSettings | None = None) -> OpenSpark:
    """Return the active session as it is, or a new one.

    Raises:
        ConfigurationError: If the active session has another master than the settings.
        EngineError: If the master does not answer, or gives no executors before the deadline.
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
        # under spark-submit, whose options decide everything
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
    """Find out in seconds whether the master answers, which Spark itself would retry for minutes."""
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
        except (OSError, UnicodeError) as error:  # a label of a host name may be empty or too long
            tried.append(f"{place}: {error}")
    raise EngineError(
        f"no Spark master answers at {master} ({'; '.join(tried)}). Is it running, and reachable from here?"
    )


def _start(master: str, settings: SparkSettings) -> OpenSpark:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        dict.fromkeys([str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    )
    options = _options(master, settings.heap)
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
        if SparkContext._gateway is None:  # PySpark does not know the Java process that it was about to start
            _end([child for child in psutil.Process().children() if child not in before])
        if isinstance(error, Exception):
            raise EngineError(f"Spark with master {master!r} did not start: {first_line(error)}") from error
        raise
    own = os.environ["PYSPARK_PYTHON"] == sys.executable and _is_here(master)
    return _Started(session, own_python=own).use()


def _options(master: str, heap: Heap | None) -> dict[str, str]:
    """Return the configuration of a session of ours: see `_start`.

    Args:
        master: The URL of the master.
        heap: The heap of Java, or None for Spark's own default.
    """
    folder = JavaFolder.make()
    options = {
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
        # Most of the bytes moved are floats, which hardly get smaller by compression: a shuffled propagate takes 0.39
        # instead of 0.46 processor seconds without it.
        "spark.shuffle.compress": "false",
        # On rows, a training pass and an evaluation run a hundred generated classes. With a cache of 100, the default,
        # dozens would be compiled again in every pass.
        "spark.sql.codegen.cache.maxEntries": "1000",
    }
    if SparkContext._gateway is None:
        given = spark_default("spark.driver.defaultJavaOptions")
        java = [DYING_JAVA, *logging_options(), *filter(None, [given]), f'"-Djava.io.tmpdir={folder}"']
        options["spark.driver.defaultJavaOptions"] = " ".join(java)
    if _is_here(master):
        options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if (jars := spark_jars()) is not None:
        options["spark.jars"] = jars
    # PYSPARK_SUBMIT_ARGS has precedence anyway
    if heap is not None and (heap.capped or not spark_default("spark.driver.memory")):
        options["spark.driver.memory"] = f"{heap.bytes // MIB}m"
    if heap is not None and heap.capped:
        os.environ.setdefault("MALLOC_ARENA_MAX", MALLOC_ARENAS)  # for the processes that are started from here
        options |= {
            "spark.driver.extraJavaOptions": _capped_java(),
            "spark.memory.fraction": str(STORAGE_SHARE),
            # vectored reading loads a column of a row group at once, into memory beside the heap
            "spark.hadoop.parquet.hadoop.vectored.io.enabled": "false",
        }
    return options


def _capped_java() -> str:
    """Return the options of a JVM whose heap is capped, with those that the user has configured.

    Java does not start with two collectors, so that of the user's options is the only one.
    """
    given = spark_default("spark.driver.extraJavaOptions")
    own = is_given(OWN_COLLECTOR, (given, spark_default("spark.driver.defaultJavaOptions")))
    return " ".join(filter(None, ["" if own else COLLECTOR, CAPPED_JAVA, given]))


def _end(processes: list[psutil.Process]) -> None:
    """End processes and all processes below them: Java, which would wait for commands for ever, or the script that starts it."""
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
    """Run a task with a deadline, because a cluster without free executors lets an application wait for ever."""
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
