"""The one Scala object that Python calls: `lotan.Facade`, from the jar that `jvm/` builds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import lotan
from lotan.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAR = Path(lotan.__file__).parent / "jars" / f"lotan-{lotan.__version__}.jar"

BUILD = "make jar"
"""The command that builds the jar, in a checkout."""

NAMES = frozenset(("close", "column", "force", "load", "persist", "propagate", "release", "table", "version"))
"""What Python may call; a test compares it with what Facade.scala defines."""


def require_jar() -> Path:
    """Where the jar is.

    Raises:
        EngineError: it has not been built.
    """
    if not JAR.is_file():
        raise EngineError(f"the jar of the blocks engine is not at {JAR}; build it with: {BUILD}")
    return JAR


def facade(spark: SparkSession) -> Any:
    """The Scala object, in the JVM of a session.

    Raises:
        EngineError: the session has no jar of ours, or that of another version.
    """
    found = spark._jvm.lotan.Facade
    try:
        version = found.version()
    except TypeError:  # what py4j makes of a name that is no class: a package, which cannot be called
        raise EngineError(
            f"this Spark session has no lotan jar; make it with .config('spark.jars', '{require_jar()}')"
        ) from None
    if version != lotan.__version__:
        raise EngineError(
            f"this Spark session has the lotan jar of version {version}, the package is {lotan.__version__}; "
            f"make it with .config('spark.jars', '{require_jar()}')"
        )
    return found
