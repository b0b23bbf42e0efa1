"""The one Spark action of a pass: it is run, watched, and repeated if that may help. A failure becomes one sentence."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lotan.errors import EngineError, PassLostError
from messenger import errors

HOPELESS = frozenset(
    kind.__name__
    for kind in (
        errors.RemoteError,
        errors.NoWorkerError,
        errors.ConflictError,
        errors.DeadlineError,
        errors.FrameError,
        errors.RefusedError,
    )
) | {"OrderError"}
"""Reasons of a `PipeFailed` for which another attempt is in vain, or that have waited for their deadline already."""

GROUP, DESCRIPTION, INTERRUPT = "spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"
CALL_SITE = "callSite.short"
"""Spark's properties of a thread, which describe the jobs that it starts and the RDDs that it makes."""

INTERRUPTED = "cancellation of all jobs"
"""Spark's words for jobs that PySpark's handler of SIGINT has cancelled."""

_CANCELLED = re.compile(r"Job \d+ cancelled[^\n]*")
"""Spark's words for a job that somebody has cancelled, in the UI or by its group. It is not tried again."""
_ROWS_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
"""Spark's name for the loss of rows that no lineage can compute again, such as learned ones."""
_PIPE_FAILED = re.compile(r"PipeFailed: ((\w+): .*)")
_ERROR_LINE = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt|Exit)\b.*)$", re.MULTILINE)


def force(
    context: SparkContext, action: Callable[[], None], description: str, attempts: int, stall_seconds: float
) -> None:
    """Run an action that computes the lineage of a pass.

    Running the same lineage again repeats no effect: a partition's commit counts once, and persisted rows are not
    computed again.

    Args:
        context: The context of the session that the action runs in.
        action: A function that starts Spark jobs from this thread, and returns when they have ended.
        description: The description for Spark's user interface.
        attempts: The number of attempts. On `local[N]`, Spark itself never tries a task again.
        stall_seconds: Seconds without a task starting or ending after which the pass is given up.

    Raises:
        PassLostError: If persisted rows are gone, or if the same task fails every time. The message is one sentence.
        EngineError: If another pass would fail for the same reason.
        KeyboardInterrupt: After Ctrl-C, even if Python has lost it in a callback of its garbage collector.
    """
    for attempt in range(1, attempts + 1):
        try:
            _run(context, action, description, stall_seconds)
            return
        except (PySparkException, Py4JError) as error:
            if INTERRUPTED in str(error):
                raise KeyboardInterrupt from None
            if cancelled := _CANCELLED.search(str(error)):
                raise EngineError(
                    f"{description}: {cancelled[0].strip()}. With a checkpoint_dir, resume goes on from the last epoch"
                ) from None
            if _ROWS_LOST in str(error):
                raise EngineError(
                    f"{description}: learned rows are gone with the executors that had them. With a checkpoint_dir, resume "
                    "goes on from the last epoch"
                ) from None
            reason, hopeless = _reason(str(error))
            if hopeless or attempt == attempts:
                kind = EngineError if hopeless else PassLostError
                raise kind(f"{description} failed in attempt {attempt} of {attempts}: {reason}") from None


def _run(context: SparkContext, action: Callable[[], None], description: str, stall_seconds: float) -> None:
    with named_jobs(context, description) as tag, _Watchdog(context, tag, stall_seconds) as watchdog:
        try:
            action()
        except (PySparkException, Py4JError):
            if watchdog.fired:
                raise EngineError(
                    f"{description}: no task started or ended for {stall_seconds:.0f} s (stall_seconds). "
                    "Does the cluster have free executors, with memory for this application?"
                ) from None
            raise


@contextmanager
def named_jobs(context: SparkContext, description: str) -> Iterator[str]:
    """Name the jobs that this thread starts, and cancel them if the block is left early, for example by Ctrl-C.

    The jobs have a tag of their own, which the context yields. Their group is that of the thread, so that a notebook
    can cancel the jobs of a cell. If the thread has none, they get a group that begins with the description.
    """
    tag, title = f"lotan-{uuid4().hex}", description.partition(":")[0]
    before = {name: context.getLocalProperty(name) for name in (GROUP, DESCRIPTION, INTERRUPT, CALL_SITE)}
    if before[GROUP] is None:
        context.setLocalProperty(GROUP, f"lotan-{tag[6:14]}: {title}")
    context.setLocalProperty(DESCRIPTION, f"lotan: {description}")
    context.setLocalProperty(INTERRUPT, "true")
    name_operator(context, title)
    context.addJobTag(tag)
    try:
        yield tag
    except BaseException:
        context.cancelJobsWithTag(tag)
        raise
    finally:
        context.removeJobTag(tag)
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]  # PySpark's type lacks None, which unsets it


def name_operator(context: SparkContext, name: str | None) -> None:
    """Set the name that Spark's UI shows for RDDs, stages and drawn boxes of this thread; None: the line of code."""
    context.setLocalProperty(CALL_SITE, name)  # type: ignore[arg-type]  # PySpark's type lacks None, which unsets it


class _Watchdog:
    """Cancels jobs in which no task starts or ends for some time."""

    def __init__(self, context: SparkContext, tag: str, stall_seconds: float) -> None:
        self.fired = False
        self._context, self._tag, self._seconds = context, tag, stall_seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lotan-watchdog", daemon=True)

    def __enter__(self) -> _Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(timeout=5)

    def _watch(self) -> None:
        seen, still = self._tasks(), 0.0
        step = min(5.0, self._seconds / 4)
        while not self._done.wait(step):
            now = self._tasks()
            still = still + step if now == seen else 0.0
            seen = now
            if still >= self._seconds:
                self.fired = True
                self._context.cancelJobsWithTag(self._tag)
                return

    def _tasks(self) -> tuple[tuple[int, int, int], ...]:
        """Return the number of running, completed and failed tasks of each active stage."""
        tracker = self._context.statusTracker()
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return tuple((i.numActiveTasks, i.numCompletedTasks, i.numFailedTasks) for i in infos if i is not None)


def _reason(text: str) -> tuple[str, bool]:
    """Return the root cause in Spark's report as one line, and True if another attempt is in vain."""
    found = _PIPE_FAILED.search(text)
    if found:
        return found[1].strip(), found[2] in HOPELESS
    lines = [line.strip() for line in _ERROR_LINE.findall(text)]
    return (lines[-1] if lines else text.strip().splitlines()[0] if text.strip() else "Spark gave no reason"), False


def shuffle_bytes(context: SparkContext) -> int:
    """Return the bytes that all executors, past and present, have written for shuffles since Spark started."""
    executors = context._jsc.sc().statusStore().executorList(False)
    return sum(executors.apply(place).totalShuffleWrite() for place in range(executors.length()))


def free_java_objects() -> None:
    """Let Java free objects that Python does not refer to any more.

    Py4J's objects refer to themselves, so only Python's garbage collector finds that they are dead. Until then, Java
    holds the objects that they stand for, such as all rows of a graph that was sent to Spark. It is Java's memory that
    fills up, not Python's.
    """
    gc.collect()


def spark_runs(session: SparkSession) -> bool:
    """Return True if the session has not been stopped and its JVM is alive."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except Exception:  # there is no context, or the JVM does not answer
        return False
