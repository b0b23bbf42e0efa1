"""What a session of our own is started with; how sessions are chosen and closed is in the tests of engines and commands."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import psutil
import pytest

from lotan.errors import ConfigurationError, EngineError
from lotan.hosts import jar, spark_session
from lotan.hosts.spark_session import Heap, SparkSettings, open_spark
from tests.messenger.numpy_handler import wait_until

pytestmark = pytest.mark.processes


class Builder:
    """Of Spark's, what is called; keeps the options."""

    def __init__(self):
        self.options, self.jvm = {}, MagicMock()

    def config(self, name, value):
        self.options[name] = value
        return self

    def master(self, _):
        return self

    appName = master  # noqa: N815

    def getOrCreate(self):  # noqa: N802
        quiet = SimpleNamespace(setLogLevel=lambda _: None)
        return SimpleNamespace(sparkContext=quiet, _jvm=self.jvm, stop=lambda: None)


@pytest.mark.parametrize("built", [True, False])
def test_the_jar_comes_along_where_it_is_built(built, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(jar, "JAR", tmp_path / "lotan.hosts.jar")
    if built:
        jar.JAR.touch()
    builder = Builder()
    monkeypatch.setattr(spark_session, "SparkSession", SimpleNamespace(builder=builder))
    spark_session._start("local[1]", SparkSettings()).close()
    assert builder.options.get("spark.jars") == (str(jar.JAR) if built else None)


@pytest.mark.parametrize(
    ("heap", "defaults", "memory"),
    [
        (None, "", None),
        (Heap(3 << 30), "", "3072m"),
        (Heap(3 << 30), "# spark.driver.memory 4g\nspark.driver.memoryOverhead 1g\n", "3072m"),
        (Heap(3 << 30), "spark.driver.memory  4g\n", None),  # whoever wrote that meant it
        (Heap(3 << 30, capped=True), "spark.driver.memory=4g\n", "3072m"),  # a limit is a limit
    ],
)
def test_the_heap_is_as_asked_for_unless_sparks_own_files_say_otherwise(heap, defaults, memory, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    builder = Builder()
    monkeypatch.setattr(spark_session, "SparkSession", SimpleNamespace(builder=builder))
    spark_session._start("local[1]", SparkSettings(heap=heap)).close()
    assert builder.options.get("spark.driver.memory") == memory


@pytest.mark.parametrize("given", ["", "-Dours=no"])
def test_a_jvm_of_our_own_has_its_temporary_files_in_a_folder_of_the_run(given, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(f"spark.driver.defaultJavaOptions {given}\n" if given else "")
    builder = Builder()
    monkeypatch.setattr(spark_session, "SparkSession", SimpleNamespace(builder=builder))
    monkeypatch.setattr(spark_session.SparkContext, "_gateway", None)
    spark_session._start("local[1]", SparkSettings()).close()
    assert builder.options["spark.driver.defaultJavaOptions"].split() == [
        spark_session.DYING_JAVA,
        *given.split(),
        f'"-Djava.io.tmpdir={spark_session.JavaFolder.path}"',
    ]
    assert spark_session.JavaFolder.path.parent == Path(tempfile.gettempdir())


FULL_HEAP = """
from lotan.borders import spark_translated
from lotan.hosts.spark_session import Heap, SparkSettings, open_spark
session = open_spark(SparkSettings("local[1]", Heap(600 << 20))).session
with spark_translated():
    session._jvm.java.nio.ByteBuffer.allocate(1 << 30)
"""


@pytest.mark.spark
@pytest.mark.chaos
def test_a_spark_without_memory_ends_instead_of_hanging():
    """Whichever of its threads is the one that asks for more."""
    done = subprocess.run([sys.executable, "-c", FULL_HEAP], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "ended with status 3" in done.stderr
    assert "it ran out of memory" in done.stderr


KILL_SPARK = """
from lotan.hosts.spark_session import SparkContext, SparkSettings, open_spark
session = open_spark(SparkSettings("local[1]")).session
session.range(1).repartition(2).count()
print(session._jvm.java.lang.System.getProperty("java.io.tmpdir"))
SparkContext._gateway.proc.kill()
"""


@pytest.mark.spark
@pytest.mark.chaos
def test_nothing_of_a_spark_that_was_killed_is_left(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILL_SPARK],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert Path(done.stdout.strip()).parent == tmp_path, done.stderr
    assert not list(tmp_path.iterdir())


def test_what_our_jar_warns_of_is_shown_beside_spark_s_errors(monkeypatch):
    builder = Builder()
    monkeypatch.setattr(spark_session, "SparkSession", SimpleNamespace(builder=builder))
    spark_session._start("local[1]", SparkSettings()).close()
    logging = builder.jvm.org.apache.logging.log4j
    logging.core.config.Configurator.setLevel.assert_called_once_with("lotan", logging.Level.WARN)


@pytest.mark.parametrize(
    ("master", "error", "message"),
    [
        ("spark://127.0.0.1:99999", ConfigurationError, "is not of the form spark://host:port"),
        ("spark://127.0.0.1:²", ConfigurationError, "is not of the form spark://host:port"),
        ("spark://a..b:7077", EngineError, "no Spark master answers"),  # no name of a host
    ],
)
def test_a_master_that_cannot_be_is_refused_before_spark_starts(master, error, message, monkeypatch):
    monkeypatch.setattr(spark_session, "active_session", lambda: None)
    with pytest.raises(error, match=message):
        open_spark(SparkSettings(master))


class Context:
    """Of Spark's, what says that it runs."""

    master, _jsc = "local[1]", object()


class Stoppable:
    """A session of which only its end matters."""

    def __init__(self):
        self.sparkContext, self.stops = Context(), 0

    def stop(self):
        self.stops += 1


def test_a_session_is_found_from_a_thread_in_which_none_is_active(monkeypatch):
    """Else it would be taken for one of our own, and stopped."""
    given = Stoppable()
    builder = SimpleNamespace(getOrCreate=lambda: given)
    monkeypatch.setattr(spark_session, "SparkSession", SimpleNamespace(getActiveSession=lambda: None, builder=builder))
    monkeypatch.setattr(spark_session.SparkContext, "_active_spark_context", given.sparkContext)
    opened = open_spark()
    opened.close()
    assert opened.session is given
    assert given.stops == 0


def test_a_session_that_two_trainers_share_ends_with_the_second(monkeypatch):
    session, running = Stoppable(), []
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(spark_session, "active_session", lambda: running[0] if running else None)
    monkeypatch.setattr(spark_session, "_run_a_task", lambda *_: running.append(session))
    monkeypatch.setattr(spark_session, "_start", lambda *_: spark_session._Started(session).use())
    first, second = open_spark(), open_spark()
    assert second.session is session
    first.close()
    first.close()
    assert session.stops == 0
    second.close()
    assert session.stops == 1


def test_java_that_was_about_to_start_ends_with_an_interrupt(tmp_path, monkeypatch):
    """PySpark forgets the process whose port it waits for, which then waits for ever to be told what to do."""
    script = f"sleep 60 & echo > {tmp_path / 'started'}; wait"
    started = []

    class Interrupted(Builder):
        def getOrCreate(self):  # noqa: N802
            shell = psutil.Popen(["sh", "-c", script])
            wait_until((tmp_path / "started").exists)
            started.extend([shell, *shell.children()])
            raise KeyboardInterrupt

    monkeypatch.setattr(spark_session, "SparkSession", SimpleNamespace(builder=Interrupted()))
    monkeypatch.setattr(spark_session.SparkContext, "_gateway", None)
    with pytest.raises(KeyboardInterrupt):
        spark_session._start("local[1]", SparkSettings())
    assert len(started) == 2
    assert psutil.wait_procs(started, 5)[1] == []
