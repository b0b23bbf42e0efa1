"""The Trainer on the blocks engine, which "auto" takes for a graph in Spark: the same numbers as on the local one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from pyspark.sql import DataFrame, SparkSession

import lotan
from lotan.hosts.jar import JAR
from planner.steps.pipe import PipeStep
from tests.training.test_trainer_rows import _fit, _in_spark, _tables

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar"),
]


@pytest.mark.parametrize("ids", ["int", pytest.param("string", marks=pytest.mark.nightly)])
def test_auto_is_blocks_and_equals_local(spark: SparkSession, ids: str) -> None:
    run, local = _fit(_in_spark(spark, ids), engine="auto"), _fit(lotan.Graph(*_tables(ids)), engine="local")
    assert run.report["engine"] == "blocks"
    assert run.report["engine_reason"].startswith("the graph is in Spark; ")
    assert [entry["loss"] for entry in run.history] == pytest.approx([e["loss"] for e in local.history], rel=1e-5)
    assert run.metrics["test"] == pytest.approx(local.metrics["test"], rel=1e-5)
    for name, weights in run.model.weights.items():
        torch.testing.assert_close(weights, local.model.weights[name], rtol=1e-5, atol=1e-5, msg=name)
    assert all(run.report["bytes"][key] > 0 for key in ("messenger_sent", "messenger_received", "shuffle_written"))
    predicted, expected = run.predict(), local.predict()
    try:
        assert isinstance(predicted, DataFrame)
        assert predicted.schema["id"].dataType.simpleString() == ids
        rows = predicted.toPandas().sort_values("id", ignore_index=True)
    finally:
        predicted.unpersist()
    expected = expected.sort_values("id", ignore_index=True)
    assert rows["id"].tolist() == expected["id"].tolist()
    assert rows["prediction"].tolist() == expected["prediction"].tolist()
    np.testing.assert_allclose(np.stack(rows["probability"]), np.stack(expected["probability"]), rtol=1e-4, atol=1e-6)


@pytest.mark.nightly
def test_static_rows_are_sent_once_where_training_has_fewer_than_evaluation(spark: SparkSession) -> None:
    """On the same worker: what four epochs more have sent is less than the features, which they read eight times."""
    count, width, training = 400, 64, 40
    random = np.random.default_rng(0)
    vertices = pd.DataFrame({
        "id": np.arange(count),
        "features": list(random.normal(size=(count, width)).astype(np.float32)),
        "label": random.integers(0, 3, size=count),
        "split": ["train"] * training + ["test"] * (count - training),
    })  # fmt: skip
    source, target = random.integers(0, count, size=(2, 400))
    graph = lotan.Graph(vertices, pd.DataFrame({"src": source, "dst": target}))
    sent = []
    for epochs in (2, 6):
        torch.manual_seed(0)
        model = lotan.nn.GCN(width, 4, 2, 3, dropout=0.5)
        trainer = lotan.Trainer(model, graph, engine="blocks", workers=1, partitions=2, epochs=epochs, progress=False)
        pipes = [
            step
            for steps in (trainer.job.plan.train, trainer.job.plan.evaluate)
            for step in steps
            if isinstance(step, PipeStep)
        ]
        assert len({step.within for step in pipes}) > 1
        sent.append(trainer.fit().report["bytes"]["messenger_sent"])
    assert sent[1] - sent[0] < 4 * count * width


def test_a_bad_graph_is_refused_before_anything_starts(spark: SparkSession) -> None:
    vertices, edges = _in_spark(spark).tables()
    dangling = edges.union(spark.createDataFrame([(3, 999)], edges.schema))
    with pytest.raises(lotan.GraphError, match="999"):
        _fit(lotan.Graph(vertices, dangling), engine="blocks")
