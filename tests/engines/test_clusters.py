"""Training with executors in processes of their own: Spark's local-cluster, and spark-submit to a standalone master."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import psutil
import pyspark
import pytest
import torch
from pyspark import SparkContext
from pyspark.sql import SparkSession

from lotan.cli import main
from lotan.jar import JAR
from lotan.local_folder import remove_stale
from tests.conftest import ROOT
from tests.engines.blocks.faults import Place, at_commit

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SPARK_HOME = Path(pyspark.__file__).parent
JOB = "train --graph digits --model gcn --epochs 1 --dropout 0.5 --quiet"


def words(report: Path, *more: str) -> list[str]:
    """The job's, after `lotan`."""
    return [*JOB.split(), "--report", str(report), *more]


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, without the session of the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=kept | environment, check=False)


def losses(report: Path) -> list[float]:
    """Of the epoch, and of the evaluation after its step."""
    content = json.loads(report.read_text())
    return [content["epochs"][0]["loss"], *(content["metrics"][split]["loss"] for split in ("train", "val", "test"))]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    report = tmp_path_factory.mktemp("local") / "report.json"
    assert main(words(report, "--engine", "local")) == 0
    return losses(report)


class Daemon:
    """One of Spark's own, and what it writes to its log, which somebody has to read."""

    def __init__(self, name: str, *words: str) -> None:
        environment = os.environ | {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [str(SPARK_HOME / "bin" / "spark-class"), name, *words]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self._log, self._changed = "", threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._changed:
                self._log += line
                self._changed.notify_all()

    def wait_for(self, pattern: str, seconds: float = 60) -> str:
        """The first group of the first match in the log."""
        with self._changed:
            found = self._changed.wait_for(lambda: re.search(pattern, self._log), seconds)
        assert found, f"nothing matches {pattern!r} in:\n{self._log}"
        return found[1]

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()


EAGER = {
    "spark.speculation": "true",
    "spark.speculation.interval": "5ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1",
    "spark.speculation.minTaskRuntime": "1ms",
}
"""Spark starts a second attempt of nearly every task, in the other executor, while the first one runs."""

ENGINES = ["rows"] + ["blocks"] * JAR.is_file()

IN_TURN = """
import json, sys
from lotan.cli import main
sys.exit(max(main(job) for job in json.loads(sys.argv[1])))
"""


def submitted(conf: Mapping[str, str]) -> str:
    """For PYSPARK_SUBMIT_ARGS."""
    return " ".join([*(f"--conf {name}={value}" for name, value in conf.items()), "pyspark-shell"])


def assert_same_weights(one: Path, other: Path) -> None:
    first, second = (torch.load(model / "weights.pt", weights_only=True) for model in (one, other))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_speculation_on_two_executors_changes_no_bit(
    tmp_path: Path, spark: SparkSession, expected: list[float]
) -> None:
    """Against the same partitions in the suite's own process; one engine after the other."""
    jobs = []
    for engine in ENGINES:
        options = ("--engine", engine, "--workers", "1", "--partitions", "2", "--save")
        assert main(words(tmp_path / "here.json", *options, str(tmp_path / f"{engine} here"))) == 0
        there = (*options, str(tmp_path / f"{engine} there"), "--master", "local-cluster[2,1,2048]")
        jobs.append(words(tmp_path / f"{engine}.json", *there))
    done = run([sys.executable, "-c", IN_TURN, json.dumps(jobs)], PYSPARK_SUBMIT_ARGS=submitted(EAGER))
    assert done.returncode == 0, done.stderr
    remove_stale(Path(tempfile.gettempdir()))  # as the next start does: Java's hooks may make its folder anew
    for engine in ENGINES:
        assert losses(tmp_path / f"{engine}.json") == pytest.approx(expected, rel=1e-4)
        assert_same_weights(tmp_path / f"{engine} here", tmp_path / f"{engine} there")


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a standalone master with a worker of two cores."""
    folder = tmp_path_factory.mktemp("work")
    place = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with closing(Daemon("org.apache.spark.deploy.master.Master", *place)) as first:
        address = first.wait_for(r"Starting Spark master at (spark://\S+)")
        size = ("--cores", "2", "--memory", "2g", "--webui-port", "0", "--work-dir", str(folder))
        with closing(Daemon("org.apache.spark.deploy.worker.Worker", *size, address)) as second:
            second.wait_for("(Successfully registered) with master")
            yield address


def test_spark_submit_to_a_standalone_master(tmp_path: Path, master: str, expected: list[float]) -> None:
    """With the script of the README, and with Spark as it comes: compilers and all."""
    report = tmp_path / "report.json"
    tools = Path(sys.executable).parent
    submit = [str(tools / "spark-submit"), "--master", master, "--conf", "spark.ui.enabled=false"]
    script = [str(ROOT / "examples" / "train.py"), *words(report, "--engine", "rows", "--workers", "1")[1:]]
    path = os.pathsep.join([str(tools), os.environ["PATH"]])
    done = run([*submit, *script], PATH=path, SPARK_CONF_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert losses(report) == pytest.approx(expected, rel=1e-4)


TWO_EXECUTORS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "1g",
    "spark.shuffle.io.retryWait": "50ms",  # for blocks of an executor that is gone
}

KILL = """
import sys
import tempfile
from tests.engines.test_clusters import train_and_kill_an_executor
train_and_kill_an_executor(*sys.argv[1:])
"""


def blocks(*more: str) -> list[str]:
    """A job of two epochs on blocks."""
    return [*JOB.replace("--epochs 1", "--epochs 2").split(), "--engine", "blocks", "--partitions", "3", *more]


def train_and_kill_an_executor(master: str, folder: str) -> None:
    """The job, with an executor killed while the second epoch runs backward."""
    patch, killed = pytest.MonkeyPatch(), []

    def kill_one() -> None:
        executors = SparkContext._active_spark_context._jsc.sc().statusTracker().getExecutorInfos()
        assert len(executors) == 3, "the driver and two executors"
        running = [process for process in psutil.process_iter() if executes(process)]
        killed.extend(running[:1])
        running[0].kill()

    at_commit(patch, Place("train.0", "backward"), kill_one, number=4)  # the first pass prepares
    assert main(blocks("--master", master, "--workers", "1", "--save", folder)) == 0
    assert killed


def executes(process: psutil.Process) -> bool:
    """Whether it is an executor of this process's application."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    port = SparkContext._active_spark_context.getConf().get("spark.driver.port")
    return "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and any(f":{port}" in w for w in words)


@pytest.mark.chaos
@pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")
def test_an_executor_killed_in_mid_epoch_changes_no_bit(tmp_path: Path, master: str, spark: SparkSession) -> None:
    """It takes half of the blocks, of what was computed once and of all that was shuffled with it."""
    assert main(blocks("--save", str(tmp_path / "here"))) == 0
    done = run(
        [sys.executable, "-c", KILL, master, str(tmp_path / "there")], PYSPARK_SUBMIT_ARGS=submitted(TWO_EXECUTORS)
    )
    assert done.returncode == 0, done.stderr
    assert_same_weights(tmp_path / "here", tmp_path / "there")


def test_a_dead_master_is_told_at_once(tmp_path: Path) -> None:
    job = words(tmp_path / "report.json", "--engine", "rows", "--master", "spark://127.0.0.1:1")
    done = run([sys.executable, "-m", "lotan", *job])
    assert done.returncode == 1
    assert "no Spark master answers at spark://127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
