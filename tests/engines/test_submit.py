"""spark-submit, as one ships a job: on one machine by day; at night to a master with two executors, and killed there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from pyspark.sql import SparkSession

from lotan.cli import main
from lotan.hosts.jar import JAR
from tests.cli.test_by_hand import save_graph, started, stop, train_words
from tests.conftest import ROOT
from tests.engines.standalone import (
    TWO_EXECUTORS,
    assert_same_weights,
    disk_of_executors,  # noqa: F401  a fixture that `master` needs
    run,
    standalone_master,  # noqa: F401  the fixture `master`
)
from tests.training.test_killed import MARK, marked

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar"),
]

TOOLS = Path(sys.executable).parent

SCRIPT = """
import sys
import lotan
from lotan.cli import main
print(lotan.__file__)
sys.exit(main(sys.argv[1:]))
"""


def submit(master: str, folder: Path, conf: dict[str, str], *words: str) -> Any:
    """By the environment's own spark-submit, without PYTHONPATH: what the job needs comes with it."""
    settings = {**TWO_EXECUTORS, "spark.ui.enabled": "false", "spark.pyspark.python": sys.executable, **conf}
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    environment = {"PATH": os.pathsep.join([str(TOOLS), os.environ["PATH"]]), "PYTHONPATH": ""}
    return run([str(TOOLS / "spark-submit"), "--master", master, *options, *words], TMPDIR=str(folder), **environment)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three packages in a zip, as a wheel is one."""
    folder = tmp_path_factory.mktemp("package")
    for name in ("lotan", "planner", "messenger"):
        shutil.copytree(ROOT / name, folder / "content" / name, ignore=shutil.ignore_patterns("*.jar", "__pycache__"))
    return Path(shutil.make_archive(str(folder / "lotan"), "zip", folder / "content"))


@pytest.fixture
def by_hand(tmp_path: Path) -> Iterator[list[str]]:
    """Options that name a Router, with keys, which has two workers."""
    with ExitStack() as stack:
        keys = str(tmp_path / "keys")
        router = stack.enter_context(started("router", "--bind", "tcp://127.0.0.1:*", "--keys", keys))
        assert router.stdout is not None
        router.stdout.readline()
        meet = ["--router", router.stdout.readline().strip(), "--keys", keys]
        workers = [stack.enter_context(started("worker", *meet, "--name", name)) for name in ("one", "two")]
        yield meet
        stop([*workers, router])


@pytest.mark.nightly  # by day, the wheel: tests/project/test_wheel.py
def test_a_job_that_brings_its_code_equals_the_local_run(
    tmp_path: Path, spark: SparkSession, package: Path, by_hand: list[str]
) -> None:
    """On one machine, which submits as to a cluster."""
    submit_and_compare(tmp_path, "local[2]", package, {}, "--engine", "blocks", *by_hand)


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ["blocks", "rows"])
def test_so_it_does_on_a_cluster(
    engine: str,
    tmp_path: Path,
    master: str,
    spark: SparkSession,
    package: Path,
    by_hand: list[str],
) -> None:
    (tmp_path / "events").mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    submit_and_compare(tmp_path, master, package, conf, "--engine", engine, *by_hand)
    check_events(tmp_path / "events")


def submit_and_compare(folder: Path, master: str, package: Path, conf: dict[str, str], *options: str) -> None:
    """Submit a job with code by --py-files, operators by --jars, workers of a named Router; train the same in this process."""
    save_graph(str(folder / "graph"))
    (folder / "job.py").write_text(SCRIPT)
    script = ("--py-files", str(package), "--jars", str(JAR), str(folder / "job.py"), *job(folder, "there", *options))
    done = submit(master, folder, conf, *script)
    assert done.returncode == 0, done.stderr
    assert "lotan.zip" in done.stdout
    assert main(job(folder, "here", *options[:2], "--workers", "1")) == 0
    assert_same_weights(folder / "here", folder / "there")


def job(folder: Path, name: str, *options: str) -> list[str]:
    """Words after `lotan`: one epoch on two partitions, with a report and a model of that name."""
    places = ("--save", str(folder / name), "--partitions", "2")
    return train_words(str(folder / "graph"), str(folder / f"{name}.json"), *places, *options)


def check_events(folder: Path) -> None:
    """The application has an event log, with two executors, both of which worked, and with the names of jobs."""
    (log,) = folder.glob("app-*")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    added = {event["Executor ID"] for event in events if event["Event"] == "SparkListenerExecutorAdded"}
    worked = {event["Task Info"]["Executor ID"] for event in events if event["Event"] == "SparkListenerTaskEnd"}
    assert len(added) == 2
    assert worked == added
    jobs = [event["Properties"] for event in events if event["Event"] == "SparkListenerJobStart"]
    said = [job.get("spark.job.description", "") for job in jobs]
    assert [line for line in said if line.startswith("lotan: epoch 1, training: train.0 forward > ")]


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])  # for the tests
import pytest
from lotan.cli import main
from tests.engines.blocks.faults import Place, at_commit
from tests.training.test_killed import MARK, marked
def kill():
    with open(sys.argv[2], "w") as counted:
        counted.write(str(len(marked(os.environ[MARK]))))
    os.kill(os.getppid(), signal.SIGKILL)  # the Java process that spark-submit has become
at_commit(pytest.MonkeyPatch(), Place("train.0", "backward"), kill)
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.chaos
@pytest.mark.nightly
def test_an_application_that_is_killed_leaves_nothing_on_any_host(tmp_path: Path, master: str) -> None:
    """Of the driver's Python, executors, Router and workers; files in shared memory are watched by the suite."""
    mark = uuid4().hex
    (tmp_path / "job.py").write_text(KILLED)
    conf = {
        f"spark.executorEnv.{MARK}": mark,
        "spark.jars": str(JAR),
        "spark.executorEnv.PYTHONPATH": str(ROOT),
    }
    save_graph(str(tmp_path / "graph"))
    os.environ[MARK] = mark
    try:
        words = job(tmp_path, "killed", "--engine", "blocks", "--workers", "2")
        done = submit(master, tmp_path, conf, str(tmp_path / "job.py"), str(ROOT), str(tmp_path / "counted"), *words)
    finally:
        del os.environ[MARK]
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    assert int((tmp_path / "counted").read_text()) >= 7, "Java, Python, a Router, two workers and two executors"
    assert not (tmp_path / "killed.json").exists()
    _, alive = psutil.wait_procs(marked(mark), timeout=20)
    assert alive == []
