"""The jar that is built from `jvm/`: its place, and how a Spark session loads it."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from lotan.errors import EngineError
from lotan.version import __version__

JAR = Path(__file__).parents[1] / "jars" / f"lotan-{__version__}.jar"

BUILD = "make jar"
"""The command that builds the jar, in a checkout."""


def require_jar() -> Path:
    """Return the path of the jar.

    Raises:
        EngineError: If the jar has not been built.
    """
    if not JAR.is_file():
        raise EngineError(f"the jar of the blocks engine is not at {JAR}; build it with: {BUILD}")
    return JAR


def spark_jars() -> str | None:
    """Return the `spark.jars` of a session of our own; None if our jar is not built, so that Spark decides alone.

    It replaces the entry of spark-defaults.conf, whose jars come first in it. `--jars` in PYSPARK_SUBMIT_ARGS replaces both.
    """
    return ",".join(filter(None, [spark_default("spark.jars"), str(JAR)])) if JAR.is_file() else None


def spark_home() -> Path:
    """Return the home of the Spark that PySpark starts."""
    package = find_spec("pyspark")
    return Path(os.environ.get("SPARK_HOME") or Path(str(package and package.origin)).parent)


def spark_configuration() -> Path:
    """Return the folder of the configuration files of the Spark that PySpark starts. It need not exist."""
    return Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf")


def spark_defaults() -> list[str]:
    """Return the lines of spark-defaults.conf without comments and blank lines."""
    file = spark_configuration() / "spark-defaults.conf"
    lines = file.read_text().splitlines() if file.is_file() else []
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def spark_default(name: str) -> str:
    """Return the value of a setting in spark-defaults.conf: that of its last line, or an empty text."""
    return next(filter(None, (_value(line, name) for line in reversed(spark_defaults()))), "")


def _value(line: str, name: str) -> str:
    """Return the value of a setting, if a line is about it, or else an empty text.

    A line is `name value`, `name=value` or `name: value`.
    """
    rest = line.removeprefix(name)
    return rest.lstrip(" \t=:") if rest != line and rest[:1] in (" ", "\t", "=", ":") else ""
