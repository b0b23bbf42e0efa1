"""Every model on Spark blocks with real workers: loss, gradients and weights after three steps equal plain autograd's.

Each model through one heap, at 1 or 2 partitions, and by shuffles, at 3 or 7: with numbers and strings as ids, with empty
partitions; each kind of plan; rows of any width; a hub.
"""

from __future__ import annotations

import os
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

from lotan import nn
from lotan.engines.base import Pass, run
from lotan.engines.blocks.engine import BlocksEngine
from lotan.engines.blocks.settings import BlocksSettings
from lotan.engines.choice import ENGINES
from lotan.engines.local.engine import LocalEngine
from lotan.graph.graph import Graph
from lotan.hosts.session import Session, SessionSettings
from lotan.tracing.trace import trace_modes
from planner import Options, Planned, compile_plan
from planner.cost.seconds import Pricing
from planner.loss import LossSpec
from planner.steps.collect import CollectStep
from planner.steps.edge_dropout import EdgeDropoutStep
from planner.steps.edge_step import EdgeStep
from planner.steps.pipe import PipeStep
from planner.steps.step import Step
from tests.exactness.cases import EVERY, OUT, Sample, models, named, sample, trained_on
from tests.exactness.dropping import DROPPING, dropping
from tests.exactness.steps import IN_PLACE, OPTIONS, assert_equal, assert_equals_truth, plan_of, spread, tensors, train
from tests.exactness.test_random_models import TOLERANCE, by_autograd, drawn_model, specs_of
from tests.night import at_night

pytestmark = pytest.mark.spark

BLOCKS = {
    name: replace(options, pricing=Pricing(ENGINES["blocks"]))
    for name, options in {
        **{name: options for name, options in OPTIONS.items() if options.rgb},
        **{f"no {rule}": Options(disabled=(rule,)) for rule in ("push_down_edges", "push_down_extremes")},
    }.items()
}
"""A gradient per edge is for the rows engine."""
PLANS_BY_DAY = [("general",)]

PRUNING = replace(BLOCKS["auto"], disabled=("reuse_evaluation",))
"""A training pass that evaluates needs all vertices."""


def blocks(
    spark, workers: Session, partitions: int, shuffled: bool, chunk_rows: int = 4, in_turn: bool = False
) -> closing[BlocksEngine]:
    settings = BlocksSettings(partitions=partitions, chunk_rows=chunk_rows, shuffled=shuffled, in_turn=in_turn)
    return closing(BlocksEngine(spark, workers.link, workers.endpoint, settings))


def check(spark, workers: Session, name: str, options: str, drawn: Sample, partitions: int, shuffled: bool) -> None:
    ours, truth = models(name, seed=partitions)
    with blocks(spark, workers, partitions, shuffled) as engine:
        found = train(engine, plan_of(name, drawn, BLOCKS[options]), ours, drawn)
        assert (len(engine._graph.occupied()) < partitions) == (partitions == EMPTY)
    assert_equals_truth(found, name, truth, drawn)


EMPTY = 7  # partitions, some of them without vertices
ON_EDGES = (13, 19, 20, 26, 48, 53)
"""Seeds of random models that read edges otherwise than to sum rows."""


EVERYWHERE = [*spread(EVERY, [1, 2], each=1), *spread(EVERY, [EMPTY, 3], each=1)]
BY_DAY_IN_PARTITIONS = EVERYWHERE[::6]


@pytest.mark.parametrize(("name", "partitions"), at_night(EVERYWHERE, unless=BY_DAY_IN_PARTITIONS))
def test_equals_autograd(name, partitions, spark, workers):
    vertices = 8 if partitions == EMPTY else 20
    drawn = sample(partitions, vertices, 50, weighted=EVERY[name].weights, directed=partitions % 2 == 0)
    if partitions in (2, EMPTY):
        drawn = replace(drawn, graph=named(drawn.graph))
    check(spark, workers, name, "auto", drawn, partitions, shuffled=partitions > 2)


@pytest.mark.parametrize("name", ["GCN", pytest.param("GCN, three layers, jumping", marks=pytest.mark.nightly)])
def test_partitions_that_are_read_in_turn_give_the_same_bits(name, spark, workers):
    drawn = sample(3, vertices=20, edges=50, weighted=EVERY[name].weights, directed=True)
    results = []
    for in_turn in (True, False):
        ours, truth = models(name, seed=3)
        with blocks(spark, workers, 3, shuffled=False, in_turn=in_turn) as engine:
            found = train(engine, plan_of(name, drawn, BLOCKS["auto"]), ours, drawn)
            assert engine._in_one_heap
        assert_equals_truth(found, name, truth, drawn)
        results.append(found)
    first, second = results
    assert first.losses == second.losses
    for one, other in zip(first.gradients, second.gradients, strict=True):
        assert all(torch.equal(one[key], other[key]) for key in one.keys() | other.keys())


PRUNED = [("GCN", EMPTY), ("GCN, three layers, jumping", 2), ("GIN", 1), ("residual", 3), ("hops", 2), ("MLP", 3),
          ("GAT", 3), ("GAT, four heads", EMPTY), ("GAT, four heads, averaged", 2), ("branches", 3),
          ("GraphSAGE, max", 2), ("GraphSAGE, min", EMPTY), ("own layer", 2), ("own layer", EMPTY),
          ("arithmetic on edges", 2), ("arithmetic of features", 3)]  # fmt: skip

BY_DAY = [("GIN", 1), ("GraphSAGE, max", 2)]
"""Sums, and extremes with string ids."""


@pytest.mark.parametrize(("name", "partitions"), at_night(PRUNED, unless=BY_DAY))
def test_few_training_vertices_whose_dependencies_alone_are_computed(name, partitions, spark, workers):
    """24 vertices with less than an edge each: several levels are pruned, and some partitions have no vertex of a level."""
    drawn = trained_on(sample(partitions, 24, 20, weighted=EVERY[name].weights), [0, 9])
    drawn = replace(drawn, graph=named(drawn.graph)) if partitions == 2 else drawn
    ours, truth = models(name, seed=partitions)
    planned = plan_of(name, drawn, PRUNING)
    for found in both_ways(spark, workers, planned, ours, drawn, partitions):
        assert_equals_truth(found, name, truth, drawn)


def reads_edges(step: Step) -> bool:
    """Whether it reads more of edges than a sum of rows does."""
    return isinstance(step, EdgeStep | CollectStep) or (isinstance(step, PipeStep) and bool(step.collections))


def both_ways(spark, workers, planned: Planned, model: torch.nn.Module, drawn: Sample, partitions: int):
    """A pruned plan through one heap and by shuffles, which have the same bits."""
    assert any(step.within is not None for step in planned.plan.train)
    assert all(step.within is not None for step in planned.plan.train if reads_edges(step))
    results = []
    for shuffled in (False, True):
        torch.manual_seed(0)
        with blocks(spark, workers, partitions, shuffled) as engine:
            results.append(train(engine, planned, deepcopy(model), drawn))
            occupied = engine._graph.occupied
            assert partitions < 3 or len(occupied(0)) < len(occupied())
    heap, shuffles = map(tensors, results)
    assert all(torch.equal(heap[key], shuffles[key]) for key in heap)
    return results


@pytest.mark.nightly
@pytest.mark.parametrize("seed", ON_EDGES)
def test_random_models_with_few_training_vertices(seed, spark, workers):
    """On random graphs; each model has attention, a maximum or a message with a parameter."""
    drawn = trained_on(sample(seed, 24, 20, weighted=seed % 3 == 0), [seed % 24, 9])
    planned = random_plan(seed, drawn)
    assert any(map(reads_edges, planned.plan.train))
    model = drawn_model(seed, False, stirred=False)
    # Of training alone: evaluation is not pruned here.
    truth, rounded = (replace(by_autograd(seed, drawn, stirred), evaluated={}) for stirred in (False, True))
    for found in both_ways(spark, workers, planned, model, drawn, 2 + seed % 2):
        assert_equal(found, truth, TOLERANCE, rounded=[rounded])


def random_plan(seed: int, drawn: Sample) -> Planned:
    loss = LossSpec("classification", OUT, float((drawn.split == 0).sum()))
    return compile_plan(*specs_of(seed, False), loss, drawn.graph.statistics, PRUNING)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["GAT", "GraphSAGE, max", "own layer"])
def test_training_vertices_that_depend_on_no_others(name, spark, workers):
    """Isolated, or with edges that lead away from them: no edge of the graph ends within a level."""
    drawn = trained_on(sample(4, 24, 20, weighted=EVERY[name].weights), [22, 23])
    ours, truth = models(name, seed=4)
    for found in both_ways(spark, workers, plan_of(name, drawn, PRUNING), ours, drawn, 3):
        assert_equals_truth(found, name, truth, drawn)


HUBS = [("GCN", 3, 8000), ("GraphSAGE", 2, 8000), ("GraphSAGE, max", 2, 8000), ("GAT", 3, 4000)]
"""Models, partitions and edges; attention over twice as many is off by what float32 loses in their sum, pruned or not."""


@pytest.mark.parametrize(("name", "partitions", "edges"), at_night(HUBS, unless=HUBS[:1]))
def test_a_hub_whose_edges_are_spread(name, partitions, edges, spark, workers):
    """Half of the edges end in one vertex, and half begin there."""
    drawn = sample(6, 40, edges, weighted=EVERY[name].weights, directed=False)
    ours, truth = models(name, seed=6)
    with blocks(spark, workers, partitions, shuffled=partitions > 2) as engine:
        found = train(engine, plan_of(name, drawn, PRUNING), ours, drawn)
        assert engine._graph.blocks.hubs(), "no edges were spread"
    assert_equals_truth(found, name, truth, drawn)


WIDTHS = (1, 2, 3, 17, 64, 255, 1000)


class Mixed(torch.nn.Module):
    """Sums, attention and maxima of rows of one width."""

    def __init__(self, width: int, layers=nn) -> None:
        super().__init__()
        self.sums, self.greatest = layers.GCNConv(width, width), layers.SAGEConv(width, OUT, aggr="max")
        self.attention = layers.GATConv(width, width)

    def forward(self, x, graph):
        return self.greatest(torch.tanh(self.attention(torch.tanh(self.sums(x, graph)), graph)), graph)


@pytest.mark.parametrize("width", at_night([(width,) for width in WIDTHS], unless=[(1,)]))
def test_rows_of_any_width(width, spark, workers):
    drawn = sample(7, 12, 40)
    x = torch.from_numpy(np.random.default_rng(7).normal(size=(12, width)).astype(np.float32))
    given = drawn.graph.arrays()
    drawn = replace(drawn, x=x, graph=Graph.from_arrays(x.numpy(), given.src, given.dst, given.label, given.split))
    torch.manual_seed(width)
    ours, truth = Mixed(width), Mixed(width, pyg)
    truth.load_state_dict(ours.state_dict())
    loss = LossSpec("classification", OUT, float((drawn.split == 0).sum()))
    specs = trace_modes(ours, width)
    planned = compile_plan(*specs, loss, drawn.graph.statistics, BLOCKS["auto"])
    with blocks(spark, workers, 3, shuffled=width % 2 == 0) as engine:
        found = train(engine, planned, ours, drawn)
    assert_equals_truth(found, "residual", truth, drawn)  # which takes the same arguments


@pytest.mark.parametrize("options", at_night([(name,) for name in BLOCKS], unless=PLANS_BY_DAY))
def test_equals_autograd_under_every_plan(options, spark, workers):
    for name, shuffled in (("GAT", True), ("branches", False)):
        check(spark, workers, name, options, sample(5, weighted=EVERY[name].weights), 3, shuffled)


def test_workers_that_keep_nothing_ask_for_what_they_need(spark):
    drawn = sample(2, vertices=20, edges=50, weighted=True)
    with Session(SessionSettings(workers=1, worker_memory=0, spill=None)) as forgetful:
        for name in ("GCN", "GAT"):
            weighted = drawn if EVERY[name].weights else sample(2, vertices=20, edges=50)
            check(spark, forgetful, name, "auto", weighted, 2, shuffled=name == "GAT")


def files_in(folder: Path, session: Session) -> int:
    """That its workers have open."""
    opened = [one for process in session.worker_processes.values() for one in Path(f"/proc/{process}/fd").iterdir()]
    return sum(os.readlink(one).startswith(str(folder)) for one in opened)


@pytest.mark.parametrize("memory", at_night([(0,), (100,)], unless=[(0,)]))
def test_what_workers_keep_has_the_same_bits_in_memory_and_in_a_file(memory, spark, workers, tmp_path):
    drawn, results = sample(2, vertices=20, edges=50, weighted=True), []
    # of what static inputs alone lead to, a worker would keep nothing, and compute it again
    planned = plan_of("GCN", drawn, replace(BLOCKS["auto"], disabled=IN_PLACE))
    with Session(SessionSettings(workers=1, worker_memory=memory, spill=str(tmp_path))) as spilling:
        for session in (workers, spilling):
            with blocks(spark, session, 2, shuffled=False) as engine:
                results.append(tensors(train(engine, planned, models("GCN", seed=0)[0], drawn)))
                assert files_in(tmp_path, session) == (1 if session is spilling else 0)
                assert not list(tmp_path.iterdir())  # without a name: so nothing is left of a worker that is killed
    ample, spilled = results
    assert all(torch.equal(ample[key], spilled[key]) for key in ample)


COLLECTING = ("own layer",)
"""What collects whatever the engine can: its message has a parameter on edges."""


@pytest.mark.nightly  # by day: tests/planner
def test_nothing_is_collected_without_parameters_on_edges():
    for name in EVERY:
        drawn = sample(seed=3, weighted=EVERY[name].weights)
        steps = plan_of(name, drawn, BLOCKS["auto"]).plan.train
        assert any(isinstance(step, CollectStep) for step in steps) == (name in COLLECTING)


DROPPED = {"many": trained_on(sample(5, 20, 50), range(16)), "few": trained_on(sample(5, 24, 20), [0, 9])}
"""Graphs by how many of their vertices are in training: where few are, layers are pruned."""

DROPPING_EDGES = [(name, training) for name in ("GAT", "GAT, four heads") for training in DROPPED]


def dropping_plan(name: str, drawn: Sample, options: Options = BLOCKS["auto"]) -> Planned:
    loss = LossSpec("classification", OUT, float((drawn.split == 0).sum()))
    return compile_plan(*dropping(name), loss, drawn.graph.statistics, options)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "training"), DROPPING_EDGES)
def test_dropout_draws_the_numbers_of_the_local_engine_wherever_edges_lie(name, training, spark, workers):
    """The same bits by shuffles and through one heap, where nothing but the place of a row differs."""
    drawn = DROPPED[training]
    planned, results = dropping_plan(name, drawn), []
    levels = {step.within for step in planned.plan.train if isinstance(step, EdgeDropoutStep)}
    assert levels == ({0, 1} if training == "few" else {None})
    for partitions, shuffled in ((2, False), (2, True), (7, True)):
        torch.manual_seed(0)
        with blocks(spark, workers, partitions, shuffled) as engine:
            results.append(train(engine, planned, DROPPING[name](), drawn))
    torch.manual_seed(0)
    whole = replace(BLOCKS["auto"], disabled=("prune_vertices",))
    truth = train(LocalEngine(), dropping_plan(name, drawn, whole), DROPPING[name](), drawn)
    assert len(set(truth.losses)) == 3
    for result in results:
        assert_equal(result, truth)
    heap, shuffles = (tensors(result) for result in results[:2])
    assert all(torch.equal(heap[key], shuffles[key]) for key in heap)


@pytest.mark.nightly
def test_without_the_rule_that_chooses_it_is_computed_again_to_the_same_bits(spark, tmp_path):
    """With memory for a part, and none in a file; beside a plan with the rule, which puts the rest in one."""
    drawn, results = DROPPED["many"], []
    with Session(SessionSettings(workers=1, worker_memory=100, spill=str(tmp_path))) as short:
        for off, files in ((), 1), (("keep_or_recompute",), 0):
            planned = dropping_plan("GCN", drawn, replace(BLOCKS["auto"], disabled=(*IN_PLACE, *off)))
            assert ("keep_or_recompute" in planned.plan.fired) == (files == 1)
            torch.manual_seed(0)
            with blocks(spark, short, 2, shuffled=False) as engine:
                results.append(tensors(train(engine, planned, DROPPING["GCN"](), drawn)))
                assert files_in(tmp_path, short) == files  # the worker closes it soon after the run
    chosen, plain = results
    assert all(torch.equal(chosen[key], plain[key]) for key in chosen)


def test_a_pass_holds_nothing_when_it_is_over(spark, workers):
    drawn = sample(seed=5)
    plan = dropping_plan("GAT", drawn).plan
    parameters = {name: value.detach() for name, value in DROPPING["GAT"]().state_dict().items()}
    with blocks(spark, workers, 2, shuffled=True) as engine:
        engine.load(drawn.graph, plan)
        before = set(spark.sparkContext._jsc.getPersistentRDDs())
        run(engine, plan, plan.train, Pass(0, parameters))
        assert not set(spark.sparkContext._jsc.getPersistentRDDs()) - before
