"""Bytes that an epoch's shuffles are estimated to move against what Spark has written for them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
import torch

import lotan
from lotan import nn
from lotan.engines.base import Pass, run
from lotan.engines.blocks.engine import BlocksEngine
from lotan.engines.blocks.settings import BlocksSettings
from lotan.engines.choice import ENGINES
from lotan.tracing.trace import trace_modes
from planner import Options, compile_plan
from planner.cost.seconds import Pricing, epoch_seconds
from planner.layout import Layout
from planner.loss import LossSpec
from planner.shares import Crew
from planner.steps.collect import CollectStep
from planner.steps.edge_step import EdgeStep
from planner.steps.propagate import PropagateStep
from tests.night import at_night

pytestmark = pytest.mark.spark

WIDTH, CLASSES, PARTITIONS = 16, 5, 4
GCN, GAT, MAX = (
    lambda: nn.GCN(WIDTH, 32, 2, CLASSES, dropout=0.5),
    lambda: nn.GAT(WIDTH, 8, 2, CLASSES, heads=4),
    lambda: nn.GraphSAGE(WIDTH, 32, 2, CLASSES, aggr="max"),
)
CASES = {  # a model, rules that are off, and a step that its epoch then has
    "sums": (GCN, (), PropagateStep),
    "attention": (GAT, (), EdgeStep),
    "attention, collected": (GAT, ("push_down_edges",), CollectStep),
    "extremes": (MAX, (), EdgeStep),
    "extremes, collected": (MAX, ("push_down_extremes",), CollectStep),
}


@pytest.fixture(scope="module")
def graph():
    return lotan.datasets.generate(3_000, 12_000, WIDTH, CLASSES, seed=0)


@pytest.mark.parametrize("case", at_night([(case,) for case in CASES], unless=[("sums",), ("attention, collected",)]))
def test_shuffles_move_what_was_estimated(case, graph, spark, workers):
    """All vertices: of a pruned layer, the rows that it reads are counted as if all of their edges were."""
    make, disabled, kind = CASES[case]
    torch.manual_seed(0)
    model = make()
    specs = trace_modes(model, WIDTH)
    options = Options(pricing=Pricing(ENGINES["blocks"]), disabled=("prune_vertices", "reuse_evaluation", *disabled))
    plan = compile_plan(*specs, LossSpec("classification", CLASSES, 1.0), graph.statistics, options).plan
    assert any(isinstance(step, kind) for step in plan.train)
    layout = Layout(Crew(2, 2), PARTITIONS, cores=2, shuffled=True)
    statistics = replace(graph.statistics, profile=graph.profile)
    estimated = epoch_seconds(plan, statistics, Pricing(ENGINES["blocks"], layout)).moved("shuffled")
    settings = BlocksSettings(partitions=PARTITIONS, shuffled=True)
    parameters = {name: value.detach() for name, value in model.state_dict().items()}
    with closing(BlocksEngine(spark, workers.link, workers.endpoint, settings)) as engine:
        engine.load(graph, plan)
        written = []
        for number in range(2):
            run(engine, plan, plan.train, Pass(number, parameters, seed=1))
            written.append(engine.bytes_moved()["shuffle_written"])
    assert written[1] - written[0] == pytest.approx(estimated, rel=0.1)
