"""The driver of the rules: what it refuses, and that plans of one model may have phases in common."""

from __future__ import annotations

import pytest

from planner import RULE_NAMES, Options, PlanError, compile_plan
from planner.compiler import without
from planner.nodes import Elementwise, StaticColumn
from planner.optimizer import optimize
from planner.rule import NodeRule
from planner.spec import ValueType
from tests.planner.engines import ON_EDGES
from tests.planner.specs import attention, gcn, jumping, planned

X = StaticColumn("features", ValueType("vertex", (4,)))
EDGES = Options(pricing=ON_EDGES)


def of(op, x=X):
    return Elementwise(f"aten.{op}.default", (x,), (), x.output)


def turns(before, after, pays=None):
    """A rule that makes one elementwise operator of another."""

    def apply(node):
        found = isinstance(node, Elementwise) and node.op == of(before).op
        return of(after, node.arguments[0]) if found else None

    return NodeRule(name=f"{before}_to_{after}", apply=apply, idle="", pays=pays)


@pytest.mark.parametrize("pays", [None, lambda node, readers: True], ids=["in one walk", "in walks of their own"])
def test_rules_that_undo_one_another_are_refused(pays):
    rules = [turns("relu", "tanh", pays), turns("tanh", "relu", pays)]
    with pytest.raises(PlanError, match="do not settle; the last to fire was"):
        optimize(of("exp", of("relu")), rules=rules)


def test_a_rule_sees_what_one_before_it_made_of_a_node():
    rules = [turns("relu", "tanh"), turns("tanh", "sigmoid")]
    found = optimize(of("exp", of("relu")), rules=rules)
    assert found.root is of("exp", of("sigmoid"))
    assert [firing.rule for firing in found.firings] == ["relu_to_tanh", "tanh_to_sigmoid"]


def test_a_rule_that_has_to_pay_asks_of_the_graph_at_hand():
    """Its readers are those after the rules before it, not those of the graph that was given."""
    asked = []

    def pays(node, readers):
        asked.append([reader.op for reader in readers[node]])
        return False

    optimize(of("exp", of("relu")), rules=[turns("exp", "neg"), turns("relu", "tanh", pays)])
    assert asked
    assert all(readers == ["aten.neg.default"] for readers in asked)


@pytest.mark.parametrize("rule", RULE_NAMES)
@pytest.mark.parametrize("model", [gcn, lambda training: attention(dropout=training), lambda training: jumping()])
def test_a_plan_with_phases_of_another_is_the_plan_it_would_be_alone(rule, model):
    specs = model(training=True), model(training=False)
    first = planned(*specs, options=EDGES)
    for options in (
        Options(disabled=(rule,)),
        Options(disabled=(rule,), pricing=EDGES.pricing),
        Options(plan="general"),
    ):
        again = first.with_options(options)
        assert again.plan == compile_plan(*first.given, first.statistics, options).plan
    assert without(first, rule).plan == planned(*specs, options=Options(disabled=(rule,), pricing=EDGES.pricing)).plan
