"""Pairs in Spark are scored there: the scores are those of one process, and no rows come to the driver."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lotan
from lotan.engines import choice
from lotan.errors import GraphError
from lotan.graph import frames
from lotan.hosts.jar import JAR
from lotan.results.trained_model import TrainedModel
from tests.training.test_links_on_blocks import fit, tables

pytestmark = pytest.mark.spark

FEW = 10
"""The rows that the driver may collect at one time, such as those of statistics."""


def in_spark(spark: SparkSession, given: tuple[pd.DataFrame, pd.DataFrame]) -> lotan.Graph:
    return lotan.Graph(*(spark.createDataFrame(table).coalesce(2) for table in given))


def pairs_of(given: tuple[pd.DataFrame, pd.DataFrame], count: int) -> pd.DataFrame:
    """Return pairs with a column that no model reads, before the others."""
    random, ids = np.random.default_rng(0), given[0]["id"].to_numpy()
    ends = {end: random.choice(ids, count) for end in ("src", "dst")}
    return pd.DataFrame({"a note": np.arange(count), **ends, "relation": random.choice(list("abc"), count)})


@pytest.fixture(scope="module")
def given() -> tuple[pd.DataFrame, pd.DataFrame]:
    return tables(texts=True)


@pytest.fixture(scope="module")
def trained(given: tuple[pd.DataFrame, pd.DataFrame]) -> TrainedModel:
    return fit(lotan.Graph(*given), engine="local").model


def persisted(spark: SparkSession) -> set[int]:
    """Return the numbers of what lies in Spark's storage."""
    return set(spark.sparkContext._jsc.getPersistentRDDs())


def wait_for_release(spark: SparkSession, before: set[int]) -> None:
    """Wait until Spark's storage has nothing that was not there before."""
    gc.unfreeze()  # what was there before this file may refer to it, and be garbage itself
    deadline = time.monotonic() + 60
    while not persisted(spark) <= before:
        assert time.monotonic() < deadline
        gc.collect()
        spark._jvm.System.gc()
        threading.Event().wait(0.1)


def forbid_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no table of the graph, no rows and no pairs come to this process."""

    def refuse(*given: Any, **options: Any) -> Any:
        raise AssertionError("rows were collected")

    collect: Callable[[DataFrame], list[Any]] = DataFrame.collect

    def few(frame: DataFrame) -> list[Any]:
        found = collect(frame)
        assert len(found) <= FEW, "rows were collected"
        return found

    kind = type(SparkSession.active().range(1))
    for name in ("toPandas", "toArrow", "toLocalIterator"):
        monkeypatch.setattr(kind, name, refuse)
    collect = kind.collect
    monkeypatch.setattr(kind, "collect", few)
    monkeypatch.setattr(frames, "collect", refuse)


@pytest.mark.nightly  # by day on pairs of Spark alone, and in tests/ml/test_links.py
@pytest.mark.slow
@pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")
def test_rows_and_pairs_stay_in_spark_where_the_graph_lies(
    spark: SparkSession,
    given: tuple[pd.DataFrame, pd.DataFrame],
    trained: TrainedModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Engine `auto` takes blocks for a graph that does not fit into this process. Nothing stays when nobody has the scores."""
    before = persisted(spark)
    held = pairs_of(given, 500)
    graph, pairs = in_spark(spark, given), spark.createDataFrame(held).repartition(3)
    with monkeypatch.context() as patched:
        forbid_rows(patched)
        patched.setattr(choice, "fits_in_memory", lambda *given: False)
        scored = trained.predict_links(graph, pairs, workers=1, partitions=2)
        assert scored.columns == ["a note", "src", "dst", "relation", "score"]
        assert scored.count() == len(held)
    found = scored.orderBy("a note").toPandas()
    pd.testing.assert_frame_equal(found.drop(columns="score"), held)
    wanted = trained.predict_links(lotan.Graph(*given), held)
    assert found["score"].dtype == wanted["score"].dtype == np.float32
    np.testing.assert_allclose(found["score"], wanted["score"], rtol=0, atol=1e-6)
    del scored
    wait_for_release(spark, before)


def test_pairs_in_spark_are_scored_by_a_model_of_this_process_too(
    spark: SparkSession, given: tuple[pd.DataFrame, pd.DataFrame], trained: TrainedModel
) -> None:
    graph, held = lotan.Graph(*given), pairs_of(given, 50)
    pairs = spark.createDataFrame(held).coalesce(1)
    found = trained.predict_links(graph, pairs).orderBy("a note").toPandas()
    np.testing.assert_allclose(found["score"], trained.predict_links(graph, held)["score"], rtol=0, atol=1e-6)
    for wrong, message in (
        (pairs.withColumn("dst", F.lit("w1")), "pairs.dst: 50 ids that are no vertices .*'w1'.*or predict on another"),
        (
            pairs.withColumn("relation", F.lit("z")),
            "pairs.relation: 50 relations that were not there in training .*'z'",
        ),
        (pairs.withColumn("src", F.lit(3)), "pairs.src: is of type int, expected strings"),
        (pairs.drop("relation"), "pairs: there is no column 'relation'"),
        (pairs.withColumn("score", F.lit(1.0)), "pairs.score: the column is there already"),
    ):
        with pytest.raises(GraphError, match=message):
            trained.predict_links(graph, wrong)


def test_relations_have_the_numbers_of_training_in_a_graph_that_lacks_some(
    spark: SparkSession, given: tuple[pd.DataFrame, pd.DataFrame], trained: TrainedModel
) -> None:
    """No messages pass along links of test, so a graph without the first relation predicts as one where all of it is test."""
    vertices, edges = given
    first = edges["relation"] == "a"
    tested = edges.assign(split=edges["split"].mask(first, "test"))
    held = pairs_of(given, 50)
    graphs = [lotan.Graph(vertices, one) for one in (tested, edges[~first])]
    scores = [trained.predict_links(graph, held)["score"] for graph in graphs]
    np.testing.assert_array_equal(*scores)
    from lotan.links.on_spark import messages_on_spark

    lacking = in_spark(spark, (vertices, edges[~first]))
    found = messages_on_spark(lacking, names=("a", "b", "c")).tables()[1].select("edge_type").distinct().toPandas()
    assert sorted(found["edge_type"]) == [1, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "dev"}, r"edges.split: \d+ rows of an unknown split .*dev"),
        ({"relation": 0.5}, "edges.relation: is of type double, expected integers or strings"),
        ({"relation": 7}, "edges.relation: holds integers, and the relations of training were texts"),
        ({"relation": None}, "edges.relation: 240 rows that are null"),
    ],
)
def test_columns_of_links_that_stay_in_spark_are_checked_there(
    spark: SparkSession, given: tuple[pd.DataFrame, pd.DataFrame], changes: dict[str, Any], message: str
) -> None:
    from lotan.links.on_spark import messages_on_spark

    vertices, edges = (spark.createDataFrame(table) for table in given)
    for name, value in changes.items():
        edges = edges.withColumn(name, F.lit(value).cast("string") if value is None else F.lit(value))
    with pytest.raises(GraphError, match=message):
        messages_on_spark(lotan.Graph(vertices, edges), names=("a", "b", "c"))
