"""Every model, every plan, on the local engine: loss, gradients and weights after three steps equal plain autograd's."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lotan.engines.choice import ENGINES
from lotan.engines.local.engine import LocalEngine
from planner import Options, compile_plan
from planner.cost.seconds import Pricing
from planner.loss import LossSpec
from planner.steps.collect import CollectStep
from tests.exactness.cases import CASES, EDGE_CASES, EVERY, OUT, Sample, Trained, models, sample
from tests.exactness.dropping import DROPPING, dropping
from tests.exactness.steps import OPTIONS, assert_equal, assert_equals_truth, plan_of, spread, train

LOCAL = {
    **{name: replace(options, pricing=Pricing(ENGINES["local"])) for name, options in OPTIONS.items()},
    **{f"no {rule}": Options(disabled=(rule,), pricing=Pricing(ENGINES["local"]))
       for rule in ("push_down_edges", "push_down_extremes")},
    "auto, collecting": OPTIONS["auto"],
}  # fmt: skip
"""Plans for the local engine, and for one that can do less."""


def check(name: str, options: Options, drawn: Sample, seed: int) -> None:
    ours, truth = models(name, seed)
    engine = LocalEngine()
    try:
        assert_equals_truth(train(engine, plan_of(name, drawn, options), ours, drawn), name, truth, drawn)
    finally:
        engine.close()


EDGES_OFF = ("no push_down_edges", "no push_down_extremes", "auto, collecting")
MAIN = ("auto", "general", "general, naive backward")
PAIRS = [
    *((name, options) for name in CASES for options in MAIN),
    *spread(CASES, (options for options in LOCAL if options not in (*MAIN, *EDGES_OFF)), each=3),
    *(
        (name, options)
        for name in EDGE_CASES
        for options in ("auto", "naive backward", "no lift_message", "no fuse_apply")
    ),
    *((name, options) for name in ("GAT", "GraphSAGE, max", "branches", *EDGE_CASES) for options in EDGES_OFF),
]


@pytest.mark.parametrize(("name", "options"), PAIRS)
def test_equals_autograd(name, options):
    check(name, LOCAL[options], sample(seed=3, weighted=EVERY[name].weights), seed=3)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(EVERY)),
    seed=st.integers(0, 10_000),
    vertices=st.integers(1, 30),
    edges=st.integers(0, 80),
    weighted=st.booleans(),
    directed=st.booleans(),
    options=st.sampled_from(sorted(LOCAL)),
)
def test_equals_autograd_on_random_graphs(name, seed, vertices, edges, weighted, directed, options):
    vertices = max(vertices, 8) if edges >= 8 else vertices
    weighted = weighted and EVERY[name].weights
    check(name, LOCAL[options], sample(seed, vertices, edges, weighted, directed), seed)


COLLECTING = ("own layer",)
"""What collects whatever the engine can: its message has a parameter on edges."""


@pytest.mark.parametrize("name", EVERY)
def test_nothing_is_collected_without_parameters_on_edges(name):
    drawn = sample(seed=3, weighted=EVERY[name].weights)
    steps = plan_of(name, drawn, LOCAL["auto"]).plan.train
    assert any(isinstance(step, CollectStep) for step in steps) == (name in COLLECTING)


@pytest.mark.parametrize("options", LOCAL)
@pytest.mark.parametrize("name", DROPPING)
def test_dropout_draws_the_same_numbers_under_every_plan(name, options):
    """No independent truth has our random numbers; but all plans share them, and differ from epoch to epoch."""
    usual = with_dropout(name, Options())
    assert_equal(with_dropout(name, LOCAL[options]), usual)
    assert len(set(usual.losses)) == 3


@cache
def with_dropout(name: str, options: Options) -> Trained:
    drawn = sample(seed=5)
    loss = LossSpec("classification", OUT, float((drawn.split == 0).sum()))
    planned = compile_plan(*dropping(name), loss, drawn.graph.statistics, options)
    torch.manual_seed(0)
    return train(LocalEngine(), planned, DROPPING[name](), drawn)
