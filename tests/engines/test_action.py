"""The action of a pass on a real Spark."""

from __future__ import annotations

import threading
import time

import pytest
from pyspark.sql import SparkSession

from lotan.engines.action import force

pytestmark = pytest.mark.spark


def test_an_interrupt_that_python_has_lost_ends_the_pass(spark: SparkSession) -> None:
    """PySpark's handler cancels all jobs and then raises; where that is ignored, the cancelled job is all there is."""
    context = spark.sparkContext
    started = threading.Event()

    def cancel() -> None:
        assert started.wait(30)
        deadline = time.monotonic() + 30
        while not context.statusTracker().getActiveJobsIds() and time.monotonic() < deadline:
            threading.Event().wait(0.05)
        context.cancelAllJobs()

    def action() -> None:
        started.set()
        spark.range(0, 2, 1, 2).selectExpr("reflect('java.lang.Thread', 'sleep', 20000L)").collect()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(KeyboardInterrupt):
        force(context, action, "a pass", attempts=2, stall_seconds=60)
    canceller.join(30)
