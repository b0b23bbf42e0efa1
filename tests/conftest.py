"""Fixtures for every test: one Spark session, one set of workers, public graphs, and a watch over what is left behind."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lotan.hosts.fork_server import held
from lotan.hosts.jar import JAR
from lotan.hosts.session import Session, SessionSettings, child_environment
from tests.leaks import Snapshot

ROOT = Path(__file__).resolve().parents[1]

needs_jar = pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")

CLASSES = ROOT / "build" / "spark-classes.jsa"
ARCHIVE = f"-XX:SharedArchiveFile={CLASSES} -Xlog:disable " if CLASSES.is_file() and CLASSES.stat().st_size else ""
"""The classes of Spark as `make test` has had them archived; without the archive, Java loads them one by one."""

JAVA_OPTIONS = f"{ARCHIVE}-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SPARK_SETTINGS = {
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
}
DRIVER_OPTIONS = " ".join(
    [
        JAVA_OPTIONS,
        "-XX:ReservedCodeCacheSize=128m -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
        *(f'"-D{name}={value}"' for name, value in SPARK_SETTINGS.items()),
    ]
)
"""The options of every Spark that the suite starts, in this process or another: many small plans, few rows. Compilers, Spark's
own and Java's optimising one, would take the two cores and never pay back: a first epoch takes a third of the time without them.
So would Spark's drawings and checks of each plan, and Java's of all classes; and with less room, Java drops compiled code and
compiles it again.
`tests/engines/test_clusters.py` runs a job without these."""

# A shell that starts a suite in the background has it ignore SIGINT, and so would every process that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# pytest listens to all loggers that do not pass on what they hear. If anyone listens to this one, torch formats a traceback
# for every tensor of a model that is traced: a fifth of what tracing takes.
logging.getLogger("torch.__trace").addHandler = lambda handler: None  # type: ignore[method-assign]

# Spark's Python workers and the processes that tests start run this interpreter on this checkout.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["LOTAN_COSTS"] = "off"  # no test reads what this machine has shown, or adds to it, unless it names a folder
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--leaks-by-test", action="store_true", help="look for leaks after every test, not after every file"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out nightly tests unless `-m` names them, and put the files with the longest tests first.

    Then neither of two processes that take whole files is left with a long one at the end. pytest-xdist would begin with the
    files that have the most tests, so `make test` asks it for this order.
    """
    if "nightly" not in config.option.markexpr:
        nightly = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if item not in set(nightly)]
    marks = ("chaos", "slow", "spark")
    files: dict[Path, int] = {}
    for item in items:
        place = next((place for place, mark in enumerate(marks) if item.get_closest_marker(mark)), len(marks))
        files[item.path] = min(place, files.get(item.path, place))
    items.sort(key=lambda item: files[item.path])


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A temporary folder of this run alone, so that what other programs do in the machine's is no leak of ours."""
    folder = tmp_path_factory.mktemp("temporary")
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    yield folder
    tempfile.tempdir = None
    os.environ.pop("TMPDIR") if before is None else os.environ.update(TMPDIR=before)


@pytest.fixture(scope="session", autouse=True)
def spark_settings() -> None:
    """Gives these settings to every Spark started from here on, and no folder of configuration that this machine has.

    They are options of Java. A folder of configuration would be on the path of its classes, and no archive fits then.
    """
    os.environ.pop("SPARK_CONF_DIR", None)
    os.environ["SPARK_SUBMIT_OPTS"] = DRIVER_OPTIONS


@pytest.fixture(scope="session")
def fork_server(temporary_folder: Path) -> Iterator[None]:
    """Loads torch once for the workers of all sessions that run beside the suite's Spark."""
    with ExitStack() as started:
        with Snapshot.owning():
            started.enter_context(held(child_environment(SessionSettings().threads)))
        yield


@pytest.fixture(scope="session")
def spark(temporary_folder: Path, spark_settings: None, fork_server: None) -> Iterator[SparkSession]:
    """The one Spark session of the suite: local[2], quiet. Tests of another master start a process of their own."""
    builder = SparkSession.builder.master("local[2]").appName("lotan-tests")
    settings = {
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(temporary_folder / "spark"),
        "spark.sql.shuffle.partitions": "4",
        "spark.shuffle.compress": "false",  # as of Lotan's own session
        "spark.sql.warehouse.dir": str(temporary_folder / "warehouse"),
    }
    jars = [os.environ.get("LOTAN_GRAPHFRAMES_JAR"), JAR.is_file() and str(JAR)]
    if any(jars):
        settings["spark.jars"] = ",".join(filter(None, jars))
    for name, value in settings.items():
        builder = builder.config(name, value)
    with Snapshot.owning():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def workers(temporary_folder: Path, fork_server: None) -> Iterator[Session]:
    """A Router with two workers, for all tests that neither kill them nor give them other settings."""
    with ExitStack() as started:
        with Snapshot.owning():
            session = started.enter_context(Session(SessionSettings(workers=2)))
        yield session


@pytest.fixture(scope="session", autouse=True)
def everything_is_collected_at_the_end() -> Iterator[None]:
    """Undoes `collections_look_at_few_objects`."""
    yield
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def collections_look_at_few_objects() -> None:
    """Has Python's garbage collector leave out what exists before a file: a million objects of torch's and of pytest's.

    Engines on Spark collect whenever they load a graph or close, which would otherwise take a quarter of a second each time.
    What an earlier file has left is collected here; what was frozen before that file stays frozen, for looking takes as long.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def models_of_tests_are_traced_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keeps the traces of models that tests define, as of those of libraries, except where tracing itself is tested.

    Most tests of training spent most of their time on a trace of a model that an earlier test has had traced.
    """
    form = sys.modules.get("lotan.tracing.form")  # what a file does not import, it does not wait for
    with pytest.MonkeyPatch.context() as patch:
        if form is not None:
            theirs = [name for name in form.KNOWN if not name.startswith("torch_geometric.")]
            tested = request.path.parent.name == "tracing"
            patch.setattr(form, "KNOWN", tuple(theirs) if tested else (*form.KNOWN, "tests."))
        yield


@pytest.fixture(scope="module", autouse=True)
def no_file_leaves_anything_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails the last test of a file if a process, socket, file, persisted frame or global view is there that was not before.

    Two looks at each of some thousand tests would take a tenth of the suite's time.
    """
    if request.config.getoption("--leaks-by-test"):
        yield
        return
    before = Snapshot.take()
    yield
    _assert_no_leaks(before, "left behind by a test of this file (--leaks-by-test says which)")


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """With --leaks-by-test, fails the test itself."""
    if not request.config.getoption("--leaks-by-test"):
        yield
        return
    before = Snapshot.take()
    yield
    _assert_no_leaks(before, "left behind")


def _assert_no_leaks(before: Snapshot, what: str) -> None:
    leaked = before.leaks_since()
    assert not leaked, f"{what}: " + "; ".join(leaked)


@pytest.fixture(autouse=True)
def _graphframes_core(request: pytest.FixtureRequest) -> None:
    """Skips tests marked `graphframes` where the session has no GraphFrames JVM core."""
    if request.node.get_closest_marker("graphframes") is None:
        return
    jvm = request.getfixturevalue("spark")._jvm
    try:
        jvm.Thread.currentThread().getContextClassLoader().loadClass("org.graphframes.GraphFramePythonAPI")
    except Exception as error:
        if "ClassNotFoundException" not in str(error):
            raise
        pytest.skip("GraphFrames' JVM core is not on Spark's classpath: set LOTAN_GRAPHFRAMES_JAR to its jar")


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """data("cora.npz"): the path of a public graph, or a skip that says where it was looked for."""

    def find(name: str) -> Path:
        folders = [Path(os.environ[key]) for key in ("LOTAN_DATA",) if os.environ.get(key)] + [
            ROOT.parent / "shared" / "data"
        ]
        for folder in folders:
            if (folder / name).exists():
                return folder / name
        pytest.skip(f"{name} is neither in $LOTAN_DATA nor in ../shared/data")

    return find
