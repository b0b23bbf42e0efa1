"""Training with executors in processes of their own: Spark's local-cluster, and spark-submit to a standalone master."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from pyspark import SparkContext
from pyspark.sql import SparkSession

import lotan
from lotan.batches.on_spark import SparkBatches
from lotan.cli import main
from lotan.engines.base import Outcome, Pass
from lotan.hosts.jar import JAR
from lotan.hosts.local_folder import remove_stale
from lotan.planning import learned
from tests.conftest import ROOT
from tests.engines.blocks.faults import Place, at_commit
from tests.engines.standalone import (
    JOB,
    TWO_EXECUTORS,
    assert_same_weights,
    disk_of_executors,  # noqa: F401  the fixture `local_disk`
    losses,
    run,
    standalone_master,  # noqa: F401  the fixture `master`
    submitted,
    words,
)
from tests.training.test_mini_batches_on_blocks import routers_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    report = tmp_path_factory.mktemp("local") / "report.json"
    assert main(words(report, "--engine", "local")) == 0
    return losses(report)


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


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_spark_submit_to_a_standalone_master(tmp_path: Path, master: str, expected: list[float]) -> None:
    """With the script of the README, and with Spark as it comes: compilers and all."""
    report = tmp_path / "report.json"
    tools = Path(sys.executable).parent
    submit = [str(tools / "spark-submit"), "--master", master, "--conf", "spark.ui.enabled=false"]
    script = [str(ROOT / "examples" / "train.py"), *words(report, "--engine", "rows", "--workers", "1")[1:]]
    path = os.pathsep.join([str(tools), os.environ["PATH"]])
    done = run([*submit, *script], PATH=path, SPARK_SUBMIT_OPTS="")
    assert done.returncode == 0, done.stderr
    assert losses(report) == pytest.approx(expected, rel=1e-4)


KILL = """
import sys
import tempfile
from tests.engines.test_clusters import train_and_kill_an_executor
train_and_kill_an_executor(*sys.argv[1:])
"""


def blocks(*more: str) -> list[str]:
    """A job of two epochs on blocks, with passes of evaluation: they are counted."""
    given = ["--engine", "blocks", "--partitions", "3", "--disable", "reuse_evaluation"]
    return [*JOB.replace("--epochs 1", "--epochs 2").split(), *given, *more]


def kill_an_executor() -> None:
    """Kill one of the two executors of this process's application."""
    executors = SparkContext._active_spark_context._jsc.sc().statusTracker().getExecutorInfos()
    assert len(executors) == 3, "the driver and two executors"
    next(process for process in psutil.process_iter() if executes(process)).kill()


def train_and_kill_an_executor(master: str, folder: str) -> None:
    """The job, with an executor killed while the second epoch runs backward."""
    patch, killed = pytest.MonkeyPatch(), []

    def kill_one() -> None:
        kill_an_executor()
        killed.append(True)

    at_commit(patch, Place("train.0", "backward"), kill_one, number=4)  # the first pass prepares
    assert main(blocks("--master", master, "--workers", "1", "--save", folder)) == 0
    assert killed


BATCHES = ("--batch-size", "40")  # five batches an epoch


def train_on_batches_and_kill(master: str, folder: str, fanouts: str = "4,3") -> None:
    """The job on mini-batches: an executor is killed as a batch of the second epoch begins, and the Router later in it."""
    turn, begun = SparkBatches._turn, []

    def disturbed(self: SparkBatches, batch: Any, a_pass: Pass) -> Outcome:
        begun.append(place := (a_pass.epoch, batch.number))
        if place == (2, 1) and begun.count(place) == 1:
            kill_an_executor()
        if place == (2, 2) and begun.count(place) == 1:
            os.kill(*routers_of(os.getpid()), signal.SIGKILL)
        return turn(self, batch, a_pass)

    pytest.MonkeyPatch().setattr(SparkBatches, "_turn", disturbed)
    options = ("--master", master, "--workers", "1", "--worker-rows", "8m", *BATCHES, "--fanouts", fanouts)
    assert main(blocks(*options, "--save", folder)) == 0
    assert begun[-1] == (2, 4), "there are batches after the kills"


def executes(process: psutil.Process) -> bool:
    """Whether it is an executor of this process's application."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    port = SparkContext._active_spark_context.getConf().get("spark.driver.port")
    return "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and any(f":{port}" in w for w in words)


@pytest.mark.nightly
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


KILL_AMONG_BATCHES = KILL.replace("train_and_kill_an_executor", "train_on_batches_and_kill")


@pytest.mark.nightly
@pytest.mark.chaos
@pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")
@pytest.mark.parametrize("fanouts", ["4,3", "all,all"])
def test_an_executor_and_the_router_killed_among_batches_change_no_bit(
    tmp_path: Path, master: str, spark: SparkSession, fanouts: str
) -> None:
    """The executor takes half of the graph, of the edges that were drawn, and the batches that it was gathering.

    With all neighbours it also takes half of the first sums, which are computed again.
    """
    assert main(blocks("--save", str(tmp_path / "here"), *BATCHES, "--fanouts", fanouts)) == 0
    done = run(
        [sys.executable, "-c", KILL_AMONG_BATCHES, master, str(tmp_path / "there"), fanouts],
        PYSPARK_SUBMIT_ARGS=submitted(TWO_EXECUTORS),
    )
    assert done.returncode == 0, done.stderr
    assert_same_weights(tmp_path / "here", tmp_path / "there")


class Embedded(torch.nn.Module):
    """Learned rows beside features."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.encoder = lotan.nn.LearnedFeatures(4), lotan.nn.GCN(64 + 4, 8, 2, 10, dropout=0.5)

    def forward(self, x: torch.Tensor, graph: lotan.nn.EdgeIndex) -> torch.Tensor:
        return self.encoder(torch.cat([x, self.rows(graph)], dim=1), graph)


def train_rows(folder: str | Path, **options: Any) -> None:
    """Train rows that lie in Spark for three epochs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learned, "LEAST_IN_SPARK", 1)
        torch.manual_seed(0)
        given = {"engine": "blocks", "partitions": 3, "epochs": 3, "disable": ("reuse_evaluation",), "progress": False}
        trainer = lotan.Trainer(
            Embedded(), lotan.Graph.read("digits"), optimizer=lotan.Adam(lr=0.01), **given, **options
        )
        assert trainer.job.rows_in_spark
        trainer.fit().save(folder)


def train_rows_and_kill(master: str, folder: str) -> None:
    """The same, with an executor killed while the second epoch runs backward."""
    killed = at_commit(pytest.MonkeyPatch(), Place("train.0", "backward"), kill_an_executor, number=3)
    train_rows(folder, master=master, workers=1)
    assert killed.is_set()


@pytest.mark.nightly
@pytest.mark.chaos
@pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")
def test_learned_rows_survive_an_executor_that_is_killed(tmp_path: Path, master: str, spark: SparkSession) -> None:
    """It takes half of the rows and of their state, of which the other executor has a copy."""
    train_rows(tmp_path / "here", workers=1)
    kill = KILL.replace("train_and_kill_an_executor", "train_rows_and_kill")
    done = run(
        [sys.executable, "-c", kill, master, str(tmp_path / "there")], PYSPARK_SUBMIT_ARGS=submitted(TWO_EXECUTORS)
    )
    assert done.returncode == 0, done.stderr
    assert_same_weights(tmp_path / "here", tmp_path / "there")


def train_beyond_storage(folder: str | Path, **options: Any) -> lotan.Trainer:
    """Train for an epoch with columns of 100 MB, of which at least four exist together."""
    torch.manual_seed(0)
    graph, model = lotan.datasets.generate(100_000, 300_000, 8, 4), lotan.nn.GCN(8, 256, 3, 4, dropout=0.5)
    given = {"engine": "blocks", "partitions": 2, "epochs": 1, "workers": 1, "progress": False}
    trainer = lotan.Trainer(model, graph, optimizer=lotan.Adam(lr=0.01), **given, **options)
    trainer.fit().save(folder)
    return trainer


def train_beyond_storage_there(master: str, folder: str) -> None:
    """The same under a limit. As the epoch ends, say as JSON what Spark holds in memory and on disks, and its executors."""
    found: dict[str, int] = {}

    def look() -> None:
        store, every = SparkContext._active_spark_context._jsc.sc().statusStore(), False
        columns, executors = store.rddList(True), store.executorList(every)
        columns = [columns.apply(place) for place in range(columns.length())]
        executors = [executors.apply(place) for place in range(executors.length())]
        found["memory"] = sum(one.memoryUsed() for one in columns)
        found["disk"] = sum(one.diskUsed() for one in columns)
        found["room"] = sum(one.maxMemory() for one in executors if one.id() != "driver")
        found["executors"] = len(executors) - 1  # the driver is one of them

    at_commit(pytest.MonkeyPatch(), Place("train.0", "backward"), look, number=2)
    train_beyond_storage(folder, master=master, memory_limit="3g")
    print(json.dumps(found))


@pytest.mark.nightly
@pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")
def test_columns_of_several_times_the_storage_of_executors_change_no_bit(
    tmp_path: Path, master: str, local_disk: Path, spark: SparkSession
) -> None:
    """Two executors with hardly more than the least heap of Spark. None of them is lost, and no file is left."""
    train_beyond_storage(tmp_path / "here")
    train = KILL.replace("train_and_kill_an_executor", "train_beyond_storage_there")
    small = {**TWO_EXECUTORS, "spark.executor.memory": "512m"}
    done = run([sys.executable, "-c", train, master, str(tmp_path / "there")], PYSPARK_SUBMIT_ARGS=submitted(small))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["executors"] == 2, "executors that are dead count too"
    assert found["memory"] + found["disk"] > 3 * found["room"]
    assert found["disk"] > 2 * found["room"]
    assert_same_weights(tmp_path / "here", tmp_path / "there")
    end = time.monotonic() + 60  # the worker removes the folders of executors after the application has ended
    while left := [file for file in local_disk.rglob("*") if file.is_file()]:
        assert time.monotonic() < end, left
        time.sleep(0.2)


def test_a_dead_master_is_told_at_once(tmp_path: Path) -> None:
    job = words(tmp_path / "report.json", "--engine", "rows", "--master", "spark://127.0.0.1:1")
    done = run([sys.executable, "-m", "lotan", *job])
    assert done.returncode == 1
    assert "no Spark master answers at spark://127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
