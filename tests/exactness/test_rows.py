"""Every model on Spark rows with real workers: loss, gradients and weights after three steps equal plain autograd's.

A fixed spread: each model once, and between them every kind of plan and 1 to 5 partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from lotan.engines.rows.engine import RowsEngine, RowsSettings
from lotan.session import Session, SessionSettings
from tests.exactness.cases import CASES, models, sample
from tests.exactness.steps import OPTIONS, assert_equals_truth, plan_of, train

pytestmark = pytest.mark.spark

SPREAD = [
    ("GCN", "auto", 3),
    ("GCN", "no drop_unit_weight", 2),
    ("GCN, three layers, jumping", "no hoist_invariant", 1),
    ("GraphSAGE", "no drop_dead_gradients", 4),
    ("GraphSAGE, max", "auto", 2),
    ("GraphSAGE, sum, projected", "naive backward", 3),
    ("GIN", "no push_down", 5),
    ("GAT", "auto", 3),
    ("GAT", "general, naive backward", 2),
    ("MLP", "no fuse_apply", 2),
    ("residual", "general", 1),
    ("branches", "no lift_message", 2),
    ("shared layer", "auto", 5),
    ("twins", "general", 2),
    ("own layer", "general", 3),
    ("hops", "no commute_linear", 2),
]


@pytest.fixture(scope="module")
def workers() -> Iterator[Session]:
    with Session(SessionSettings(workers=2)) as session:
        yield session


def test_the_spread_covers_all_models_plans_and_partition_counts():
    assert {name for name, _, _ in SPREAD} == set(CASES)
    assert {options for _, options, _ in SPREAD} == set(OPTIONS)
    assert {partitions for _, _, partitions in SPREAD} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(("name", "options", "partitions"), SPREAD)
def test_equals_autograd(name, options, partitions, spark, workers):
    drawn = sample(seed=partitions, vertices=20, edges=50, weighted=CASES[name].weights, directed=partitions % 2 == 0)
    ours, truth = models(name, seed=partitions)
    settings = RowsSettings(partitions=partitions, chunk_rows=4)
    with closing(RowsEngine(spark, workers.link, workers.endpoint, settings)) as engine:
        found = train(engine, plan_of(name, drawn, OPTIONS[options]), ours, drawn)
    assert_equals_truth(found, name, truth, drawn)
