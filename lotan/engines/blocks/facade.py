"""The only Scala object that Python calls: `lotan.Facade`, from the jar that is built from `jvm/`.

A test compares the methods it defines with those that this package calls on a `facade` or `scala`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from lotan.errors import EngineError
from lotan.hosts.jar import BUILD, require_jar
from lotan.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def facade(spark: SparkSession) -> Any:
    """Return the Scala object in the JVM of a session.

    Raises:
        EngineError: If the session has no jar of ours, or the jar of another version.
    """
    found = cast(Any, spark._jvm).lotan.Facade  # it is None only before the first session
    try:
        version = found.version()
    except TypeError:  # py4j takes a name that is no class for a package, which cannot be called
        jar = require_jar()
        raise EngineError(
            f"this Spark session has no lotan jar; start it, in a fresh process, with .config('spark.jars', '{jar}'), "
            f"or spark-submit --jars {jar}"
        ) from None
    if version != __version__:
        raise EngineError(
            f"this Spark session has the lotan jar of version {version}, the package is {__version__}; start it, in a "
            f"fresh process, with .config('spark.jars', '{require_jar()}'), having built that with: {BUILD}"
        )
    return found
