"""Rules that are broken on purpose: random models, compared with plain autograd or with plans of no rules, show each.

Most go wrong without a word, and numbers show it. Where a break cannot but leave a plan or a stage without what it reads, so
that no number is ever made, or without rows, `expects` is the error of the check that has to see it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lotan.engines.base import Pass, run
from lotan.engines.choice import ENGINES
from lotan.engines.local.engine import LocalEngine
from lotan.errors import EngineError, StageError
from lotan.nn import EdgeIndex
from lotan.stages.sparse_rows import SparseRows
from lotan.tracing.trace import trace
from planner import RULE_NAMES, Options, compile_plan, differentiate, labels, linear_maps, phases
from planner.batch import compile_batch
from planner.choices import choose_physical
from planner.cost.seconds import Pricing
from planner.edge_values import EdgeValues
from planner.errors import PlanError
from planner.loss import LossSpec
from planner.nodes import Collect, Elementwise, Node, Scatter
from planner.physical import Stage, of_model
from planner.rules import (
    drop_dead_gradients,
    drop_unit_weight,
    fuse_apply,
    hoist_invariant,
    hold_sparse,
    keep_or_recompute,
    lift_message,
    prune_vertices,
    push_down,
    push_down_extremes,
    reuse_evaluation,
    share_models,
    split_ends,
)
from planner.spec import ValueType
from planner.steps import scaled_propagate
from planner.steps.extreme import Extreme
from planner.steps.propagate import PropagateStep
from planner.steps.scaled_propagate import ScaledPropagateStep
from tests.exactness import test_random_models
from tests.exactness.cases import OUT, WIDTH, Sample, Trained, models, sample, thinned, trained_on
from tests.exactness.random_models import Hop
from tests.exactness.steps import assert_equal, assert_equals_truth, plan_of, train
from tests.exactness.test_random_models import TOLERANCE, by_autograd, drawn_model, planned_run
from tests.planner import test_choose_physical
from tests.planner.specs import gcn
from tests.worker.test_saved_runs import check_stages

pytestmark = pytest.mark.nightly


def graph_of(seed: int) -> Sample:
    return sample(seed, vertices=8 + seed % 13, edges=seed % 60, weighted=seed % 3 == 0)


@cache
def truth(seed: int, dropping: bool) -> tuple[Trained, Trained]:
    """What a model comes to, and with weights a little off; with random numbers, by plans without any rule."""
    drawn = graph_of(seed)
    if dropping:
        plain, stirred = (planned_run(seed, True, drawn, RULE_NAMES, stirred=stirred) for stirred in (False, True))
    else:
        plain, stirred = (by_autograd(seed, drawn, stirred) for stirred in (False, True))
    return plain, stirred


def check_training(seed: int, dropping: bool) -> None:
    plain, stirred = truth(seed, dropping)
    assert_equal(planned_run(seed, dropping, graph_of(seed), ()), plain, TOLERANCE, rounded=[stirred])


def check_metrics(seed: int, dropping: bool) -> None:
    """Where a training pass says that it evaluates, it counts what evaluation counts."""
    model, drawn = drawn_model(seed, dropping, False), graph_of(seed)
    specs = trace(model, WIDTH, training=True), trace(model, WIDTH, training=False)
    loss = LossSpec("classification", OUT, float((drawn.split == 0).sum()))
    plan = compile_plan(*specs, loss, drawn.graph.statistics, Options(pricing=Pricing(ENGINES["local"]))).plan
    with closing(LocalEngine(chunk_rows=5)) as engine:
        engine.load(drawn.graph, plan)
        a_pass = Pass(1, {name: value.detach() for name, value in model.state_dict().items()})
        both, apart = (run(engine, plan, steps, a_pass) for steps in (plan.training(True), plan.evaluate))
    found = both.evaluation if plan.train_and_evaluate else both.statistics
    assert not plan.reuses_evaluation or np.allclose(found, apart.evaluation)


class Alikes(torch.nn.Module):
    """Values that differ in one thing each: the random numbers that drop some, or the weights of the edges summed over."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = torch.nn.Linear(WIDTH, 4), torch.nn.Linear(16, OUT)
        self.plain, self.weighted = Hop("sum", weighted=False), Hop("sum", weighted=True)
        self.once, self.again = torch.nn.Dropout(0.5), torch.nn.Dropout(0.5)

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        h = torch.tanh(self.enter(x))
        sums = self.plain(h, graph), self.weighted(h, graph)
        return self.leave(torch.cat([*sums, self.once(h), self.again(h)], dim=-1))


def check_alikes(seed: int, _: bool) -> None:
    drawn = sample(seed, weighted=True)
    results = []
    for off in ((), RULE_NAMES):
        torch.manual_seed(seed)
        model = Alikes()
        specs = trace(model, WIDTH, training=True), trace(model, WIDTH, training=False)
        loss = LossSpec("classification", OUT, float((drawn.split == 0).sum()))
        with closing(LocalEngine()) as engine:
            planned = compile_plan(*specs, loss, drawn.graph.statistics, Options(disabled=tuple(off)))
            results.append(train(engine, planned, model, drawn))
    assert_equal(results[0], results[1], TOLERANCE)


def check_hops(seed: int, _: bool) -> None:
    """A model that reads a sum of hidden rows, and the sum of that."""
    drawn, (ours, other) = sample(seed, weighted=True), models("hops", seed)
    with closing(LocalEngine()) as engine:
        found = train(engine, plan_of("hops", drawn, Options(pricing=Pricing(ENGINES["local"]))), ours, drawn)
    assert_equals_truth(found, "hops", other, drawn)


def check_few(seed: int, _: bool) -> None:
    """Attention over few training vertices, of which both layers are pruned."""
    drawn, (ours, other) = trained_on(sample(seed, vertices=24, edges=20), [0, 9]), models("GAT", seed)
    options = Options(pricing=Pricing(ENGINES["local"]), disabled=("reuse_evaluation",))
    with closing(LocalEngine()) as engine:
        assert_equals_truth(train(engine, plan_of("GAT", drawn, options), ours, drawn), "GAT", other, drawn)


def check_deep(seed: int, _: bool) -> None:
    """Three layers over few training vertices, of which several are pruned."""
    name = "GCN, three layers, jumping"
    drawn, (ours, other) = trained_on(sample(seed, vertices=40, edges=40, weighted=True), [0, 9]), models(name, seed)
    options = Options(pricing=Pricing(ENGINES["local"]), disabled=("reuse_evaluation",))
    with closing(LocalEngine()) as engine:
        assert_equals_truth(train(engine, plan_of(name, drawn, options), ours, drawn), name, other, drawn)


def check_sparse(seed: int, _: bool) -> None:
    """Features that are mostly zeros, and a layer that multiplies them by a number of its own before a linear map."""
    drawn, (ours, other) = sample(seed, vertices=40, edges=120), models("GIN", seed)
    drawn = thinned(drawn, drawn.x.numel() // 4)
    with closing(LocalEngine()) as engine:
        found = train(engine, plan_of("GIN", drawn, Options(pricing=Pricing(ENGINES["local"]))), ours, drawn)
    assert_equals_truth(found, "GIN", other, drawn)


def check_batch(seed: int, _: bool) -> None:
    """Two models with other weights have the gradients that each has alone."""
    drawn, both = sample(seed), [models("GraphSAGE", seed + number)[0] for number in range(2)]
    plan = plan_of("GraphSAGE", drawn, Options(pricing=Pricing(ENGINES["local"]))).plan
    batch = compile_batch([plan, plan])
    own = [{name: value.detach() for name, value in model.state_dict().items()} for model in both]
    together = {of_model(number, name): value for number, each in enumerate(own) for name, value in each.items()}
    alone: dict[str, Tensor] = {}
    with closing(LocalEngine()) as engine:
        for number, each in enumerate(own):
            engine.load(drawn.graph, plan)
            found = run(engine, plan, plan.train, Pass(0, each)).gradients
            alone |= {of_model(number, name): gradient for name, gradient in found.items()}
        engine.load(drawn.graph, batch.plan)
        a_pass = Pass(0, together, seeds=(0, 0))
        shared = run(engine, batch.plan, batch.train(frozenset()), a_pass).gradients
    assert alone.keys() == shared.keys()
    assert all(torch.equal(gradient, shared[name]) for name, gradient in alone.items())


def check_thinned(seed: int, _: bool) -> None:
    """A drawn model on a graph whose features are mostly zeros, none of them summed once."""
    drawn = thinned(graph_of(seed), graph_of(seed).x.numel() // 4)
    plain, stirred = (by_autograd(seed, drawn, stirred) for stirred in (False, True))
    assert_equal(planned_run(seed, False, drawn, ("hoist_invariant",)), plain, TOLERANCE, rounded=[stirred])


def check_kept(layers: int, _: bool) -> None:
    check_stages(gcn(layers=layers))


def check_chosen(_: int, __: bool) -> None:
    test_choose_physical.test_sparse_features_stay_sparse_where_a_held_sum_of_them_would_cost_more()


def choosing_the_dearer(again: float, file: float | None) -> tuple[str, float]:
    return ("recompute", again) if file is None or again >= file else ("file", file)


def choosing_the_dearest(candidates: Sequence[Any], _: float = 0.0) -> Any:
    return max(candidates, key=lambda one: one.cost)


class Nothing:
    """A type that no node is of."""


@dataclass(frozen=True)
class Mutation:
    """What to put in place of a part of the planner, and the check that has to fail then.

    `seed` is of a model and graph that show it: with those drawn at random, one in three to seventy does. `expects` is another
    error than that of numbers that differ.
    """

    place: Any
    name: str
    broken: Any
    seed: int
    dropping: bool = False
    check: Callable[[int, bool], None] = check_training
    expects: type[Exception] | tuple[type[Exception], ...] = AssertionError


def reversed_too_seldom(kind: type[PropagateStep | ScaledPropagateStep]) -> Callable[..., Any]:
    """Backward along the edges as forward goes."""

    def broken(*arguments: Any) -> differentiate.Epoch:
        epoch = ORIGINAL_DIFFERENTIATE(*arguments)
        steps = [replace(step, reverse=False) if isinstance(step, kind) else step for step in epoch.steps]
        return replace(epoch, steps=tuple(steps))

    return broken


def a_hop_too_few(*arguments: Any) -> differentiate.Epoch:
    """A sum over out-edges takes those alone that end within the level before its own."""
    epoch = ORIGINAL_DIFFERENTIATE(*arguments)
    back = [isinstance(step, PropagateStep) and step.reverse and step.within for step in epoch.steps]
    steps = [replace(step, within=level - 1) if level else step for step, level in zip(epoch.steps, back, strict=True)]
    return replace(epoch, steps=tuple(steps))


def adding_too_few(name: str, parts: Sequence[str], total: str, shape: tuple[int, ...]) -> Stage:
    stage = ORIGINAL_ADDING(name, parts, total, shape)
    last = stage.calls[-1]
    return replace(stage, calls=(*stage.calls[:-1], replace(last, arguments=(last.arguments[0], last.arguments[0]))))


ORIGINAL_DIFFERENTIATE = differentiate.differentiate
ORIGINAL_ADDING = differentiate._adding
ORIGINAL_AGGREGATE = linear_maps._aggregate
BELOW = split_ends._vertex_values
ORIGINAL_FIELDS = labels._fields_but_layer


def passing_what_is_not_linear(node: Node) -> Any:
    """A map moves also across tanh and elu."""
    if isinstance(node, Elementwise) and node.op in ("aten.tanh.default", "aten.elu.default"):
        rest = node.arguments[1:]
        vectors = lambda x: ValueType("vertex", x.output.shape, x.output.dtype)  # noqa: E731
        return node.arguments[0], lambda x: replace(node, arguments=(x, *rest), type=vectors(x))
    return ORIGINAL_AGGREGATE(node)


def but(*names: str) -> Callable[[type[Node]], tuple[str, ...]]:
    """The fields by which nodes are told apart, without some of them."""
    return lambda kind: tuple(name for name in ORIGINAL_FIELDS(kind) if name not in names)


class _FromSources(type):
    def __instancecheck__(cls, node: object) -> bool:
        return isinstance(node, Scatter)

    def __call__(cls, x: Node, end: str, edges: Any, layer: str) -> Node:  # type: ignore[override]
        return Scatter(x, "source", edges, layer)


class FromSources(metaclass=_FromSources):
    """A Scatter whose rows are those of sources, whatever end is asked for."""


def without_destinations(factors: Any, layer: str) -> list[Node]:
    """The factors of a message, without those of destinations."""
    return [] if any(factor.node.end == "destination" for factor in factors) else BELOW(factors, layer)


def opposite(x: Node, kind: str, edges: Any, layer: str) -> Node:
    return Extreme(x, "min" if kind == "max" else "max", edges, layer)


OUT_OF_RANGE = IndexError, RuntimeError
"""What torch raises of a place that a tensor does not have."""

MUTATIONS = {
    "a mean is not divided": Mutation(push_down, "divided_by_degree", lambda total, edges, layer: total, 14),
    "weights of edges are forgotten": Mutation(
        push_down, "copied_source", lambda message: found and (found[0], False) if (found := COPIED(message)) else None, 15
    ),
    "a weight counts as 1": Mutation(
        drop_unit_weight, "weighted",
        lambda node: (found[0], replace(found[1], unit=True)) if (found := WEIGHTED(node)) else None, 15,
    ),
    "a maximum is taken for a minimum": Mutation(push_down_extremes, "Extreme", opposite, 7),
    "a message is lifted from the wrong end": Mutation(lift_message, "Scatter", FromSources, 2),
    "a factor of the destination is forgotten": Mutation(split_ends, "_vertex_values", without_destinations, 2),
    "a map moves across what is not linear": Mutation(linear_maps, "_aggregate", passing_what_is_not_linear, 0),
    "a bias is summed with the rows": Mutation(linear_maps, "bias", lambda product: None, 1),
    "a layer is computed a hop too near": Mutation(
        prune_vertices, "_hops", lambda step: dict.fromkeys(step.reads, 0), 3, check=check_few,
        expects=OUT_OF_RANGE,
    ),
    "a gradient goes back a hop too few": Mutation(phases, "differentiate", a_hop_too_few, 3, check=check_deep),
    "what has parameters is computed once": Mutation(
        hoist_invariant, "Parameter", Nothing, 0, expects=PlanError
    ),
    "what is random is computed once": Mutation(hoist_invariant, "Draw", Nothing, 7, dropping=True),
    "dropouts of one value are one": Mutation(labels, "_fields_but_layer", but("layer", "key"), 0, check=check_alikes),
    "sums over other weights are one": Mutation(
        labels, "_fields_but_layer", but("layer", "weighted"), 0, check=check_alikes
    ),
    "layers with different parameters are one": Mutation(labels, "_fields_but_layer", but("layer", "name"), 1),
    "evaluation is reused in spite of dropout": Mutation(
        reuse_evaluation, "reuse_evaluation", lambda _, __: True, 1,
        dropping=True, check=check_metrics,
    ),
    "an operator joins a stage that runs before its sum is made": Mutation(
        fuse_apply, "GraphOperator", Collect, 5, expects=PlanError
    ),
    "features that are not multiplied alone are held sparse": Mutation(
        hold_sparse, "_could_be", lambda i, *_: i.column == "features" and i.role == "vertex", 3, check=check_sparse,
        expects=EngineError,
    ),
    "what is multiplied with sparse features has no gradient": Mutation(
        SparseRows, "add_gradient", lambda rows, total, gradient: None, 9, check=check_thinned
    ),
    "models share what has parameters": Mutation(
        share_models, "_are_one", lambda stages: True, 3, check=check_batch, expects=StageError
    ),
    "what memory has no room for goes where it costs more": Mutation(
        keep_or_recompute, "choose_overflow", choosing_the_dearer, 4, check=check_kept
    ),
    "the plan that takes longest is chosen": Mutation(
        choose_physical, "choose_physical", choosing_the_dearest, 0, check=check_chosen
    ),
    "a live gradient is dropped": Mutation(
        drop_dead_gradients, "_gradients_read", lambda step: set() if isinstance(step, PropagateStep) else READ(step), 3,
        expects=PlanError,
    ),
    "backward goes along the edges": Mutation(
        phases, "differentiate", reversed_too_seldom(PropagateStep), 3, expects=(AssertionError, EngineError)
    ),
    "attention's backward goes along the edges": Mutation(
        phases, "differentiate", reversed_too_seldom(ScaledPropagateStep), 10
    ),
    "a contribution to a gradient is left out": Mutation(differentiate, "_adding", adding_too_few, 0, check=check_hops),
    "scores are read where edges begin alone": Mutation(
        EdgeValues, "_translated",
        lambda values, node: ("source", node.x) if isinstance(node, Scatter) else TRANSLATED(values, node), 10
    ),
    "scores have the gradient of others": Mutation(
        scaled_propagate, "EdgeDotStep", lambda output, edges, source, _, **rest: DOT(output, edges, source, source, **rest), 10
    ),
}  # fmt: skip

COPIED, WEIGHTED = push_down.copied_source, drop_unit_weight.weighted
TRANSLATED = EdgeValues._translated
READ, DOT = drop_dead_gradients._gradients_read, scaled_propagate.EdgeDotStep


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_a_broken_rule_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.check(mutation.seed, mutation.dropping)  # nothing else is wrong with that model
    monkeypatch.setattr(mutation.place, mutation.name, mutation.broken)
    with pytest.raises(mutation.expects):
        mutation.check(mutation.seed, mutation.dropping)


@cache
def drawn_cases() -> list[tuple[int, int, set[str], bool]]:
    """What `test_any_rules_off_equal_autograd` checks without a setting, in order: model, graph, rules off, whether general."""
    found: list[tuple[int, int, set[str], bool]] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(test_random_models, "check_against_autograd", lambda *case: found.append(case))
        test_random_models.test_any_rules_off_equal_autograd()
    return found


@pytest.mark.skipif("LOTAN_EXAMPLES" in os.environ, reason="other cases are drawn every time")
@pytest.mark.parametrize(
    "name",
    [
        "a mean is not divided",
        "weights of edges are forgotten",
        "backward goes along the edges",
        "a layer is computed a hop too near",
    ],
)
def test_the_cases_that_are_always_drawn_catch_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever seeds the table above has: of the random models' own 150 cases some go wrong.

    None of them has a gradient pass a sum that is pruned beyond level 0, as "a gradient goes back a hop too few" needs:
    `test_pruning.py` has such models.
    """
    mutation = MUTATIONS[name]
    monkeypatch.setattr(mutation.place, mutation.name, mutation.broken)
    with pytest.raises(mutation.expects):
        check_drawn_cases()


def check_drawn_cases() -> None:
    for case in drawn_cases():
        test_random_models.check_against_autograd(*case)
