"""reuse_evaluation: fires where training and evaluation are one graph, and on nothing else."""

from __future__ import annotations

import json

import pytest

from planner import Options
from planner.explain import explain
from tests.planner.specs import FEATURES, SpecWriter, attention, gcn, jumping, planned


def test_one_graph_counts_all_splits_at_the_turn():
    plan = planned(jumping()).plan
    assert plan.reuses_evaluation
    assert [stage.counts for stage in plan.stages if stage.loss is not None] == ["all", "train"]


@pytest.mark.parametrize("train", [gcn(), attention(dropout=True)], ids=["on rows", "on edges"])
def test_it_must_not_fire_where_training_draws_random_numbers(train):
    evaluate = gcn(training=False) if train == gcn() else attention()
    found = planned(train, evaluate, Options(abilities=("edge_columns",)))
    assert not found.plan.reuses_evaluation
    assert found.firings["reuse_evaluation"] == 0
    assert "such as random numbers" in explain(found)


def test_it_must_not_fire_where_training_computes_something_else_without_random_numbers():
    def scaled(factor):
        w = SpecWriter()
        h = w.vertex("mul.Tensor", w.linear(FEATURES, "lin", 8, 3), factor, width=3)
        return w.spec(h)

    assert not planned(scaled(2.0), scaled(1.0)).plan.reuses_evaluation
    assert planned(scaled(2.0), scaled(2.0)).plan.reuses_evaluation


@pytest.mark.parametrize("options", [Options(disabled=("reuse_evaluation",)), Options(plan="general")])
def test_it_can_be_switched_off(options):
    plan = planned(jumping(), options=options).plan
    assert not plan.reuses_evaluation
    assert all(stage.counts == "train" for stage in plan.stages)


def test_explain_says_what_an_epoch_is_spared():
    found = planned(jumping())
    (fact,) = [rule for rule in json.loads(explain(found, "json"))["rules"] if rule["name"] == "reuse_evaluation"]
    assert fact["gain"]["steps_without"] == len(found.plan.train) + len(found.plan.evaluate)
    assert "== physical: evaluation, after the last epoch ==" in explain(found)
