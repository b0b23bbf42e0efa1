"""Every model on Spark blocks with real workers: loss, gradients and weights after three steps equal plain autograd's.

A fixed spread: each model twice, and between them 1, 2, 3 and 7 partitions, by shuffles and through one heap; each kind of
plan; empty partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from lotan.engines.blocks.engine import BlocksEngine, BlocksSettings
from lotan.graph import Graph
from lotan.session import Session, SessionSettings
from tests.exactness.cases import CASES, Sample, models, sample
from tests.exactness.steps import OPTIONS, assert_equals_truth, plan_of, train

pytestmark = pytest.mark.spark

SUMMED = [name for name, options in OPTIONS.items() if options.rgb]  # a gradient per edge is for the rows engine


@pytest.fixture(scope="module")
def workers() -> Iterator[Session]:
    with Session(SessionSettings(workers=2)) as session:
        yield session


def check(
    spark,
    workers: Session,
    name: str,
    options: str,
    drawn: Sample,
    partitions: int,
    shuffled: bool,
    chunk_rows: int = 4,
) -> None:
    ours, truth = models(name, seed=partitions)
    settings = BlocksSettings(partitions=partitions, chunk_rows=chunk_rows, shuffled=shuffled)
    with closing(BlocksEngine(spark, workers.link, workers.endpoint, settings)) as engine:
        found = train(engine, plan_of(name, drawn, OPTIONS[options]), ours, drawn)
    assert_equals_truth(found, name, truth, drawn)


PARTITIONS = (1, 3, 2, 7)
SPREAD = [(name, PARTITIONS[(number + more) % 4]) for number, name in enumerate(CASES) for more in (0, 1)]


@pytest.mark.parametrize(("name", "partitions"), SPREAD)
def test_equals_autograd(name, partitions, spark, workers):
    drawn = sample(partitions, vertices=20, edges=50, weighted=CASES[name].weights, directed=partitions % 2 == 0)
    check(spark, workers, name, "auto", drawn, partitions, shuffled=partitions > 2)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("options", SUMMED)
def test_equals_autograd_under_every_plan(options, shuffled, spark, workers):
    for name in ("GAT", "branches"):
        check(spark, workers, name, options, sample(5, weighted=CASES[name].weights), 3, shuffled)


def test_string_ids_and_empty_partitions(spark, workers):
    drawn = sample(4, vertices=6, edges=12)
    arrays = drawn.graph.arrays()
    names = np.array([f"v{number}" for number in arrays.ids])  # of one digit, so they sort as the numbers do
    graph = Graph.from_arrays(
        arrays.features, names[arrays.src], names[arrays.dst], arrays.label, arrays.split, ids=names
    )
    for name in ("GraphSAGE", "GAT"):
        check(spark, workers, name, "auto", replace(drawn, graph=graph), 7, shuffled=True)


def test_workers_that_keep_nothing_ask_for_what_they_need(spark):
    drawn = sample(2, vertices=20, edges=50, weighted=True)
    with Session(SessionSettings(workers=1, worker_memory=0)) as forgetful:
        for name in ("GCN", "GAT"):
            weighted = drawn if CASES[name].weights else sample(2, vertices=20, edges=50)
            check(spark, forgetful, name, "auto", weighted, 2, shuffled=name == "GAT")
