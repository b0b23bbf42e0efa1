"""The Python of Spark's executors. It must have this package, for Spark's Python tasks import it there.

A session that Lotan starts has it. One that somebody else has started may run another Python, and training on blocks would
succeed there while the first prediction fails.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple
from weakref import WeakSet

from pyspark import SparkContext
from pyspark.sql import SparkSession

from lotan.borders import first_line
from lotan.errors import EngineError
from lotan.version import __version__

_CHECKED: WeakSet[SparkContext] = WeakSet()


class Found(NamedTuple):
    """The findings of a task in its Python."""

    program: str
    python: str  # the version of Python
    lotan: str | None  # the version of this package, or None without it
    problem: str = ""  # the error of its import


def check_executors(spark: SparkSession) -> None:
    """Check by one tiny task that executors have this version of the package. A session is checked once.

    Args:
        spark: The session.

    Raises:
        EngineError: If the package is missing or of another version there, or if Python does not run. The error has the
            line that helps.
    """
    context = spark.sparkContext
    if context in _CHECKED:
        return
    try:
        found = Found(*context.parallelize([0], 1).map(_look()).collect()[0])
    except Exception as error:  # Java's, or that of a Python that does not start
        raise EngineError(
            f"Spark's executors run no Python task: {_reason(error)}. {advice(context.master or '')}"
        ) from error
    if found.lotan != __version__:
        raise EngineError(f"{complaint(found)}. {advice(context.master or '')}")
    _CHECKED.add(context)


def complaint(found: Found) -> str:
    """Return what is wrong with a Python.

    >>> complaint(Found("/usr/bin/python3", "3.11.2", None, "No module named 'lotan'"))
    "The Python of Spark's executors, /usr/bin/python3 (3.11.2), cannot import lotan: No module named 'lotan'"
    """
    older = f"has lotan {found.lotan}, and this is {__version__}"
    what = f"cannot import lotan: {found.problem}" if found.lotan is None else older
    return f"The Python of Spark's executors, {found.program} ({found.python}), {what}"


def advice(master: str) -> str:
    """Return the line that gives executors the right Python.

    Args:
        master: The URL of Spark's master.
    """
    if master.startswith("local"):
        line = f'os.environ["PYSPARK_PYTHON"] = "{sys.executable}"'
        return f"Activate the environment before Spark starts, or begin with this line: {line}"
    return (
        f"Install lotan {__version__} on every host, and name its Python when the session starts: "
        "--conf spark.pyspark.python=PATH, or PYSPARK_PYTHON=PATH"
    )


def _look() -> Any:
    """Return the function that a task runs. It is sent by value, since the package that it looks for may be missing."""

    def look(_: int) -> tuple[str, str, str | None, str]:
        import sys

        here = sys.executable, sys.version.split()[0]
        try:
            from lotan.version import __version__ as version  # isort: skip

            import pyarrow  # noqa: F401  # like messenger, imported by Python tasks

            import messenger  # noqa: F401
        except Exception as error:  # of any type, for another package may have the name
            return *here, None, f"{error}"
        return *here, version, ""

    return look


def _reason(error: Exception) -> str:
    """Return the line of Spark's error that says what went wrong."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if "PYTHON_VERSION_MISMATCH" in line or line.startswith("ModuleNotFoundError")]
    return telling[0] if telling else first_line(error)
