"""What each rule does and does not fire on; that answers stay equal is shown on real engines in tests/exactness."""

from __future__ import annotations

import pytest

from planner import RULES, Options, PlanError
from planner.build import build
from planner.nodes import Aggregate, Dropout, Elementwise, MatMul, Propagate, topological
from planner.optimizer import optimize
from planner.physical import CollectStep, GatherStep, PipeStep, PropagateStep
from planner.rules.lift_message import lift_message
from planner.rules.push_down import push_down
from planner.spec import Ref, ValueType
from tests.planner.specs import FEATURES, SpecWriter, attention, gcn, jumping, planned


def kinds(root):
    return [type(node).__name__ for node in topological(root)]


def message_spec(write):
    """A model whose layer sums the message that `write(writer, x_j, x_i)` makes; width 3 in and out."""
    w = SpecWriter(width=3, layer="conv")
    x_j, x_i = w.scatter(FEATURES, "source", 3), w.scatter(FEATURES, "destination", 3)
    return w.spec(w.aggregate(write(w, x_j, x_i), 3))


# --- push_down ------------------------------------------------------------------------------------------------------


def test_push_down_turns_a_sum_of_copies_into_a_propagate():
    root = optimize(build(message_spec(lambda w, x_j, x_i: x_j))).root
    assert isinstance(root, Propagate)
    assert not root.weighted


def test_push_down_divides_a_mean_by_the_in_degree():
    root = optimize(build(jumping())).root
    assert "Aggregate" not in kinds(root)
    assert any(isinstance(node, Elementwise) and node.op == "aten.div.Tensor" for node in topological(root))


def weighted_copy(w, x_j, x_i):
    weight = w.call("lotan.edge_weight", "graph", type=ValueType("edge", (), edges="graph"))
    return w.edge("mul.Tensor", x_j, w.edge("unsqueeze.default", weight, -1, width=1), width=3)


def test_drop_unit_weight_removes_the_product_where_the_graph_has_no_weights():
    root = optimize(build(message_spec(weighted_copy), weighted=False)).root
    assert isinstance(root, Propagate)
    assert not root.weighted


def test_drop_unit_weight_must_not_fire_on_real_weights():
    rewritten = optimize(build(message_spec(weighted_copy), weighted=True))
    assert isinstance(rewritten.root, Propagate)
    assert rewritten.root.weighted
    assert not any(firing.rule == "drop_unit_weight" for firing in rewritten.firings)


@pytest.mark.parametrize("weight_first", [True, False])
def test_push_down_takes_the_edge_weight_along(weight_first):
    def weighted(w, x_j, x_i):
        weight = w.call("lotan.edge_weight", "graph", type=ValueType("edge", (), edges="graph"))
        weight = w.edge("unsqueeze.default", weight, -1, width=1)
        return w.edge("mul.Tensor", *((weight, x_j) if weight_first else (x_j, weight)), width=3)

    root = optimize(build(message_spec(weighted))).root
    assert isinstance(root, Propagate)
    assert root.weighted


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda w, x_j, x_i: w.edge("sub.Tensor", x_j, x_i, width=3), "reads the destination"),
        (lambda w, x_j, x_i: w.edge("dropout.default", x_j, 0.5, True, width=3), "draws random numbers"),
        (lambda w, x_j, x_i: w.edge("linear.default", w.edge("add.Tensor", x_j, x_i, width=3),
                                    w.parameter("theta", 3, 3), width=3), "uses parameter theta"),
    ],
)  # fmt: skip
def test_push_down_says_what_stopped_it(write, reason):
    rewritten = optimize(build(message_spec(write)))
    assert isinstance(rewritten.root, Aggregate)
    (declined,) = [entry.reason for entry in rewritten.declined if entry.rule == "push_down"]
    assert reason in declined
    assert "conv" in declined


def test_push_down_leaves_max_alone():
    w = SpecWriter(width=3, layer="conv")
    rewritten = optimize(build(w.spec(w.aggregate(w.scatter(FEATURES, "source", 3), 3, "max"))))
    assert isinstance(rewritten.root, Aggregate)
    assert "max of layer conv" in rewritten.declined[0].reason


def test_push_down_needs_a_weight_that_scales_whole_rows():
    """A factor per edge and column is no weight: w of shape (3,) times x_j of shape (3,)."""

    def factor(w, x_j, x_i):
        weight = w.call("lotan.edge_weight", "graph", type=ValueType("edge", (), edges="graph"))
        wide = w.edge("expand.default", w.edge("unsqueeze.default", weight, -1, width=1), (-1, 3), width=3)
        return w.edge("mul.Tensor", x_j, wide, width=3)

    assert isinstance(optimize(build(message_spec(factor))).root, Aggregate)


# --- lift_message ---------------------------------------------------------------------------------------------------


def test_lift_message_moves_what_reads_one_end():
    spec = message_spec(lambda w, x_j, x_i: w.edge("relu.default", x_j, width=3))
    assert kinds(optimize(build(spec)).root) == ["StaticColumn", "Elementwise", "Propagate"]


def test_lift_message_leaves_attention_with_a_score_per_edge():
    root = optimize(build(attention())).root
    on_edges = [node for node in topological(root) if node.output.rows == "edge"]
    assert not any(isinstance(node, MatMul) for node in on_edges)
    scores = [node for node in on_edges if isinstance(node, Elementwise) and node.op != "aten.mul.Tensor"]
    assert all(node.output.width == 1 for node in scores)


def test_lift_message_computes_a_shared_transform_once():
    """W x_j and W x_i are one vertex value after lifting: nodes are interned."""
    root = optimize(build(attention())).root
    assert sum(isinstance(node, MatMul) and node.output.width == 3 for node in topological(root)) == 1


def test_lift_message_must_not_move_random_numbers():
    spec = message_spec(lambda w, x_j, x_i: w.edge("dropout.default", x_j, 0.5, True, width=3))
    rewritten = optimize(build(spec))
    (dropout,) = [node for node in topological(rewritten.root) if isinstance(node, Dropout)]
    assert dropout.output.rows == "edge"
    assert any(entry.rule == "lift_message" and "dropout" in entry.reason for entry in rewritten.declined)


def test_lift_message_does_not_mix_ends_or_edge_sets():
    both = message_spec(lambda w, x_j, x_i: w.edge("add.Tensor", x_j, x_i, width=3))
    assert not any(firing.rule == "lift_message" for firing in optimize(build(both)).firings)


def test_rules_do_not_fire_on_vertices():
    node = build(jumping())
    assert lift_message(node) is None
    assert push_down(node) is None


# --- fuse_apply -----------------------------------------------------------------------------------------------------


def test_fuse_apply_leaves_one_pipe_between_two_graph_operators():
    steps = planned(gcn()).plan.train
    assert [type(step).__name__ for step in steps] == ["PipeStep", "PropagateStep"] * 4 + ["PipeStep"]


def test_without_fuse_apply_every_operator_is_a_stage():
    plan = planned(gcn(), options=Options(disabled=("fuse_apply",))).plan
    forward = [step for step in plan.train if isinstance(step, PipeStep) and step.mode == "forward"]
    assert len(forward) > 5
    assert all(len([call for call in plan.stage(step.stage).calls if call.type.width > 1]) == 1 for step in forward)


def test_fuse_apply_moves_static_operators_to_their_reader():
    """lin_r(x) of a SAGE layer waits for the neighbours' mean; it is not piped by itself."""
    w = SpecWriter()
    neighbours = w.linear(w.aggregate(w.scatter(FEATURES, "source", 8), 8), "lin_l", 8, 3)
    plan = planned(w.spec(w.vertex("add.Tensor", neighbours, w.linear(FEATURES, "lin_r", 8, 3), width=3))).plan
    assert [type(step).__name__ for step in plan.train] == ["PropagateStep", "PipeStep"]


# --- drop_dead_gradients --------------------------------------------------------------------------------------------


def test_drop_dead_gradients_asks_for_no_gradient_of_the_features():
    with_rule = planned(gcn()).plan
    without = planned(gcn(), options=Options(disabled=("drop_dead_gradients",))).plan
    assert not any("d_features" in str(step) for step in with_rule.train)
    assert any("d_features" in str(step) for step in without.train)


def test_drop_dead_gradients_skips_the_reverse_pass_of_a_static_aggregate():
    w = SpecWriter()
    spec = w.spec(w.linear(w.aggregate(w.scatter(FEATURES, "source", 8), 8), "lin", 8, 3))
    reverse = [step for step in planned(spec).plan.train if isinstance(step, PropagateStep) and step.reverse]
    naive = planned(spec, options=Options(disabled=("drop_dead_gradients",))).plan.train
    assert reverse == []
    assert any(isinstance(step, PropagateStep) and step.reverse for step in naive)


def test_drop_dead_gradients_keeps_frozen_layers_gradient_for_those_below():
    w = SpecWriter()
    h = w.linear(FEATURES, "below", 8, 4)
    h = w.aggregate(w.scatter(h, "source", 4), 4)
    h = w.vertex("linear.default", h, w.parameter("frozen", 3, 4, trainable=False), width=3)
    plan = planned(w.spec(h)).plan
    assert plan.trainable == ("below",)
    assert any(isinstance(step, PipeStep) and step.mode == "backward" for step in plan.train)


def test_drop_dead_gradients_stops_below_the_lowest_trained_layer():
    w = SpecWriter()
    h = w.vertex("linear.default", FEATURES, w.parameter("frozen", 4, 8, trainable=False), width=4)
    h = w.linear(w.aggregate(w.scatter(h, "source", 4), 4), "above", 4, 3)
    plan = planned(w.spec(h)).plan
    assert not any(isinstance(step, PipeStep) and step.mode == "backward" for step in plan.train)


# --- all ------------------------------------------------------------------------------------------------------------


def test_the_general_plan_collects_and_the_other_propagates():
    general = planned(gcn(), options=Options(plan="general")).plan.train
    pushed = planned(gcn()).plan.train
    assert any(isinstance(step, CollectStep) for step in general)
    assert any(isinstance(step, GatherStep) for step in general)
    assert not any(isinstance(step, PropagateStep) for step in general)
    assert not any(isinstance(step, (CollectStep, GatherStep)) for step in pushed)


def test_an_unknown_rule_is_refused_with_a_near_name():
    with pytest.raises(PlanError, match="push_down"):
        planned(gcn(), options=Options(disabled=("pushdown",)))


def test_rules_are_named_after_their_files():
    from pathlib import Path

    import planner.rules

    files = {path.stem for path in Path(planner.rules.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == set(RULES)


def test_an_operator_of_width_zero_parameters_is_planned():
    w = SpecWriter(width=3)
    spec = w.spec(w.vertex("relu.default", Ref("features"), width=3))
    assert planned(spec).plan.trainable == ()
