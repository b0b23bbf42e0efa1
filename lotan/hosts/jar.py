"""The jar that `jvm/` is built into: where it lies, and how a Spark session gets it."""

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
    """Where the jar is.

    Raises:
        EngineError: it has not been built.
    """
    if not JAR.is_file():
        raise EngineError(f"the jar of the blocks engine is not at {JAR}; build it with: {BUILD}")
    return JAR


def spark_jars() -> str | None:
    """The `spark.jars` of a session of our own; None where our jar is not built and Spark decides alone.

    It replaces that of spark-defaults.conf, whose jars come first in it; `--jars` in PYSPARK_SUBMIT_ARGS replaces both.
    """
    return ",".join(filter(None, [spark_default("spark.jars"), str(JAR)])) if JAR.is_file() else None


def spark_home() -> Path:
    """Of the Spark that PySpark starts."""
    package = find_spec("pyspark")
    return Path(os.environ.get("SPARK_HOME") or Path(str(package and package.origin)).parent)


def spark_configuration() -> Path:
    """The folder of the configuration files of that Spark, which need not be there."""
    return Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf")


def spark_defaults() -> list[str]:
    """The lines of spark-defaults.conf, comments and blank ones left out."""
    file = spark_configuration() / "spark-defaults.conf"
    lines = file.read_text().splitlines() if file.is_file() else []
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def spark_default(name: str) -> str:
    """What spark-defaults.conf gives a setting, in its last line for it; nothing where there is none."""
    return next(filter(None, (_value(line, name) for line in reversed(spark_defaults()))), "")


def _value(line: str, name: str) -> str:
    """What a line gives a setting; nothing where it is of another. A line is `name value`, `name=value` or `name: value`."""
    rest = line.removeprefix(name)
    return rest.lstrip(" \t=:") if rest != line and rest[:1] in (" ", "\t", "=", ":") else ""
