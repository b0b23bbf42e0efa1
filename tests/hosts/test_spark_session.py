"""What a session of our own is started with; how sessions are chosen and closed is in the tests of engines and commands."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import psutil
import pytest
from py4j.clientserver import FinalizerWorker

from lotan.errors import ConfigurationError, EngineError
from lotan.hosts import jar, java_output, spark_session
from lotan.hosts.java_output import without_noise
from lotan.hosts.spark_session import Heap, SparkSettings, open_spark
from tests.messenger.numpy_handler import wait_until

pytestmark = pytest.mark.processes


class Builder:
    """Spark's, as far as it is called; keeps the options."""

    def __init__(self):
        self.options = {}

    def config(self, name, value):
        self.options[name] = value
        return self

    def master(self, _):
        return self

    appName = master  # noqa: N815

    def getOrCreate(self):  # noqa: N802
        return SimpleNamespace(stop=lambda: None)


@pytest.fixture
def builder(tmp_path, monkeypatch):
    """Stands in place of Spark's, without a JVM and without a configuration."""
    builder = Builder()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(spark_session, "SparkSession", SimpleNamespace(builder=builder))
    monkeypatch.setattr(spark_session.SparkContext, "_gateway", None)
    monkeypatch.setattr(spark_session.SparkContext, "_jvm", MagicMock())
    monkeypatch.setattr(spark_session.JavaOutput, "launch", lambda conf: None)
    return builder


@pytest.mark.parametrize("built", [True, False])
def test_the_jar_comes_along_where_it_is_built(built, builder, tmp_path, monkeypatch):
    monkeypatch.setattr(jar, "JAR", tmp_path / "lotan.hosts.jar")
    if built:
        jar.JAR.touch()
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
def test_the_heap_is_as_asked_for_unless_sparks_own_files_say_otherwise(heap, defaults, memory, builder, tmp_path):
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    spark_session._start("local[1]", SparkSettings(heap=heap)).close()
    assert builder.options.get("spark.driver.memory") == memory


@pytest.mark.parametrize(
    ("defaults", "options", "ours"),
    [
        ("", "-Da=b", True),
        ("", "-XX:+UseG1GC", False),
        ("spark.driver.extraJavaOptions -Da=b -XX:+UseSerialGC", "", False),
        ("spark.driver.extraJavaOptions -Da=b", "", True),
    ],
)
def test_a_capped_heap_has_one_collector_and_the_users_options(defaults, options, ours, builder, tmp_path, monkeypatch):
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", options)
    spark_session._start("local[1]", SparkSettings(heap=Heap(3 << 30, capped=True))).close()
    java = builder.options["spark.driver.extraJavaOptions"]
    assert (spark_session.COLLECTOR in java) == ours
    assert ("-Da=b" in java) == ("-Da=b" in defaults)
    assert spark_session.CAPPED_JAVA in java


@pytest.mark.parametrize("given", ["", "-Dours=no"])
def test_a_jvm_of_our_own_has_its_temporary_files_in_a_folder_of_the_process(given, builder, tmp_path):
    (tmp_path / "spark-defaults.conf").write_text(f"spark.driver.defaultJavaOptions {given}\n" if given else "")
    spark_session._start("local[1]", SparkSettings()).close()
    assert builder.options["spark.driver.defaultJavaOptions"].split() == [
        spark_session.DYING_JAVA,
        f'"-Dlog4j2.configurationFile={java_output.LOGGING.as_uri()}"',
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
@pytest.mark.nightly
def test_a_spark_without_memory_ends_instead_of_hanging():
    """Whichever of its threads is the one that asks for more."""
    done = subprocess.run([sys.executable, "-c", FULL_HEAP], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "ended with status 3" in done.stderr
    assert "it ran out of memory" in done.stderr


def run_with_temporary_files_in(folder, program):
    """Run a program of a test in a process of its own, whose temporary files lie in a folder."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


KILL_SPARK = """
from lotan.hosts.spark_session import SparkContext, SparkSettings, open_spark
session = open_spark(SparkSettings("local[1]")).session
session.range(1).repartition(2).count()
print(session._jvm.java.lang.System.getProperty("java.io.tmpdir"))
SparkContext._gateway.proc.kill()
"""


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.chaos
def test_nothing_of_a_spark_that_was_killed_is_left(tmp_path):
    done = run_with_temporary_files_in(tmp_path, KILL_SPARK)
    assert Path(done.stdout.strip()).parent == tmp_path, done.stderr
    assert not list(tmp_path.iterdir())


TWO_SESSIONS = """
from pathlib import Path
from tempfile import gettempdir
from lotan.hosts.local_folder import LocalFolder
from lotan.hosts.spark_session import SparkSettings, open_spark
for _ in range(2):
    opened = open_spark(SparkSettings("local[1]"))
    LocalFolder().close()  # as another run does when it starts
    opened.session.createDataFrame([(number,) for number in range(50)], "a int").repartition(2).persist().count()
    opened.close()
    print(sum(file.stat().st_size for file in Path(gettempdir()).rglob("*") if file.is_file()))
"""


@pytest.mark.nightly
@pytest.mark.spark
def test_a_second_session_of_a_process_works_while_other_runs_start(tmp_path):
    done = run_with_temporary_files_in(tmp_path, TWO_SESSIONS)
    assert done.returncode == 0, done.stderr
    first, second = map(int, done.stdout.split())
    assert second <= first + 10_000  # a closed session's blocks are gone
    assert not list(tmp_path.iterdir())


def test_what_our_jar_warns_of_is_shown_beside_spark_s_errors(builder):
    spark_session._start("local[1]", SparkSettings()).close()
    logging = spark_session.SparkContext._jvm.org.apache.logging.log4j
    logging.core.config.Configurator.setRootLevel.assert_called_once_with(logging.Level.ERROR)
    logging.core.config.Configurator.setLevel.assert_called_once_with("lotan", logging.Level.WARN)


@pytest.mark.parametrize(
    ("name", "text", "variables", "own"),
    [
        ("log4j2.properties", "rootLogger.level = info", {}, True),
        ("log4j2.xml", "<Configuration/>", {}, True),
        ("log4j2.properties.template", "", {}, False),  # which a download of Spark has
        ("spark-defaults.conf", "spark.driver.extraJavaOptions -Dlog4j2.configurationFile=a.xml", {}, True),
        ("spark-defaults.conf", "# spark.driver.extraJavaOptions -Dlog4j.configurationFile=a.xml", {}, False),
        ("spark-defaults.conf", "spark.log.level INFO", {}, False),  # which Spark itself follows
        ("spark-env.sh", "", {"LOG4J_CONFIGURATION_FILE": "a.xml"}, True),
        ("spark-env.sh", "", {"PYSPARK_SUBMIT_ARGS": "--driver-java-options -Dlog4j.configurationFile=a.xml"}, True),
    ],
)
def test_logging_that_a_user_has_configured_is_left_alone(name, text, variables, own, builder, tmp_path, monkeypatch):
    (tmp_path / name).write_text(text)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    spark_session._start("local[1]", SparkSettings()).close()
    assert ("log4j2.properties" in builder.options["spark.driver.defaultJavaOptions"]) == (not own)
    configurator = spark_session.SparkContext._jvm.org.apache.logging.log4j.core.config.Configurator
    assert configurator.setRootLevel.called == (not own)


@pytest.mark.parametrize("length", [1, 7, 1000])
def test_noise_is_left_out_however_it_is_cut_and_all_else_comes_through(length):
    kept = b"Picked up OURS\n 50 %\r99 %\rWARNING: a disk is full\nan error"
    text = kept.replace(b" 50", b"WARNING: Using incubator modules: jdk.incubator.vector\n 50")
    assert b"".join(without_noise(text[at : at + length] for at in range(0, len(text), length))) == kept


def test_what_cannot_be_noise_does_not_wait_for_the_end_of_its_line():
    given = iter([b"WARN", b"ED: 50 %", b"\n"])
    assert list(without_noise(given)) == [b"WARNED: 50 %", b"\n"]


QUIET = """
import sys
import lotan
options = {"engine": "blocks", "epochs": 1, "eval_every": 0, "workers": 1, "master": "local[1]", "progress": False}
graph = lotan.datasets.generate(60, 200, width=8, classes=2)
lotan.Trainer(lotan.nn.GCN(8, 4, 1, 2), graph, **options).fit()
graph.save(sys.argv[1])
left_open = lotan.Trainer(lotan.nn.GCN(8, 4, 1, 2), lotan.Graph.read(sys.argv[1]), **options)
left_open.explain()
"""
LOUD = """
from lotan.hosts.spark_session import SparkSettings, open_spark
session = open_spark(SparkSettings("local[1]")).session
log = session._jvm.org.apache.logging.log4j.LogManager.getLogger("org.apache.spark.Any")
log.warn("a warning")
log.error("an error")
"""


def run_alone(words, **environment):
    """A process of its own, with these variables of its environment."""
    return subprocess.run(
        [sys.executable, *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=290,
        check=True,
    )


@pytest.mark.nightly
@pytest.mark.spark
def test_a_run_on_a_spark_of_its_own_writes_nothing_to_standard_error(tmp_path):
    """Neither Java nor the Router and the workers write anything, nor does a trainer that still has Spark open at the end."""
    assert run_alone(["-c", QUIET, str(tmp_path / "graph")]).stderr == ""


def test_java_is_told_of_no_dead_object_once_it_is_to_end():
    """Py4J's thread would print an error if Java ended while it sends."""
    sending, end, told = threading.Event(), threading.Event(), []

    class Client:
        def garbage_collect_object(self, number, enqueue):
            told.append(number)
            sending.set()
            end.wait(10)

    client = Client()
    thread = FinalizerWorker(deque((client, number) for number in range(3)))
    thread.daemon = True
    thread.start()
    assert sending.wait(10)
    threading.Timer(0.1, end.set).start()
    spark_session._free_no_more_objects([threading.current_thread(), thread])  # and not that of the suite's Spark
    assert not thread.is_alive()
    assert told == [2]


@pytest.mark.spark
def test_errors_of_spark_come_through_and_warnings_do_not():
    (line,) = run_alone(["-c", LOUD]).stderr.splitlines()
    assert line.endswith("ERROR Any: an error")


@pytest.mark.nightly
@pytest.mark.spark
def test_a_user_s_own_level_counts(tmp_path):
    (tmp_path / "spark-defaults.conf").write_text("spark.log.level WARN\n")
    assert "WARN Any: a warning" in run_alone(["-c", LOUD], SPARK_CONF_DIR=str(tmp_path)).stderr


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


def test_java_that_was_about_to_start_ends_with_an_interrupt(builder, tmp_path, monkeypatch):
    """PySpark forgets the process whose port it waits for, which then waits for ever to be told what to do."""
    script = f"sleep 60 & echo > {tmp_path / 'started'}; wait"
    started = []

    def interrupted(conf):
        shell = psutil.Popen(["sh", "-c", script])
        wait_until((tmp_path / "started").exists)
        started.extend([shell, *shell.children()])
        raise KeyboardInterrupt

    monkeypatch.setattr(spark_session.JavaOutput, "launch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        spark_session._start("local[1]", SparkSettings())
    assert len(started) == 2
    assert psutil.wait_procs(started, 5)[1] == []
