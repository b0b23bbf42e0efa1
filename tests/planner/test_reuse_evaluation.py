"""reuse_evaluation: fires where training and evaluation are one graph, and on nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from planner import Options
from planner.beside import evaluated_beside
from planner.choices.evaluation import beside_training
from planner.cost.seconds import Pricing
from planner.explain.formats import explain
from planner.spec import Ref, Spec
from planner.statistics import Statistics
from planner.steps.pipe import PipeStep
from planner.validate import validate
from tests.planner.engines import BLOCKS, able
from tests.planner.specs import FEATURES, SpecWriter, attention, gcn, jumping, planned

ON_SPARK = Pricing(BLOCKS)


def test_one_graph_counts_all_splits_at_the_turn():
    plan = planned(jumping()).plan
    assert plan.reuses_evaluation
    assert [stage.counts for stage in plan.stages if stage.loss is not None] == ["all", "train"]


@pytest.mark.parametrize(
    ("train", "evaluate", "parts"),
    [
        (gcn(), gcn(training=False), "train.0.beside evaluate.0.beside evaluate.1.beside train.1 train.0.beside"),
        (attention(dropout=True), attention(), "train.0 evaluate.1.beside train.1 train.0"),
    ],
    ids=["on rows", "on edges"],
)
def test_what_stands_before_the_first_random_number_is_computed_once(train, evaluate, parts):
    plan = planned(train, evaluate, Options(pricing=ON_SPARK)).plan
    assert plan.reuses_evaluation
    assert all(stage.counts == "train" for stage in plan.stages)
    assert [step.stage for step in plan.train_and_evaluate if isinstance(step, PipeStep)] == parts.split()
    modes = [step.mode for step in plan.train_and_evaluate if isinstance(step, PipeStep)]
    assert modes.count("turn") == modes.count("evaluate") == 1


def test_in_one_process_whole_columns_are_shared():
    assert planned(attention(dropout=True), attention(), Options(pricing=able("edge_columns"))).plan.reuses_evaluation


def test_only_what_a_product_leads_to_is_put_out():
    """What is made of the products, not the sum that a bias is added to: that takes as long to write as to make."""
    plan = planned(gcn(layers=3), gcn(layers=3, training=False)).plan
    put_out = {o.column for s in plan.stages for o in s.outputs if o.column.startswith("beside.train")}
    assert put_out == {"beside.train.0.add_1"}
    assert [call.op for call in plan.stage("train.1").calls if call.output.startswith("add")]


def test_columns_put_out_have_names_of_their_own():
    """Evaluation has a branch before the others, so that what both compute is numbered otherwise there."""

    def model(training: bool) -> Spec:
        w = SpecWriter()

        def summed(name: str) -> Ref:
            product = w.vertex("mul.Tensor", *(w.linear(FEATURES, f"{name}.{n}", 8, 4) for n in (1, 2)), width=4)
            x = w.vertex("dropout.default", product, 0.5, True, width=4) if training else product
            return w.aggregate(w.scatter(x, "source", 4), 4)

        x = summed("both") if training else w.vertex("sub.Tensor", summed("evaluation"), summed("both"), width=4)
        return w.spec(w.linear(x, "last", 4, 3))

    plan = planned(model(True), model(False), Options(disabled=("reuse_evaluation",))).plan
    both = evaluated_beside(plan, exports=True)
    assert both.exports
    validate(both.plan)


def scaled(factor, training=False):
    """A linear map of the features, which training drops some of."""
    w = SpecWriter()
    x = w.vertex("dropout.default", FEATURES, 0.5, True, width=8) if training else FEATURES
    return w.spec(w.vertex("mul.Tensor", w.linear(x, "lin", 8, 3), factor, width=3))


def test_it_must_not_fire_behind_random_numbers():
    large = Statistics(vertices=10_000_000, edges=50_000_000, width=8)
    found = planned(scaled(2.0, training=True), scaled(2.0), statistics=large)
    assert not found.plan.reuses_evaluation
    assert found.firings["reuse_evaluation"] == 0
    assert "training computes nothing that evaluation does" in explain(found)


def test_what_would_take_longer_for_both_says_by_how_much():
    plan = planned(gcn(), gcn(training=False), Options(disabled=("reuse_evaluation",))).plan
    found = beside_training(plan, lambda given, _: 0.001 if given is plan else 0.0035)
    assert found == "one pass for both is estimated to take 2.5 ms more than two"


def test_of_different_numbers_nothing_is_taken():
    """What is computed alike is: the map, and not what it is multiplied with."""
    assert planned(scaled(2.0), scaled(2.0)).plan.train_and_evaluate == ()
    assert planned(scaled(2.0), scaled(2.0)).plan.reuses_evaluation
    both = evaluated_beside(planned(scaled(2.0), scaled(1.0)).plan, exports=True).plan
    calls = both.stage("evaluate.0.beside").calls
    assert [call.op for call in calls] == ["aten.linear.default", "aten.mul.Tensor"]  # a turn puts nothing out


@pytest.mark.parametrize("options", [Options(disabled=("reuse_evaluation",)), Options(plan="general")])
def test_it_can_be_switched_off(options):
    plan = planned(jumping(), options=options).plan
    assert not plan.reuses_evaluation
    assert all(stage.counts == "train" for stage in plan.stages)
    assert not planned(gcn(), gcn(training=False), options).plan.train_and_evaluate


def test_explain_says_what_an_epoch_is_spared():
    found = planned(jumping())
    (fact,) = [rule for rule in json.loads(explain(found, "json"))["rules"] if rule["name"] == "reuse_evaluation"]
    assert fact["gain"]["steps_without"] == len(found.plan.train) + len(found.plan.evaluate)
    assert "== physical: evaluation, after the last epoch ==" in explain(found)


def test_explain_shows_the_pass_that_does_both():
    found = planned(gcn(), gcn(training=False), Options(pricing=ON_SPARK))
    (fact,) = [rule for rule in json.loads(explain(found, "json"))["rules"] if rule["name"] == "reuse_evaluation"]
    assert fact["gain"]["steps"] == len(found.plan.train_and_evaluate)
    assert fact["gain"]["steps_without"] == len(found.plan.train) + len(found.plan.evaluate)
    assert "== physical: one epoch, with the evaluation after the one before ==" in explain(found)
    assert next(line for line in explain(found).splitlines() if line.startswith("Time")).endswith(" for both")


FEW = Statistics(vertices=200_000, edges=1_000_000, width=8, training=1_000)


def test_training_on_few_vertices_is_pruned_where_that_spares_more_than_one_pass_for_both():
    options = Options()
    of_few = planned(jumping(), options=options, statistics=FEW)
    of_most = planned(jumping(), options=options, statistics=replace(FEW, training=150_000))
    assert "prune_vertices" in of_few.plan.fired
    assert "reuse_evaluation" not in of_few.plan.fired
    assert "training by itself computes few vertices" in explain(of_few)
    assert "reuse_evaluation" in of_most.plan.fired
    assert "prune_vertices" not in of_most.plan.fired
    without = planned(jumping(), options=replace(options, disabled=("reuse_evaluation",)), statistics=FEW)
    assert of_few.plan.train == without.plan.train


def test_what_evaluates_seldom_trains_apart():
    """The few vertices are too many for evaluations after every epoch."""
    half = replace(FEW, training=110_000)
    found = {every: planned(jumping(), options=Options(eval_every=every), statistics=half)
             for every in (1, 10)}  # fmt: skip
    assert "prune_vertices" not in found[1].plan.fired
    assert "prune_vertices" in found[10].plan.fired
    assert found[10].seconds < found[1].seconds
