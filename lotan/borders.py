"""Translation of errors: those of the planner, the messenger and Spark become errors of this package.

It happens at the borders between them, because none of them knows this package.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import TimeoutExpired
from tempfile import gettempdir

import messenger.errors
import planner.errors
from lotan.errors import ConfigurationError, EngineError, LotanError

_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(rf"{re.escape(_TRACEBACK)}\n(?:[ \t].*\n)+(\S.*)")

OUT_OF_MEMORY = 3  # Java's exit status when memory runs out, by the options in lotan.hosts.spark_session
JAVA_SECONDS = 0.2  # seconds that a process has to end after it has closed its connections


class PlanError(ConfigurationError, planner.errors.PlanError):
    """A model or option that cannot be planned."""


class MessengerError(EngineError, messenger.errors.MessengerError):
    """A failure between the driver, the Router and the workers; its cause is the messenger's own error."""


@contextmanager
def translated() -> Iterator[None]:
    """Translate errors of the planner and the messenger, within a block or a decorated function. Their words stay the same."""
    try:
        yield
    except (PlanError, MessengerError):
        raise  # an inner border has translated it
    except planner.errors.PlanError as error:
        raise PlanError(str(error)) from error
    except messenger.errors.MessengerError as error:
        raise MessengerError(str(error)) from error


@contextmanager
def spark_translated(kind: type[LotanError] = EngineError, what: str = "Spark failed") -> Iterator[None]:
    """Translate Spark's errors into one line, within a block or a decorated function.

    Args:
        kind: The type of the error, if Spark's Java process is still running.
        what: The action that was not possible, in words.

    Raises:
        EngineError: If the Java process has ended, whatever the error was.
    """
    try:
        yield
    except Exception as error:
        ours = isinstance(error, LotanError)
        sparks = type(error).__module__.split(".")[0] in ("py4j", "pyspark")
        status = _status_of_java() if ours or sparks or isinstance(error, ConnectionError) else None
        if status is not None:
            raise EngineError(f"Spark's Java process has ended with {_end_of_java(status)}") from error
        if not sparks:
            raise
        raise kind(f"{what}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """Return the first line of an error with a Java trace. If it announces a Python trace, add the error that Python raised."""
    lines = [
        line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()
    ]  # Py4J begins one with a colon
    found = next(
        (line for line in lines if "Exception" in line and "Py4J" not in line), lines[0] if lines else repr(error)
    )
    raised = _RAISED.findall(str(error)) if found.endswith(":") else []
    said = f"{found.removesuffix(_TRACEBACK).rstrip()} {raised[-1]}" if raised else found
    return f"{said}. {room()}" if os.strerror(errno.ENOSPC) in said else said


def room() -> str:
    """Return advice for a full disk, if the error does not say which disk is full."""
    return f"Free some space, where results go or below TMPDIR (now {gettempdir()}), where Spark and workers put their files"


def _end_of_java(status: int) -> str:
    """Return the meaning of Java's exit status, and advice."""
    why = (
        "it ran out of memory, see its last messages above: give it more by memory_limit or, without a limit, by "
        "spark.driver.memory"
        if status == OUT_OF_MEMORY
        else "its last messages are above, if there are any; the system may have killed it because memory was short"
    )
    return f"status {status}, and all its data is lost; {why}. Run again in a new process, with resume if it has checkpoints"


def _status_of_java() -> int | None:
    """Return the exit status of PySpark's Java process; None if it is running, or if PySpark started none."""
    gateway = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_gateway", None)
    process = getattr(gateway, "proc", None)
    if process is None:
        return None
    try:
        return int(process.wait(JAVA_SECONDS))  # its connections may break a moment before it ends
    except TimeoutExpired:
        return None
