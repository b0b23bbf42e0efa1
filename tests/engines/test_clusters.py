"""Training with executors in processes of their own: Spark's local-cluster, and a standalone master with a worker."""

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

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SPARK_HOME = Path(pyspark.__file__).parent
JOB = "train --graph digits --model gcn --epochs 1 --dropout 0.5 --quiet"


def train(
    report: Path, *more: str, seconds: float = 240, submit: str = "pyspark-shell"
) -> subprocess.CompletedProcess[str]:
    """Runs the job as a process of its own, without the session of the tests; `submit`: arguments for spark-submit."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    environment["PYSPARK_SUBMIT_ARGS"] = submit
    words = [sys.executable, "-m", "lotan", *JOB.split(), "--report", str(report), *more]
    return subprocess.run(words, capture_output=True, text=True, timeout=seconds, env=environment, check=False)


def losses(report: Path) -> list[float]:
    """Of the epoch, and of the evaluation after its step."""
    content = json.loads(report.read_text())
    return [content["epochs"][0]["loss"], *(content["metrics"][split]["loss"] for split in ("train", "val", "test"))]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    report = tmp_path_factory.mktemp("local") / "report.json"
    done = train(report, "--engine", "local")
    assert done.returncode == 0, done.stderr
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


def test_a_job_on_local_cluster(tmp_path: Path, expected: list[float]) -> None:
    """Two executors; again with speculation: the same weights to the bit."""
    weights = []
    for settings in ("", EAGER):
        words = [word for setting in settings.split() for word in ("--conf", setting)]
        report, model = tmp_path / f"report{len(weights)}.json", tmp_path / f"model{len(weights)}"
        master = ("--master", "local-cluster[2,1,2048]", "--workers", "1", "--partitions", "2")
        done = train(
            report, "--engine", "rows", *master, "--save", str(model), submit=" ".join([*words, "pyspark-shell"])
        )
        assert done.returncode == 0, done.stderr
        assert losses(report) == pytest.approx(expected, rel=1e-4)
        weights.append(torch.load(model / "weights.pt", weights_only=True))
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_job_on_a_standalone_master(tmp_path: Path, expected: list[float]) -> None:
    report = tmp_path / "report.json"
    master = "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
    with spark_class(*master) as first:
        address = wait_for_line(first, r"Starting Spark master at (spark://\S+)")
        worker = ("--cores", "2", "--memory", "1500m", "--webui-port", "0", "--work-dir", str(tmp_path / "work"))
        with spark_class("org.apache.spark.deploy.worker.Worker", *worker, address) as second:
            wait_for_line(second, "(Successfully registered) with master")
            done = train(report, "--engine", "rows", "--master", address, "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert losses(report) == pytest.approx(expected, rel=1e-4)


def test_a_dead_master_is_told_at_once(tmp_path: Path) -> None:
    done = train(tmp_path / "report.json", "--engine", "rows", "--master", "spark://127.0.0.1:1", seconds=60)
    assert done.returncode == 1
    assert "no Spark master answers at spark://127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
