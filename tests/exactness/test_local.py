"""Every model, every plan, on the local engine: loss, gradients and weights after three steps equal plain autograd's."""

from __future__ import annotations

from functools import lru_cache, partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lotan import nn
from lotan.engines.local import LocalEngine
from lotan.tracing import trace
from planner import Options, compile_plan
from planner.spec import LossSpec, Spec
from tests.exactness.cases import CASES, OUT, WIDTH, Sample, models, sample
from tests.exactness.steps import OPTIONS, assert_equal, assert_equals_truth, plan_of, train


def check(name: str, options: Options, drawn: Sample, seed: int) -> None:
    ours, truth = models(name, seed)
    engine = LocalEngine()
    try:
        assert_equals_truth(train(engine, plan_of(name, drawn, options), ours, drawn), name, truth, drawn)
    finally:
        engine.close()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("options", OPTIONS)
def test_equals_autograd(name, options):
    check(name, OPTIONS[options], sample(seed=3, weighted=CASES[name].weights), seed=3)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    vertices=st.integers(1, 30),
    edges=st.integers(0, 80),
    weighted=st.booleans(),
    directed=st.booleans(),
    options=st.sampled_from(sorted(OPTIONS)),
)
def test_equals_autograd_on_random_graphs(name, seed, vertices, edges, weighted, directed, options):
    vertices = max(vertices, 8) if edges >= 8 else vertices
    weighted = weighted and CASES[name].weights
    check(name, OPTIONS[options], sample(seed, vertices, edges, weighted, directed), seed)


DROPPING = {
    "GCN": partial(nn.GCN, WIDTH, 6, 2, OUT, dropout=0.5),
    "GAT": partial(nn.GAT, WIDTH, 6, 2, OUT, dropout=0.5, heads=2),
}


@lru_cache
def dropping(name: str) -> tuple[Spec, Spec]:
    return trace(DROPPING[name](), WIDTH, training=True), trace(DROPPING[name](), WIDTH, training=False)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", DROPPING)
def test_dropout_draws_the_same_numbers_under_every_plan(name, options):
    """No independent truth has our random numbers; but all plans share them, and differ from epoch to epoch."""
    drawn = sample(seed=5)
    loss = LossSpec("classification", OUT, float((drawn.split == 0).sum()))
    results = []
    for chosen in (Options(), OPTIONS[options]):
        planned = compile_plan(*dropping(name), loss, drawn.graph.statistics, chosen)
        torch.manual_seed(0)
        results.append(train(LocalEngine(), planned, DROPPING[name](), drawn))
    assert_equal(results[1], results[0])
    assert len(set(results[0].losses)) == 3
