"""Features that are mostly zeros: on the local engine, held sparse, every model equals plain autograd."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from lotan import nn
from lotan.engines.choice import ENGINES
from lotan.engines.local.engine import LocalEngine
from lotan.tracing.trace import trace_modes
from planner import Options, compile_plan
from planner.cost.seconds import Pricing
from planner.kernels import run_by_autograd
from planner.loss import LossSpec
from planner.rules.hold_sparse import BY_AUTOGRAD
from tests.exactness.cases import EVERY, OUT, WIDTH, models, sample, thinned
from tests.exactness.steps import assert_equals_truth, plan_of, spread, train

pytestmark = pytest.mark.thorough

AUTO = Options(pricing=Pricing(ENGINES["local"]))
IN_PLACE = replace(AUTO, disabled=("hoist_invariant",))  # so that more maps stand right on the features
READS_THEM = ("GraphSAGE, sum, projected", "GAT", "MLP", "shared layer")


FORMS = list(product([16, 60], ["auto", "no hoist_invariant"], [None, 7]))
"""Numbers that are not zero, plan and rows of a chunk."""


@pytest.mark.parametrize(
    ("name", "form"),
    [*product(READS_THEM, FORMS), *spread((name for name in EVERY if name not in READS_THEM), FORMS, each=2)],
)
def test_equals_autograd(name, form):
    left, plan, chunk_rows = form
    options = AUTO if plan == "auto" else IN_PLACE
    drawn = thinned(sample(seed=3, vertices=40, edges=120, weighted=EVERY[name].weights), left)
    ours, truth = models(name, seed=3)
    planned, engine = plan_of(name, drawn, options), LocalEngine(chunk_rows=chunk_rows)
    assert "hold_sparse" in planned.plan.fired or name not in READS_THEM
    try:
        assert_equals_truth(train(engine, planned, ours, drawn), name, truth, drawn)
    finally:
        engine.close()


@pytest.mark.parametrize(("left", "traits", "said"), [
    (70, ENGINES["local"], "35.0% of the features are not zero; it pays below 33.3%"),
    (200, ENGINES["local"], "100.0% of the features are not zero; it pays below 33.3%"),
    (16, ENGINES["rows"], "this engine gives stages all numbers of a row"),
])  # fmt: skip
def test_what_stops_it_is_said(left, traits, said):
    drawn = thinned(sample(seed=3, vertices=40), left)
    planned = plan_of("MLP", drawn, Options(pricing=Pricing(traits)))
    assert not planned.firings["hold_sparse"]
    assert [entry.reason for entry in planned.rewritten.declined if entry.rule == "hold_sparse"] == [said]


@pytest.mark.parametrize(("act", "fires"), [("elu", True), ("gelu", False)])
def test_it_is_for_stages_that_kernels_run(act, fires):
    """Autograd, which has to run gelu, multiplies all numbers of a row: to say or to price anything else would be wrong."""
    drawn = thinned(sample(seed=3, vertices=40), 16)
    specs = trace_modes(nn.MLP([WIDTH, 8, OUT], act=act, norm=None), WIDTH)
    planned = compile_plan(*specs, LossSpec("classification", OUT, 5.0), drawn.graph.statistics, AUTO)
    assert bool(planned.firings["hold_sparse"]) == fires
    assert [entry.reason for entry in planned.rewritten.declined if entry.rule == "hold_sparse"] == (
        [] if fires else [BY_AUTOGRAD]
    )
    assert any(run_by_autograd(stage) for stage in planned.plan.stages) != fires
