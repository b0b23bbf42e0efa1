"""A pass that trains and evaluates comes to what training and evaluation come to apart, bit for bit, on every engine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import product

import numpy as np
import pytest
import torch

from lotan.engines.base import Engine, Pass, run
from lotan.engines.blocks.engine import BlocksEngine
from lotan.engines.blocks.settings import BlocksSettings
from lotan.engines.choice import ENGINES
from lotan.engines.local.engine import LocalEngine
from lotan.engines.rows.engine import RowsEngine, RowsSettings
from lotan.hosts.session import Session
from planner import Options, compile_plan
from planner.batch import compile_batch
from planner.beside import apart, evaluated_beside
from planner.cost.seconds import Pricing
from planner.layout import Layout
from planner.loss import LossSpec
from planner.physical import Plan
from planner.shares import Crew
from tests.exactness.cases import OUT, Sample, sample, trained_on
from tests.exactness.dropping import DROPPING, dropping
from tests.exactness.test_random_models import drawn_model, graph_of, specs_of
from tests.night import at_night

pytestmark = pytest.mark.thorough

KINDS: dict[str, Callable[[Plan], Plan]] = {
    "nothing shared": lambda plan: evaluated_beside(plan, shares=False).plan,
    "columns shared": lambda plan: evaluated_beside(plan).plan,
    "insides put out": lambda plan: evaluated_beside(plan, exports=True).plan,
}
OFF = ("reuse_evaluation",)


def check(engine: Engine, drawn: Sample, plan: Plan, weights: dict[str, torch.Tensor]) -> None:
    """A pass of each kind, against both apart."""
    for epoch in (1, 2):  # weights of the first, random numbers of the second
        a_pass = Pass(epoch, weights, seed=3)
        engine.load(drawn.graph, plan)
        trained, evaluated = (run(engine, plan, steps, a_pass) for steps in (plan.train, plan.evaluate))
        for kind, made in KINDS.items():
            both = made(plan)
            engine.load(drawn.graph, both)
            found = run(engine, both, both.train_and_evaluate, a_pass)
            np.testing.assert_array_equal(found.statistics, trained.statistics, err_msg=kind)
            np.testing.assert_array_equal(found.evaluation, evaluated.evaluation, err_msg=kind)
            assert found.gradients.keys() == trained.gradients.keys()
            assert all(torch.equal(found.gradients[name], one) for name, one in trained.gradients.items()), kind


@pytest.mark.parametrize("disabled", [(), ("push_down_edges",)])
@pytest.mark.parametrize("name", DROPPING)
def test_it_is_priced_on_a_cluster(name: str, disabled: tuple[str, ...]) -> None:
    """Parts of passes are, too: a pipe of evaluation may read what only training collects."""
    layout = Layout(Crew(2, 2), 4, cores=2, shuffled=True)
    options = Options(disabled=disabled, pricing=Pricing(ENGINES["blocks"], layout))
    loss = LossSpec("classification", OUT, 5.0)
    planned = compile_plan(*dropping(name), loss, sample(1).graph.statistics, options)
    for steps in planned.plan.passes:
        assert all(step.seconds >= 0 for step in planned.cost(steps).steps)


@pytest.mark.parametrize("seed", at_night([(seed,) for seed in range(24)], unless=[(seed,) for seed in range(4)]))
def test_of_random_models_on_local(seed: int) -> None:
    model, drawn = drawn_model(seed, True, False), graph_of(seed)
    loss = LossSpec("classification", OUT, float((drawn.split == 0).sum()))
    options = Options(pricing=Pricing(ENGINES["local"]), disabled=OFF)
    plan = compile_plan(*specs_of(seed, True), loss, drawn.graph.statistics, options).plan
    with closing(LocalEngine(chunk_rows=5)) as engine:
        check(engine, drawn, plan, {name: value.detach() for name, value in model.state_dict().items()})


def on(name: str, engine: str, drawn: Sample, disabled: tuple[str, ...] = ()) -> tuple[Plan, dict[str, torch.Tensor]]:
    """The plan of a model with dropout, for an engine, and weights."""
    torch.manual_seed(0)
    loss = LossSpec("classification", OUT, float((drawn.split == 0).sum()))
    options = Options(pricing=Pricing(ENGINES[engine]), disabled=(*OFF, *disabled))
    plan = compile_plan(*dropping(name), loss, drawn.graph.statistics, options).plan
    return plan, {key: value.detach() for key, value in DROPPING[name]().state_dict().items()}


@pytest.mark.nightly  # by day on local
@pytest.mark.spark
@pytest.mark.parametrize(("name", "few"), list(product(DROPPING, (False, True))))
def test_on_blocks(name: str, few: bool, spark, workers: Session) -> None:
    """Also where training, and what several levels of it depend on, is on few vertices."""
    drawn = sample(3, 24, 30)
    drawn = trained_on(drawn, [0, 9]) if few else drawn
    settings = BlocksSettings(partitions=3, chunk_rows=4, shuffled=not few)
    with closing(BlocksEngine(spark, workers.link, workers.endpoint, settings)) as engine:
        check(engine, drawn, *on(name, "blocks", drawn))


@pytest.mark.spark
@pytest.mark.nightly
def test_on_rows(spark, workers: Session) -> None:
    drawn = sample(3, 20, 50)
    with closing(RowsEngine(spark, workers.link, workers.endpoint, RowsSettings(partitions=2))) as engine:
        check(engine, drawn, *on("GCN", "rows", drawn))


@pytest.mark.parametrize(
    "disabled", [(), ("push_down", "push_down_edges"), ("push_down", "push_down_edges", "share_subplans")]
)
@pytest.mark.parametrize("name", DROPPING)
def test_where_neighbours_are_collected(name: str, disabled: tuple[str, ...]) -> None:
    """A collection of training's holds columns by training's names; most vertices are trained on, so nothing is pruned."""
    drawn = trained_on(sample(3, 24, 60), range(20))
    with closing(LocalEngine()) as engine:
        check(engine, drawn, *on(name, "local", drawn, disabled))


def test_what_is_shared_is_made_once() -> None:
    drawn = sample(3, 24, 60)
    plan, _ = on("GAT", "local", drawn)
    nothing, columns, _ = (len(made(plan).train_and_evaluate) for made in KINDS.values())
    assert columns < nothing == len(plan.train) + len(plan.evaluate)


def test_a_batch_of_models_that_share_more_and_less() -> None:
    """They stay one stack, and one of them can be evaluated while it trains, with all others or without."""
    drawn = sample(3, 24, 60)
    plan, weights = on("GCN", "local", drawn)
    batch = compile_batch([made(plan) for made in KINDS.values()])
    assert len(batch.stacks) == 1
    a_pass = Pass.of_batch(1, [weights] * len(KINDS), seeds=(3, 4, 5))
    with closing(LocalEngine(chunk_rows=5)) as engine:
        engine.load(drawn.graph, batch.plan)
        trained, evaluated, both = (
            run(engine, batch.plan, steps, a_pass)
            for steps in (batch.train(frozenset()), batch.plan.evaluate, batch.train(frozenset({1})))
        )
    np.testing.assert_array_equal(both.statistics, trained.statistics)
    np.testing.assert_array_equal(both.evaluation, evaluated.evaluation)
    assert trained.evaluation is None
    assert all(torch.equal(both.gradients[name], one) for name, one in trained.gradients.items())


def test_models_of_which_some_can_be_evaluated_meanwhile() -> None:
    """Others, in a stack of their own, train alone in such a pass."""
    drawn = sample(3, 24, 60)
    plans = [KINDS["columns shared"](on("GAT", "local", drawn)[0]), on("GCN", "local", drawn)[0]]
    batch = compile_batch(plans)
    assert [bool(stack.train_and_evaluate) for stack in batch.stacks] == [True, False]
    ends = [step.mode for step in batch.train(frozenset({0, 1})) if getattr(step, "mode", "") in ("turn", "evaluate")]
    assert sorted(ends) == ["evaluate", "turn", "turn"]
    assert batch.plan.train_and_evaluate == batch.train(frozenset({0, 1}))


def test_a_plan_without_such_a_pass_is_as_it_was() -> None:
    plan, _ = on("GAT", "local", sample(3, 24, 60))
    assert all(apart(made(plan)) == plan for made in KINDS.values())
