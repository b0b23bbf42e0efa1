"""A standalone master with a worker, as daemons of Spark's own, and jobs that are given to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pyspark
import pytest
import torch

from tests.conftest import JAVA_OPTIONS

SPARK_HOME = Path(pyspark.__file__).parent
JOB = "train --graph digits --model gcn --epochs 1 --dropout 0.5 --quiet"


def words(report: Path, *more: str) -> list[str]:
    """The job's, after `lotan`."""
    return [*JOB.split(), "--report", str(report), *more]


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, without the session of the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    return subprocess.run(command, capture_output=True, text=True, timeout=900, env=kept | environment, check=False)


def losses(report: Path) -> list[float]:
    """Of the epoch, and of the evaluation after its step."""
    content = json.loads(report.read_text())
    return [content["epochs"][0]["loss"], *(content["metrics"][split]["loss"] for split in ("train", "val", "test"))]


class Daemon:
    """A process that serves until it is closed, and what it writes to standard error, which somebody has to read."""

    def __init__(self, command: Sequence[str], **environment: str) -> None:
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | environment)
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


def submitted(conf: Mapping[str, str]) -> str:
    """For PYSPARK_SUBMIT_ARGS."""
    return " ".join([*(f"--conf {name}={value}" for name, value in conf.items()), "pyspark-shell"])


def assert_same_weights(one: Path, other: Path) -> None:
    first, second = (torch.load(model / "weights.pt", weights_only=True) for model in (one, other))
    assert all(torch.equal(first[name], second[name]) for name in first)


def spark_daemon(name: str, *words: str, **environment: str) -> Daemon:
    """One of Spark's own."""
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
    given = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS}
    return Daemon(command, **given, **environment)


@pytest.fixture(scope="module", name="local_disk")
def disk_of_executors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which executors of the fixture `master` write."""
    return tmp_path_factory.mktemp("local")


@pytest.fixture(scope="module", name="master")
def standalone_master(tmp_path_factory: pytest.TempPathFactory, local_disk: Path) -> Iterator[str]:
    """The address of a standalone master with a worker of two cores."""
    folder = tmp_path_factory.mktemp("work")
    place = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with closing(spark_daemon("master.Master", *place)) as first:
        address = first.wait_for(r"Starting Spark master at (spark://\S+)")
        size = ("--cores", "2", "--memory", "2g", "--webui-port", "0", "--work-dir", str(folder))
        with closing(spark_daemon("worker.Worker", *size, address, SPARK_LOCAL_DIRS=str(local_disk))) as second:
            second.wait_for("(Successfully registered) with master")
            yield address


TWO_EXECUTORS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "1g",
    "spark.shuffle.io.retryWait": "50ms",  # for blocks of an executor that is gone
}
