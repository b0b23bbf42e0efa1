"""Training with executors in processes of their own: Spark's local-cluster, and spark-submit to a standalone master."""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
import torch
from pyspark.sql import SparkSession

from lotan.cli import main
from tests.conftest import ROOT

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


@contextmanager
def spark_class(name: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """One of Spark's own daemons."""
    environment = os.environ | {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    process = subprocess.Popen(
        [str(SPARK_HOME / "bin" / "spark-class"), name, *words], stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stderr is not None
        process.stderr.close()


def wait_for_line(process: subprocess.Popen[str], pattern: str, seconds: float = 60) -> str:
    """The first group of the first line that matches."""
    deadline, seen = time.monotonic() + seconds, ""
    assert process.stderr is not None
    descriptor = process.stderr.fileno()
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            if selector.select(1):
                seen += os.read(descriptor, 65536).decode()
                if found := re.search(pattern, seen):
                    return found[1]
    raise AssertionError(f"no line matches {pattern!r} in:\n{seen}")


EAGER = "spark.speculation=true spark.speculation.interval=5ms spark.speculation.quantile=0.1 spark.speculation.multiplier=1"
"""Spark starts a second attempt of nearly every task, in the other executor, while the first one runs."""


def test_speculation_on_two_executors_changes_no_bit(
    tmp_path: Path, spark: SparkSession, expected: list[float]
) -> None:
    """Against the same partitions in the suite's own process."""
    rows = ("--engine", "rows", "--workers", "1", "--partitions", "2", "--save")
    conf = [word for setting in EAGER.split() for word in ("--conf", setting)]
    report, here, there = tmp_path / "report.json", tmp_path / "here", tmp_path / "there"
    assert main(words(report, *rows, str(here))) == 0
    cluster = [sys.executable, "-m", "lotan", *words(report, "--master", "local-cluster[2,1,2048]", *rows, str(there))]
    done = run(cluster, PYSPARK_SUBMIT_ARGS=" ".join([*conf, "pyspark-shell"]))
    assert done.returncode == 0, done.stderr
    assert losses(report) == pytest.approx(expected, rel=1e-4)
    one, other = (torch.load(model / "weights.pt", weights_only=True) for model in (here, there))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_spark_submit_to_a_standalone_master(tmp_path: Path, expected: list[float]) -> None:
    """With the script of the README, and with Spark as it comes: compilers and all."""
    report = tmp_path / "report.json"
    tools = Path(sys.executable).parent
    master = "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
    with spark_class(*master) as first:
        address = wait_for_line(first, r"Starting Spark master at (spark://\S+)")
        worker = ("--cores", "2", "--memory", "1500m", "--webui-port", "0", "--work-dir", str(tmp_path / "work"))
        with spark_class("org.apache.spark.deploy.worker.Worker", *worker, address) as second:
            wait_for_line(second, "(Successfully registered) with master")
            submit = [str(tools / "spark-submit"), "--master", address, "--conf", "spark.ui.enabled=false"]
            script = [str(ROOT / "examples" / "train.py"), *words(report, "--engine", "rows", "--workers", "1")[1:]]
            path = os.pathsep.join([str(tools), os.environ["PATH"]])
            done = run([*submit, *script], PATH=path, SPARK_CONF_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert losses(report) == pytest.approx(expected, rel=1e-4)


def test_a_dead_master_is_told_at_once(tmp_path: Path) -> None:
    job = words(tmp_path / "report.json", "--engine", "rows", "--master", "spark://127.0.0.1:1")
    done = run([sys.executable, "-m", "lotan", *job])
    assert done.returncode == 1
    assert "no Spark master answers at spark://127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
