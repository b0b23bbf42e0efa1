"""Keeps the standard error of a JVM that we start for Spark to errors alone.

Three things write there. Spark's logging is set by a configuration file of ours. The JVM itself warns of incubator modules
before any code runs, and has no option against it. The Python workers that the JVM starts write there too. So the JVM's
standard error is a pipe, and a thread passes on everything but that warning.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from lotan.hosts.jar import spark_configuration, spark_defaults

LOGGING = Path(__file__).with_name("log4j2.properties")
NOISE = b"WARNING: Using incubator modules: "
"""How the line begins that the JVM writes because Spark, and our operators where they can, use its vector module."""
LOGGING_OPTION = re.compile(r"log4j2?\.configurationFile")
OPTION_VARIABLES = ("PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
LAST_WORDS_SECONDS = 1.0  # for what a JVM that has ended wrote last to be passed on


def has_own_logging() -> bool:
    """Return True if the user has configured Spark's logging by a file. It then stays the only configuration."""
    files = (file for file in spark_configuration().glob("log4j2*") if file.suffix != ".template")
    return bool(os.environ.get("LOG4J_CONFIGURATION_FILE")) or any(files) or is_given(LOGGING_OPTION, spark_defaults())


def is_given(option: re.Pattern[str], defaults: Iterable[str]) -> bool:
    """Return True if the user gives Java an option: in one of these texts of spark-defaults.conf, or in the environment."""
    return any(map(option.search, (*defaults, *(os.environ.get(name, "") for name in OPTION_VARIABLES))))


def logging_options() -> list[str]:
    """Return the Java options by which a JVM logs errors alone; none if the user has configured its logging."""
    return [] if has_own_logging() else [f'"-Dlog4j2.configurationFile={LOGGING.as_uri()}"']


def log_errors_alone(jvm: Any) -> None:
    """Set the levels of a JVM that may have run before: errors, and the warnings of our own operators.

    A `spark.log.level` of the user's counts when a session starts, and so after this.
    """
    logging = jvm.org.apache.logging.log4j
    logging.core.config.Configurator.setRootLevel(logging.Level.ERROR)
    logging.core.config.Configurator.setLevel("lotan", logging.Level.WARN)


class JavaOutput:
    """The thread that passes on what the JVM of this process writes to its standard error."""

    relay: ClassVar[threading.Thread | None] = None

    @classmethod
    def launch(cls, conf: SparkConf) -> None:
        """Start the JVM as PySpark would, but with its standard error passed on without noise."""
        reader, writer = os.pipe()
        relay = threading.Thread(target=_pass_on, args=(reader,), name="lotan-java-output", daemon=True)
        relay.start()
        try:
            gateway = cast(Any, launch_gateway)(conf, {"stderr": writer})  # which has no types
        finally:
            os.close(writer)  # the JVM has its own; when that is closed, the thread ends
        cls.relay = relay
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)

    @classmethod
    def end(cls) -> None:
        """Wait until the last output of a JVM that has ended has been passed on."""
        if cls.relay is not None:
            cls.relay.join(LAST_WORDS_SECONDS)


def _pass_on(reader: int) -> None:
    with open(reader, "rb", buffering=0) as stream:
        for text in without_noise(iter(partial(stream.read, 1 << 16), b"")):
            with suppress(OSError):  # whoever has closed standard error wants none of it
                os.write(2, text)


def without_noise(chunks: Iterable[bytes]) -> Iterator[bytes]:
    r"""Yield chunks of text as they come, without lines of noise. A part of a line waits only while it may become noise.

    >>> list(without_noise([b"WARNING: Us", b"ing incubator modules: jdk.x", b"\nWARN", b"ING: a disk\n", b"50 %\r"]))
    [b'WARNING: a disk\n', b'50 %\r']
    """
    held, at_start = b"", True  # the part that waits; whether it begins a line
    for chunk in chunks:
        parts, held, passed = (held + chunk).splitlines(keepends=True), b"", b""
        for part in parts:
            ends = part.endswith((b"\n", b"\r"))
            if at_start and not ends and (part.startswith(NOISE) or NOISE.startswith(part)):
                held = part  # the last one, whose rest is still to come
            elif not (at_start and part.startswith(NOISE)):
                passed += part
                at_start = ends
        if passed:
            yield passed
    if held:
        yield held
