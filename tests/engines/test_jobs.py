"""What Spark knows of a training's jobs: what each is, in its UI, and that it may be cancelled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from lotan.engines.action import named_jobs
from lotan.engines.commits import described_pass
from lotan.errors import EngineError
from lotan.hosts.jar import JAR
from planner.physical import Column
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from tests.engines.blocks.faults import Place, at_commit
from tests.tracking.runs import trainer

pytestmark = pytest.mark.spark

NEEDS_JAR = pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")
ENGINES = [pytest.param("rows", marks=pytest.mark.nightly), pytest.param("blocks", marks=NEEDS_JAR)]


def jobs(context: SparkContext) -> list[Any]:
    """Spark's own records of all its jobs, latest first."""
    return list(each(context._jsc.sc().statusStore().jobsList(None)))


def each(sequence: Any) -> Iterator[Any]:
    for place in range(sequence.length()):
        yield sequence.apply(place)


def operators(context: SparkContext, job: Any) -> str:
    """All that the UI draws of a job's stages: what each box is called. Of a stage that was skipped it may draw nothing."""
    store, graphs = context._jsc.sc().statusStore(), []

    def boxes(cluster: Any) -> Iterator[str]:
        yield from (node.callsite() for node in each(cluster.childNodes()))
        for inner in each(cluster.childClusters()):
            yield from boxes(inner)

    for number in each(job.stageIds()):
        with suppress(Py4JJavaError):
            graphs.append(store.operationGraphForStage(number))
    return "\n".join(box for graph in graphs for box in boxes(graph.rootCluster()))


def queries(spark: SparkSession) -> str:
    """The physical plans that the UI's tab for SQL shows."""
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    return "\n".join(query.physicalPlanDescription() for query in each(found))


@pytest.mark.parametrize("engine", ENGINES)
def test_jobs_say_epoch_stage_and_operator(engine: str, spark: SparkSession) -> None:
    context = spark.sparkContext
    last = max((job.jobId() for job in jobs(context)), default=-1)  # not their number: Spark forgets early ones
    trainer(engine=engine, epochs=1, workers=1, partitions=2).fit()
    ours = [job for job in jobs(context) if job.jobId() > last]
    said = [job.description().get() for job in ours]
    assert all(line.startswith("lotan: ") for line in said)
    training = "epoch 1, training: train.0 forward > Propagate > train.1 turn > Propagate > train.0 backward"
    evaluation = "epoch 1, evaluation: evaluate.0 forward > Propagate > evaluate.1 evaluate"
    assert {f"lotan: {training}", f"lotan: {evaluation}", f"lotan: loading the graph in {engine}"} <= set(said)
    job = next(job for job in ours if training in job.description().get())
    assert re.fullmatch(r"lotan-[0-9a-f]{8}: epoch 1, training", job.jobGroup().get())
    assert job.name() == "epoch 1, training"
    if engine == "blocks":
        drawn = operators(context, job)
        assert "Pipe(train.0, forward) -> mul_1" in drawn
        assert "Propagate(mul_1, self_loops" in drawn
    else:
        assert "train.0 backward(" in queries(spark)
    assert context.getLocalProperty("callSite.short") is None


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cancelled_job_ends_the_run_and_is_not_tried_again(
    engine: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its group, as an administrator would, or the link in Spark's UI by its number: in the middle of an epoch."""
    context = spark.sparkContext
    cancelled = []

    def cancel() -> None:
        cancelled.append(next(job for job in jobs(context) if job.status().toString() == "RUNNING"))
        context.cancelJobGroup(cancelled[0].jobGroup().get())

    at_commit(monkeypatch, Place("train.1", "turn"), cancel)
    with pytest.raises(EngineError, match=r"^epoch 1, training: .*Job \d+ cancelled"):
        trainer(engine=engine, epochs=1, workers=1, partitions=2).fit()
    assert jobs(context)[0].jobId() == cancelled[0].jobId()


def test_the_group_of_a_notebooks_cell_is_kept(spark: SparkSession) -> None:
    """By which the notebook cancels all that the cell has started."""
    context = spark.sparkContext
    context.setJobGroup("cell 7", "of a notebook")
    try:
        with named_jobs(context, "epoch 1: Propagate"):
            spark.range(1).count()
        assert context.getLocalProperty("spark.jobGroup.id") == "cell 7"
        assert context.getLocalProperty("spark.job.description") == "of a notebook"
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]
    latest = jobs(context)[0]
    assert (latest.jobGroup().get(), latest.description().get()) == ("cell 7", "lotan: epoch 1: Propagate")


def test_a_long_pass_is_named_by_its_first_operators() -> None:
    sum_up = PropagateStep(input="a", output=Column("b", (1,)), edges="edges")
    steps = [PipeStep("train.0", "forward", (), (), (), ()), *[sum_up] * 30]
    said = described_pass(steps, 3)
    assert said.startswith("epoch 3, computed once: train.0 forward > Propagate > ")
    assert said.endswith("> 7 more")
