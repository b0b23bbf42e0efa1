"""A session that trains for long holds no more after thirty epochs than after ten, and after a fit than before."""

from __future__ import annotations

import gc
import threading
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from py4j.finalizer import ThreadSafeFinalizer
from pyspark.sql import SparkSession

import lotan
from lotan.engines.base import Pass, run
from lotan.engines.blocks.engine import BlocksEngine
from lotan.engines.blocks.settings import BlocksSettings
from lotan.hosts.session import Session
from tests.exactness.cases import models, sample
from tests.exactness.steps import plan_of
from tests.exactness.test_blocks import BLOCKS
from tests.leaks import SHARED_MEMORY

pytestmark = pytest.mark.spark

MORE = 20  # epochs; what each adds one of is a leak, and pools of threads may still grow by a few
FEW = 10  # Java objects
SETTLE_SECONDS = 20  # for Spark's cleaner, which follows the garbage collector


def held(spark: SparkSession, workers: Session) -> dict[str, int]:
    """What a leak would add to, counted now."""
    gc.collect()
    spark._jvm.System.gc()
    context = spark.sparkContext._jsc
    processes = [psutil.Process(pid) for pid in workers.worker_processes.values()]
    return {
        "persisted RDDs": context.getPersistentRDDs().size(),
        "files of shuffles": sum(1 for _ in Path(context.getConf().get("spark.local.dir")).rglob("shuffle_*")),
        "Java objects that Python refers to": len(ThreadSafeFinalizer.finalizers),
        "threads of Java": spark._jvm.java.lang.management.ManagementFactory.getThreadMXBean().getThreadCount(),
        "regions of shared memory": sum(map(regions, processes)),
        "files open in workers": sum(process.num_fds() for process in processes),
    }


def regions(process: psutil.Process) -> int:
    """Files without a name that a process has mapped from shared memory."""
    return sum(1 for found in process.memory_maps(grouped=False) if found.path.startswith(str(SHARED_MEMORY)))


@pytest.mark.nightly
@pytest.mark.parametrize("shuffled", [False, True])
def test_thirty_epochs_hold_what_ten_do(spark: SparkSession, workers: Session, shuffled: bool) -> None:
    drawn = sample(5)
    plan = plan_of("GAT", drawn, BLOCKS["auto"]).plan
    parameters = {name: value.detach() for name, value in models("GAT", seed=0)[0].state_dict().items()}
    settings = BlocksSettings(partitions=2, chunk_rows=8, shuffled=shuffled)
    with closing(BlocksEngine(spark, workers.link, workers.endpoint, settings)) as engine:
        engine.load(drawn.graph, plan)
        for epoch in range(10):
            run(engine, plan, plan.train, Pass(epoch, parameters))
        first = held(spark, workers)
        for epoch in range(10, 10 + MORE):
            run(engine, plan, plan.train, Pass(epoch, parameters))
        end = time.monotonic() + SETTLE_SECONDS
        while grown := {k: count for k, count in held(spark, workers).items() if count >= first[k] + MORE}:
            assert time.monotonic() < end, f"grown to {grown} from {first}"
            threading.Event().wait(0.05)


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ["blocks", "rows"])
def test_a_graph_that_was_sent_to_spark_is_not_kept_there_until_python_collects_garbage(
    engine: str, spark: SparkSession
) -> None:
    """Of a fit that is over, Python refers to hardly any Java object, though its collector is off."""

    def fit() -> None:
        lotan.Trainer(lotan.nn.GCN(8, 4, 2, 3), graph, epochs=1, engine=engine, workers=1, progress=False).fit()

    graph = lotan.datasets.generate(200, 800, 8, 3, seed=0)
    fit()  # what a first one imports and caches
    gc.collect()
    before = set(ThreadSafeFinalizer.finalizers)
    gc.disable()
    try:
        fit()
        added = set(ThreadSafeFinalizer.finalizers) - before
    finally:
        gc.enable()
    assert len(added) < FEW
