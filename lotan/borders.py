"""What the planner, the messenger and Spark raise, as errors of this package: said at the borders, for none of them knows it."""

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

OUT_OF_MEMORY = 3  # the status with which Java ends, as it is told to in lotan.hosts.spark_session
JAVA_SECONDS = 0.2  # that a process which has closed its connections is given to end


class PlanError(ConfigurationError, planner.errors.PlanError):
    """A model or option that cannot be planned."""


class MessengerError(EngineError, messenger.errors.MessengerError):
    """A failure between the driver, the Router and the workers; its cause has the messenger's own type."""


@contextmanager
def translated() -> Iterator[None]:
    """Within the block, or the function it decorates: the two rooms' errors leave as those above, words unchanged."""
    try:
        yield
    except (PlanError, MessengerError):
        raise  # from a border further in
    except planner.errors.PlanError as error:
        raise PlanError(str(error)) from error
    except messenger.errors.MessengerError as error:
        raise MessengerError(str(error)) from error


@contextmanager
def spark_translated(kind: type[LotanError] = EngineError, what: str = "Spark failed") -> Iterator[None]:
    """Within the block, or the function it decorates: what Spark raises leaves as one line.

    Args:
        kind: of the error, where Spark's Java process runs on.
        what: was not possible, in words.

    Raises:
        EngineError: the Java process has ended, whatever came of that.
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
    """The first line of an error that goes on with a Java trace; where that announces a Python trace, with what Python raised."""
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
    """What to do where a disk is full, and it is not said which."""
    return f"Free some space, where results go or below TMPDIR (now {gettempdir()}), where Spark and workers put their files"


def _end_of_java(status: int) -> str:
    """What it means, and what to do."""
    why = (
        "it had no memory left, see its last words above: give it more by memory_limit or, where there is none, by "
        "spark.driver.memory"
        if status == OUT_OF_MEMORY
        else "its last words are above, if it had any; it may have been killed for want of memory"
    )
    return f"status {status}, and with it all that it held; {why}. Run again in a new process, with resume if it has checkpoints"


def _status_of_java() -> int | None:
    """Of the process that PySpark started, if it has ended; None also where PySpark started none."""
    gateway = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_gateway", None)
    process = getattr(gateway, "proc", None)
    if process is None:
        return None
    try:
        return int(process.wait(JAVA_SECONDS))  # its connections may break a moment before
    except TimeoutExpired:
        return None
