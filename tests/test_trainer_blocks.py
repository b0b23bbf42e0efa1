"""The Trainer on the blocks engine, which "auto" takes for a graph in Spark: the same numbers as on the local one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pyspark.sql import DataFrame, SparkSession

import lotan
from lotan.jar import JAR
from tests.test_trainer_rows import _fit, _in_spark, _tables

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar"),
]


@pytest.mark.parametrize("ids", ["int", "string"])
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
        rows = predicted.toPandas().sort_values("id", ignore_index=True)
    finally:
        predicted.unpersist()
    expected = expected.sort_values("id", ignore_index=True)
    assert rows["id"].tolist() == expected["id"].tolist()
    assert rows["prediction"].tolist() == expected["prediction"].tolist()
    np.testing.assert_allclose(np.stack(rows["probability"]), np.stack(expected["probability"]), rtol=1e-4, atol=1e-6)


def test_a_bad_graph_is_refused_before_anything_starts(spark: SparkSession) -> None:
    vertices, edges = _in_spark(spark).tables()
    dangling = edges.union(spark.createDataFrame([(3, 999)], edges.schema))
    with pytest.raises(lotan.GraphError, match="999"):
        _fit(lotan.Graph(vertices, dangling), engine="blocks")
