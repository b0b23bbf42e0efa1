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
import torch

from lotan.engines.base import Pass, run
from lotan.engines.blocks.engine import BlocksEngine, BlocksSettings
from lotan.engines.choice import ABILITIES
from lotan.engines.local import LocalEngine
from lotan.graph import Graph
from lotan.session import Session, SessionSettings
from planner import Options, Planned, compile_plan
from planner.physical import CollectStep
from planner.spec import LossSpec
from tests.exactness.cases import EVERY, OUT, Sample, models, sample
from tests.exactness.dropping import DROPPING, dropping
from tests.exactness.steps import OPTIONS, assert_equal, assert_equals_truth, plan_of, tensors, train

pytestmark = pytest.mark.spark

BLOCKS = {
    **{name: replace(options, abilities=ABILITIES["blocks"]) for name, options in OPTIONS.items() if options.rgb},
    **{f"no {rule}": Options(disabled=(rule,), abilities=ABILITIES["blocks"])
       for rule in ("push_down_edges", "push_down_extremes")},
}  # fmt: skip
"""A gradient per edge is for the rows engine."""


@pytest.fixture(scope="module")
def workers() -> Iterator[Session]:
    with Session(SessionSettings(workers=2)) as session:
        yield session


def blocks(spark, workers: Session, partitions: int, shuffled: bool, chunk_rows: int = 4) -> closing[BlocksEngine]:
    settings = BlocksSettings(partitions=partitions, chunk_rows=chunk_rows, shuffled=shuffled)
    return closing(BlocksEngine(spark, workers.link, workers.endpoint, settings))


def check(spark, workers: Session, name: str, options: str, drawn: Sample, partitions: int, shuffled: bool) -> None:
    ours, truth = models(name, seed=partitions)
    with blocks(spark, workers, partitions, shuffled) as engine:
        found = train(engine, plan_of(name, drawn, BLOCKS[options]), ours, drawn)
    assert_equals_truth(found, name, truth, drawn)


PARTITIONS = (1, 3, 2, 7)
SPREAD = [(name, PARTITIONS[(number + more) % 4]) for number, name in enumerate(EVERY) for more in (0, 1)]


@pytest.mark.parametrize(("name", "partitions"), SPREAD)
def test_equals_autograd(name, partitions, spark, workers):
    drawn = sample(partitions, vertices=20, edges=50, weighted=EVERY[name].weights, directed=partitions % 2 == 0)
    check(spark, workers, name, "auto", drawn, partitions, shuffled=partitions > 2)


@pytest.mark.parametrize("options", BLOCKS)
def test_equals_autograd_under_every_plan(options, spark, workers):
    for name, shuffled in (("GAT", True), ("branches", False)):
        check(spark, workers, name, options, sample(5, weighted=EVERY[name].weights), 3, shuffled)


def test_string_ids_and_empty_partitions(spark, workers):
    drawn = sample(4, vertices=6, edges=12)
    arrays = drawn.graph.arrays()
    names = np.array([f"v{number}" for number in arrays.ids])  # of one digit, so they sort as the numbers do
    graph = Graph.from_arrays(
        arrays.features, names[arrays.src], names[arrays.dst], arrays.label, arrays.split, ids=names
    )
    for number, name in enumerate(("GraphSAGE", "GAT", "GraphSAGE, max", "arithmetic of features")):
        check(spark, workers, name, "auto", replace(drawn, graph=graph), 7, shuffled=number % 2 == 0)


def test_workers_that_keep_nothing_ask_for_what_they_need(spark):
    drawn = sample(2, vertices=20, edges=50, weighted=True)
    with Session(SessionSettings(workers=1, worker_memory=0, spill=None)) as forgetful:
        for name in ("GCN", "GAT"):
            weighted = drawn if EVERY[name].weights else sample(2, vertices=20, edges=50)
            check(spark, forgetful, name, "auto", weighted, 2, shuffled=name == "GAT")


COLLECTING = ("own layer",)
"""What collects whatever the engine can: its message has a parameter on edges."""


def test_nothing_is_collected_without_parameters_on_edges():
    for name in EVERY:
        drawn = sample(seed=3, weighted=EVERY[name].weights)
        steps = plan_of(name, drawn, BLOCKS["auto"]).plan.train
        assert any(isinstance(step, CollectStep) for step in steps) == (name in COLLECTING)


def dropping_plan(name: str, drawn: Sample) -> Planned:
    loss = LossSpec("classification", OUT, float((drawn.split == 0).sum()))
    return compile_plan(*dropping(name), loss, drawn.graph.statistics, BLOCKS["auto"])


@pytest.mark.parametrize("name", ["GAT", "GAT, four heads"])
def test_dropout_draws_the_numbers_of_the_local_engine_wherever_edges_lie(name, spark, workers):
    """The same bits by shuffles and through one heap, where nothing but the place of a row differs."""
    drawn = sample(seed=5, vertices=20, edges=50)
    planned, results = dropping_plan(name, drawn), []
    for partitions, shuffled in ((2, False), (2, True), (7, True)):
        torch.manual_seed(0)
        with blocks(spark, workers, partitions, shuffled) as engine:
            results.append(train(engine, planned, DROPPING[name](), drawn))
    torch.manual_seed(0)
    truth = train(LocalEngine(), planned, DROPPING[name](), drawn)
    assert len(set(truth.losses)) == 3
    for result in results:
        assert_equal(result, truth)
    heap, shuffles = (tensors(result) for result in results[:2])
    assert all(torch.equal(heap[key], shuffles[key]) for key in heap)


def test_a_pass_holds_nothing_when_it_is_over(spark, workers):
    drawn = sample(seed=5)
    plan = dropping_plan("GAT", drawn).plan
    parameters = {name: value.detach() for name, value in DROPPING["GAT"]().state_dict().items()}
    with blocks(spark, workers, 2, shuffled=True) as engine:
        engine.load(drawn.graph, plan)
        before = set(spark.sparkContext._jsc.getPersistentRDDs())
        run(engine, plan, plan.train, Pass(0, parameters))
        assert not set(spark.sparkContext._jsc.getPersistentRDDs()) - before
