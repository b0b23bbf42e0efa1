"""Which rows of which columns a pruned epoch has; that answers stay equal is shown in tests/exactness."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import Options, Planned
from planner.expressions import leaves
from planner.spec import Spec
from planner.statistics import Statistics
from planner.steps.collect import CollectStep
from planner.steps.edge_expression import EdgeExpressionStep
from planner.steps.extreme import ExtremeGradientStep, ExtremeStep
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.scaled_propagate import EdgeDotStep, ScaledPropagateStep
from planner.steps.step import Step
from tests.planner.engines import ON_EDGES
from tests.planner.specs import FEATURES, IN_PLACE, SpecWriter, attention, gcn, jumping, planned

FEW = Statistics(vertices=1_000_000, edges=2_000_000, width=8, training=10)


def pruned(spec: Spec, *disabled: str, statistics: Statistics = FEW) -> Planned:
    options = Options(disabled=(*IN_PLACE, "reuse_evaluation", *disabled), pricing=ON_EDGES)
    return planned(spec, options=options, statistics=statistics)


def greatest() -> Spec:
    """The greatest of the neighbours' rows, twice."""
    w = SpecWriter()
    h = w.linear(FEATURES, "lin0", 8, 4)
    for _ in range(2):
        h = w.vertex("relu.default", w.aggregate(w.scatter(h, "source", 4), 4, "max"), width=4)
    return w.spec(w.linear(h, "lin1", 4, 3))


MODELS = {"gcn": gcn(layers=4), "jumping": jumping(), "attention": attention(), "dropping": attention(dropout=True),
          "greatest": greatest()}  # fmt: skip


def test_a_layer_is_needed_one_hop_farther_than_the_next():
    steps = pruned(gcn(layers=3)).plan.train
    turn = next(at for at, step in enumerate(steps) if isinstance(step, PipeStep) and step.mode == "turn")
    forward = [(type(step).__name__, step.within) for step in steps[:turn]]
    pipe, propagate = "PipeStep", "PropagateStep"
    assert forward == [(pipe, 3), (propagate, 2), (pipe, 2), (propagate, 1), (pipe, 1), (propagate, 0)]
    assert steps[turn].within == 0
    backward = [(type(step).__name__, step.within, step.columns_made[0].within) for step in steps[turn + 1 : -1]]
    assert backward == [(propagate, 0, 1), (pipe, 1, 1), (propagate, 1, 2), (pipe, 2, 2), (propagate, 2, 3)]


def test_what_several_read_has_the_rows_of_the_deepest():
    """The transformed input is read by the last stage, and by sums one and two hops away."""
    plan = pruned(jumping()).plan
    made = {column.name: column.within for step in plan.train for column in step.columns_made}
    assert made["relu_1"] == 1  # the last stage needs it within 0, the second sum within 1
    gradients = [column for step in plan.train for column in step.columns_made if column.name.startswith("d_relu_1")]
    assert [column.within for column in gradients] == [1, 1]


def test_evaluation_prediction_and_what_is_computed_once_have_all_rows():
    plan = planned(gcn(), gcn(training=False), Options(pricing=ON_EDGES), statistics=FEW).plan
    assert plan.prepare
    assert any(step.within is not None for step in plan.train)
    others = [step for steps in (plan.prepare, plan.evaluate, plan.predict) for step in steps]
    assert all(step.within is None for step in others)
    assert all(column.within is None for step in others for column in step.columns_made)


ALSO_EVALUATED = replace(FEW, evaluated=15)


def test_evaluation_is_pruned_where_few_more_vertices_are_evaluated_than_trained():
    plan = planned(gcn(), gcn(training=False), Options(pricing=ON_EDGES), statistics=ALSO_EVALUATED).plan
    assert plan.targets == "split"
    assert [step.within for step in plan.evaluate] == [1, 0, 0]
    assert all(step.within is None for step in (*plan.prepare, *plan.predict))


def test_a_training_pass_that_evaluates_is_pruned_to_what_both_need():
    found = planned(jumping(), options=Options(pricing=ON_EDGES), statistics=ALSO_EVALUATED)
    assert found.firings["reuse_evaluation"]
    assert all(step.within is not None for step in found.plan.train)


@pytest.mark.parametrize(("evaluated", "targets", "rows"), [
    (10, "split", 10), (15, "split", 15), (16, "train", 10), (None, "train", 10),
])  # fmt: skip
def test_levels_are_counted_from_all_splits_where_these_are_few_more(evaluated, targets, rows):
    known = replace(FEW, evaluated=evaluated)
    assert (known.targets, known.rows_within(0)) == (targets, rows)


def test_levels_are_counted_from_training_where_the_splits_are_most_of_the_graph():
    known = Statistics(vertices=100, edges=300, width=8, training=70, evaluated=80)
    assert (known.targets, known.rows_within(0)) == ("train", 70)


@pytest.mark.parametrize(
    ("statistics", "reason"),
    [
        (Statistics(1000, 2000, 8, training=950), "950 of 1,000 vertices are trained on"),
        (Statistics(1000, 2000, 8), "not known"),
    ],
)
def test_it_must_not_fire_where_it_does_not_pay(statistics, reason):
    found = pruned(gcn(), statistics=statistics)
    assert all(step.within is None for step in found.plan.train)
    assert found.firings["prune_vertices"] == 0
    assert [
        entry.reason for entry in found.rewritten.declined if entry.rule == "prune_vertices" and reason in entry.reason
    ]


def test_a_training_pass_that_evaluates_has_all_rows():
    most = replace(FEW, training=600_000)
    found = planned(jumping(), options=Options(pricing=ON_EDGES), statistics=most)
    assert found.firings["reuse_evaluation"]
    assert all(step.within is None for step in found.plan.train)
    assert [entry.reason for entry in found.rewritten.declined if "disable reuse_evaluation" in entry.reason]


def test_levels_that_hold_most_vertices_are_left_whole():
    """A graph like arxiv: 54 % are trained on, and nearly all are at most one hop away."""
    arxiv = Statistics(vertices=169_343, edges=2_400_000, width=8, training=90_941)
    assert {step.within for step in pruned(gcn(layers=3), statistics=arxiv).plan.train} == {0, None}


def test_disabled_the_plan_is_what_it_would_be_without_it():
    plan = pruned(gcn(), "prune_vertices").plan
    assert plan.levels is None
    assert all(step.within is None for steps in plan.passes for step in steps)
    assert [step.makes for step in plan.train] == [step.makes for step in pruned(gcn()).plan.train]


# --- every column has the rows that are read of it --------------------------------------------------------------------


def need(step: Step) -> dict[str, float]:
    """Of each column that a step reads, the level up to which it needs rows, by what the step does."""
    level = depth(step.within)
    away: dict[str, float] = dict.fromkeys(step.reads, level)
    match step:
        case PropagateStep(reverse=False) | ScaledPropagateStep(reverse=False) | ExtremeStep() | ExtremeGradientStep():
            away[step.input] = level + 1
        case CollectStep():
            away = dict.fromkeys(step.columns, level + 1)
        case EdgeDotStep():
            away[step.source] = level + 1
        case EdgeExpressionStep():
            away |= {leaf[1]: level + 1 for leaf in leaves(step.expression) if leaf[0] == "source"}
    return away


def depth(level: int | None) -> float:
    return float("inf") if level is None else level


@pytest.mark.parametrize("training", [10, 100_000, 500_000])
@pytest.mark.parametrize(
    "disabled", [(), ("drop_dead_gradients",), ("fuse_apply",), ("push_down",), ("push_down_edges",)]
)
@pytest.mark.parametrize("model", MODELS)
def test_every_column_has_the_rows_that_are_read_of_it(model, disabled, training):
    statistics = Statistics(vertices=1_000_000, edges=2_000_000, width=8, training=training)
    plan = pruned(MODELS[model], *disabled, statistics=statistics).plan
    rows = {column.name: depth(column.within) for column in plan.static_columns}
    for step in plan.train:
        for name, level in need(step).items():
            assert rows[name] >= level, f"{step} reads {name}"
        rows |= {column.name: depth(column.within) for column in step.columns_made}
        rows |= {name: depth(step.within) for name in step.makes if isinstance(step, CollectStep)}


@pytest.mark.parametrize("model", MODELS)
def test_parts_of_a_gradient_have_the_rows_of_its_column(model):
    """So that they can be added, and a stage that runs backward has as many as it had forward."""
    plan = pruned(MODELS[model], "drop_dead_gradients").plan
    made = {column.name: column for step in plan.train for column in step.columns_made}
    for step in plan.train:
        for gradient in step.gradients if isinstance(step, PipeStep) else ():
            assert {made[name].within for name in gradient.columns} == {step.within}
