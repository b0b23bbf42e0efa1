"""Propagate by `aggregateMessages` against sums by hand."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from lotan.datasets import generate
from lotan.engines.choice import ENGINES
from lotan.engines.rows.engine import RowsEngine, RowsSettings
from lotan.engines.rows.graphframes_form import has_core, propagate_by_messages, require_core
from lotan.errors import ConfigurationError
from lotan.graph.graph import Graph
from lotan.hosts.session import Session, SessionSettings
from planner import Options
from planner.cost.seconds import Pricing
from tests.exactness.cases import models, sample, trained_on
from tests.exactness.steps import assert_equals_truth, plan_of, train

pytestmark = pytest.mark.spark


@pytest.mark.graphframes
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_sums_equal_sums_by_hand(spark, weighted, reverse):
    plain = generate(60, 400, width=3, seed=2).arrays()
    weight = np.random.default_rng(2).random(len(plain.src), dtype=np.float32) if weighted else None
    graph = Graph.from_arrays(plain.features, plain.src, plain.dst, weight=weight)
    arrays = graph.arrays()
    start, end = (arrays.dst, arrays.src) if reverse else (arrays.src, arrays.dst)
    expected = np.zeros_like(arrays.features)
    np.add.at(expected, end, arrays.features[start] * (1.0 if weight is None else arrays.weight[:, np.newaxis]))

    vertices, edges = graph.frames(spark)
    column = vertices.selectExpr("id", "features AS value")
    result = propagate_by_messages(vertices, edges, column, weighted=weighted, reverse=reverse)
    found = {row.id: row.value for row in result.collect()}
    release(result)
    assert set(found) == set(np.unique(end).tolist())
    for row, value in found.items():
        np.testing.assert_allclose(value, expected[row], rtol=1e-5, atol=1e-5)


@pytest.mark.graphframes
def test_vertices_without_a_row_send_nothing(spark):
    graph = Graph.from_arrays(np.ones((3, 2)), np.array([0, 1, 1]), np.array([1, 2, 2]))
    vertices, edges = graph.frames(spark)
    column = vertices.where("id = 1").selectExpr("id", "features AS value")
    result = propagate_by_messages(vertices, edges, column, weighted=False, reverse=False)
    rows = [tuple(row) for row in result.collect()]
    release(result)
    assert rows == [(2, [2.0, 2.0])]  # parallel edges count twice


@pytest.mark.graphframes
def test_nothing_but_the_result_is_kept(spark):
    graph = Graph.from_arrays(np.ones((3, 2)), np.array([0, 1]), np.array([1, 2]))
    vertices, edges = graph.frames(spark)
    kept = spark.sparkContext._jsc.getPersistentRDDs
    before = set(kept())
    column = vertices.selectExpr("id", "features AS value")
    result = propagate_by_messages(vertices, edges, column, weighted=False, reverse=False)
    assert len(set(kept()) - before) == 1
    release(result)
    assert set(kept()) == before


def release(frame):
    """As `lotan.engines.rows.placement.Pinned` does."""
    frame._jdf.queryExecution().logical().rdd().unpersist(True)


def test_a_session_without_the_core_is_refused_with_a_remedy(spark):
    if has_core(spark):
        pytest.skip("this session has GraphFrames' JVM core")
    with pytest.raises(ConfigurationError, match=r"spark\.jars\.packages=io\.graphframes:graphframes-spark4_2\.13"):
        require_core(spark)


@pytest.mark.graphframes
@pytest.mark.parametrize("pruned", [False, True])
def test_an_epoch_by_messages_equals_plain_autograd(spark, pruned):
    """The whole engine with this form, on a model that propagates forward and back, weighted."""
    drawn = trained_on(sample(2, 24, 20, weighted=True), [0, 9]) if pruned else sample(seed=2, weighted=True)
    options = Options(pricing=Pricing(ENGINES["rows"]), disabled=("reuse_evaluation" if pruned else "prune_vertices",))
    planned = plan_of("GCN", drawn, options)
    assert any(step.within is not None for step in planned.plan.train) == pruned
    ours, truth = models("GCN", seed=2)
    kept = set(spark.sparkContext._jsc.getPersistentRDDs())
    with Session(SessionSettings(workers=1)) as session:
        settings = RowsSettings(partitions=2, propagate="messages")
        with closing(RowsEngine(spark, session.link, session.endpoint, settings)) as engine:
            found = train(engine, planned, ours, drawn)
    assert_equals_truth(found, "GCN", truth, drawn)
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) == kept


@pytest.mark.nightly
def test_asking_for_messages_without_the_core_is_refused(spark):
    if has_core(spark):
        pytest.skip("this session has GraphFrames' JVM core")
    with (
        Session(SessionSettings(workers=1)) as session,
        pytest.raises(ConfigurationError, match=r"spark\.jars\.packages"),
    ):
        RowsEngine(spark, session.link, session.endpoint, RowsSettings(propagate="messages"))
