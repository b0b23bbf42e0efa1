"""What rules do and do not fire on, but for those with a file of their own; that answers stay equal, tests/exactness shows."""

from __future__ import annotations

import inspect
from functools import partial, reduce
from pathlib import Path
from typing import get_args

import pytest

import planner.rules
from planner import RULE_NAMES, RULES, Options, PlanError
from planner.build import build
from planner.edge_values import OPERATIONS_AT_ONCE
from planner.expressions import operations, renamed, text
from planner.nodes import (
    Aggregate,
    Dropout,
    EdgeColumn,
    EdgeSoftmax,
    EdgeWeight,
    Elementwise,
    MatMul,
    Propagate,
    RowWise,
    Scatter,
    StaticColumn,
    topological,
)
from planner.optimizer import optimize
from planner.rule import NodeRule, Phase
from planner.rules.lift_message import lift_message
from planner.rules.split_ends import split_ends
from planner.rules.split_relations import split_relations
from planner.spec import Ref, ValueType
from planner.steps.collect import CollectStep, GatherStep
from planner.steps.edge_expression import EdgeExpression
from planner.steps.extreme import Extreme
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.scaled_propagate import ScaledPropagate
from planner.steps.total import ChunkSum, Total
from tests.planner.specs import FEATURES, IN_PLACE, SpecWriter, attention, gcn, jumping, planned

NODE_RULES = [rule for rule in RULES if isinstance(rule, NodeRule)]


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


def test_push_down_says_what_stopped_it_in_that_layer_alone():
    w, rows = SpecWriter(width=3, layer="conv"), FEATURES
    for name in ("theta", "phi"):
        both = w.edge("add.Tensor", w.scatter(rows, "source", 3), w.scatter(rows, "destination", 3), width=3)
        rows = w.aggregate(w.edge("linear.default", both, w.parameter(name, 3, 3), width=3), 3)
    reasons = [entry.reason for entry in optimize(build(w.spec(rows))).declined if entry.rule == "push_down"]
    assert [name in reason for name, reason in zip(("theta", "phi"), reasons, strict=True)] == [True, True]


def test_push_down_leaves_max_alone():
    w = SpecWriter(width=3, layer="conv")
    rewritten = optimize(build(w.spec(w.aggregate(w.scatter(FEATURES, "source", 3), 3, "max"))))
    assert isinstance(rewritten.root, Aggregate)
    assert not any(firing.rule == "push_down" for firing in rewritten.firings)


def test_push_down_needs_a_weight_that_scales_whole_rows():
    """A factor per edge and column is no weight: w of shape (3,) times x_j of shape (3,)."""

    def factor(w, x_j, x_i):
        weight = w.call("lotan.edge_weight", "graph", type=ValueType("edge", (), edges="graph"))
        wide = w.edge("expand.default", w.edge("unsqueeze.default", weight, -1, width=1), (-1, 3), width=3)
        return w.edge("mul.Tensor", x_j, wide, width=3)

    assert isinstance(optimize(build(message_spec(factor))).root, Aggregate)


# --- push_down_edges and push_down_extremes ------------------------------------------------------------------------


def rewritten_with(write, abilities=("edge_columns", "extremes"), kind="sum", edges="graph", disabled=()):
    w = SpecWriter(width=3, layer="conv")
    x_j, x_i = w.scatter(FEATURES, "source", 3, edges), w.scatter(FEATURES, "destination", 3, edges)
    return optimize(build(w.spec(w.aggregate(write(w, x_j, x_i), 3, kind, edges))), disabled, abilities)


def reasons(rewritten, rule):
    return [entry.reason for entry in rewritten.declined if entry.rule == rule]


def test_push_down_edges_takes_attention_out_of_the_dl_engine():
    root = optimize(build(attention(dropout=True)), (), ("edge_columns",)).root
    on_edges = [type(node).__name__ for node in topological(root) if node.output.rows == "edge"]
    assert on_edges == ["EdgeExpression", "SegmentSoftmax", "EdgeDropout"]
    assert isinstance(root, ScaledPropagate)
    assert root.scales.output.width == 1


def test_push_down_edges_sums_a_narrow_message_as_it_is():
    root = rewritten_with(lambda w, x_j, x_i: w.edge("sub.Tensor", x_j, x_i, width=3)).root
    assert kinds(root) == ["StaticColumn", "EdgeExpression", "EdgeSum"]


def test_push_down_edges_divides_a_mean_by_the_in_degree():
    root = rewritten_with(lambda w, x_j, x_i: w.edge("sub.Tensor", x_j, x_i, width=3), kind="mean").root
    assert isinstance(root, Elementwise)
    assert root.op == "aten.div.Tensor"


def test_push_down_edges_scales_each_head_by_its_own_number():
    """Two heads of three channels: the factor of shape (2, 1) becomes an edge column of width 2."""
    w = SpecWriter(width=6, layer="conv")
    heads, one = ValueType("edge", (2, 3), edges="graph"), ValueType("edge", (2, 1), edges="graph")
    x = w.call("aten.reshape.default", FEATURES, (-1, 2, 3), type=ValueType("vertex", (2, 3)))
    score = w.vertex("sum.dim_IntList", x, (-1,), width=2)
    ends = (w.scatter(score, "source", 2), w.scatter(score, "destination", 2))
    shares = w.call("aten.unsqueeze.default", w.edge("add.Tensor", *ends, width=2), -1, type=one)
    x_j = w.call("lotan.scatter", x, "source", "graph", type=heads)
    message = w.call("aten.mul.Tensor", x_j, shares, type=heads)
    total = w.call("lotan.aggregate", message, "sum", "graph", type=ValueType("vertex", (2, 3)))
    root = optimize(build(w.spec(total)), (), ("edge_columns",)).root
    assert isinstance(root, ScaledPropagate)
    assert root.scales.output.shape == (2,)
    assert root.output.shape == (2, 3)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda w, x_j, x_i: w.edge("linear.default", w.edge("add.Tensor", x_j, x_i, width=3),
                                    w.parameter("theta", 3, 3), width=3), "uses parameter theta"),
        (lambda w, x_j, x_i: w.edge("erf.default", w.edge("add.Tensor", x_j, x_i, width=3), width=3), "computes erf"),
        (lambda w, x_j, x_i: w.edge("sub.Tensor", x_j, x_i, width=17), "combines 3 with 17 numbers"),
        (lambda w, x_j, x_i: w.edge("sub.Tensor", w.edge("cat.default", (x_j,) * 6, -1, width=18),
                                    w.edge("cat.default", (x_i,) * 6, -1, width=18), width=18), "is 18 numbers wide"),
    ],
)  # fmt: skip
def test_push_down_edges_says_what_stopped_it(write, reason):
    rewritten = rewritten_with(write)
    assert isinstance(rewritten.root, Aggregate)
    (declined,) = reasons(rewritten, "push_down_edges")
    assert reason in declined
    assert "conv" in declined


def test_push_down_edges_leaves_plain_copies_to_push_down():
    """So that the plan without push_down collects, and shows what the rule is worth."""
    rewritten = rewritten_with(lambda w, x_j, x_i: x_j, disabled=("push_down",))
    assert isinstance(rewritten.root, Aggregate)


def test_push_down_edges_must_not_make_a_column_of_positions():
    w = SpecWriter(width=3, layer="conv")
    best = w.call("aten.argmax.default", FEATURES, 1, True, type=ValueType("vertex", (1,), "int64"))
    ends = [w.call("lotan.scatter", best, end, "graph", type=ValueType("edge", (1,), "int64", "graph"))
            for end in ("source", "destination")]  # fmt: skip
    rewritten = optimize(build(w.spec(w.aggregate(w.edge("sub.Tensor", *ends, width=1), 1))), (), ("edge_columns",))
    assert isinstance(rewritten.root, Aggregate)
    assert "holds int64" in reasons(rewritten, "push_down_edges")[0]


def test_push_down_edges_must_not_average_over_added_self_loops():
    def difference(w, x_j, x_i):
        return w.edge("sub.Tensor", x_j, x_i, width=3, edges="self_loops")

    rewritten = rewritten_with(difference, kind="mean", edges="self_loops")
    assert isinstance(rewritten.root, Aggregate)
    assert "added self-loops" in reasons(rewritten, "push_down_edges")[0]


def test_push_down_edges_must_not_drop_a_constant_factor():
    """2 * x_j * (x_j . x_i): a product with a number is no product of values, and stays whole."""

    def scaled(w, x_j, x_i):
        twice = w.edge("mul.Tensor", w.edge("sub.Tensor", x_j, x_i, width=3), 2.0, width=3)
        return w.edge("mul.Tensor", x_j, twice, width=3)

    root = rewritten_with(scaled).root
    assert isinstance(root, ScaledPropagate)
    assert "* 2" in text(renamed(root.scales.expression, lambda _: "x"))


def test_an_expression_that_reads_itself_twice_is_cut():
    def doubling(w, x_j, x_i):
        x = w.edge("sub.Tensor", x_j, x_i, width=3)
        for _ in range(40):
            x = w.edge("add.Tensor", x, x, width=3)
        return x

    root = rewritten_with(doubling).root
    found = [node for node in topological(root) if isinstance(node, EdgeExpression)]
    assert max(operations(node.expression) for node in found) <= 2 * OPERATIONS_AT_ONCE + 1
    assert len(found) > 2


@pytest.mark.parametrize("kind", ["max", "min"])
def test_push_down_extremes_takes_a_plain_max_or_min(kind):
    root = rewritten_with(lambda w, x_j, x_i: x_j, kind=kind).root
    assert isinstance(root, Extreme)
    assert root.kind == kind


def test_push_down_extremes_must_not_fire_on_a_message_of_both_ends():
    rewritten = rewritten_with(lambda w, x_j, x_i: w.edge("sub.Tensor", x_j, x_i, width=3), kind="max")
    assert isinstance(rewritten.root, Aggregate)
    assert "max of layer conv" in reasons(rewritten, "push_down_extremes")[0]


@pytest.mark.parametrize(
    ("kind", "rule", "reason"),
    [("sum", "push_down_edges", "holds no values of edges"), ("max", "push_down_extremes", "takes no max or min")],
)
def test_explain_says_what_the_engine_lacks(kind, rule, reason):
    def write(w, x_j, x_i):
        return x_j if kind == "max" else w.edge("sub.Tensor", x_j, x_i, width=3)

    rewritten = rewritten_with(write, abilities=(), kind=kind)
    assert isinstance(rewritten.root, Aggregate)
    assert reason in reasons(rewritten, rule)[0]
    assert "conv" in reasons(rewritten, rule)[0]


# --- push_down_totals -----------------------------------------------------------------------------------------------


def with_moments(make):
    """A sum over in-edges that `make` changes, less its mean over all vertices, times its variance; width 3."""
    w = SpecWriter(width=3, layer="norm")
    x = make(w, w.aggregate(w.scatter(FEATURES, "source", 3), 3))
    moments = w.call("lotan.total", x, "moments", type=ValueType("vertex", (3, 2)))
    mean, variance = (w.vertex("select.int", moments, 2, place, width=3) for place in (0, 1))
    return optimize(build(w.spec(w.vertex("mul.Tensor", w.vertex("sub.Tensor", x, mean, width=3), variance, width=3))))


def scaled_and_shifted(w, x):
    scale = w.call("lotan.vertex_input", "gcn_scale@graph", type=ValueType("vertex", ()))
    x = w.vertex("mul.Tensor", x, w.vertex("unsqueeze.default", scale, -1, width=1), width=3)
    return w.vertex("add.Tensor", x, w.parameter("bias", 3), width=3)


def test_push_down_totals_reads_the_sum_itself():
    rewritten = with_moments(scaled_and_shifted)
    (total,) = [node for node in topological(rewritten.root) if isinstance(node, Total)]
    assert isinstance(total.x, Propagate)
    assert total.scale == StaticColumn("gcn_scale@graph", ValueType("vertex", ()))
    assert [firing.rule for firing in rewritten.firings].count("push_down_totals") >= 3


@pytest.mark.parametrize(
    "make",
    [
        lambda w, x: w.vertex("relu.default", x, width=3),
        lambda w, x: w.vertex("add.Tensor", w.linear(x, "w", 3, 3), w.parameter("bias", 3), width=3),
        lambda w, x: w.vertex("mul.Tensor", x, w.parameter("gain", 3), width=3),
        lambda w, x: w.vertex("add.Tensor", x, FEATURES, width=3),
    ],
    ids=["relu", "linear", "gain", "rows"],
)
def test_push_down_totals_must_not_fire_on_what_the_graph_engine_does_not_hold(make):
    rewritten = with_moments(make)
    (total,) = [node for node in topological(rewritten.root) if isinstance(node, Total)]
    assert not isinstance(total.x, Propagate)
    assert "push_down_totals" not in [firing.rule for firing in rewritten.firings]


# --- sum_in_stages --------------------------------------------------------------------------------------------------


def total_of(kind, make=lambda w, x: w.vertex("exp.default", x, width=3)):
    """The total of what `make` makes of the features; width 3."""
    w = SpecWriter(width=3)
    shape = (3, 2) if kind == "moments" else (3,)
    total = w.call("lotan.total", make(w, FEATURES), kind, type=ValueType("vertex", shape))
    root = optimize(build(w.spec(total))).root
    assert isinstance(root, Total)
    return root


@pytest.mark.parametrize("kind", ["sum", "mean", "sample"])
def test_sum_in_stages_adds_up_what_a_stage_makes(kind):
    assert isinstance(total_of(kind).x, ChunkSum)


def test_sum_in_stages_must_not_fire_on_moments_or_on_what_lies_in_the_graph_engine():
    assert isinstance(total_of("moments").x, Elementwise)
    assert isinstance(total_of("sum", lambda w, x: x).x, StaticColumn)
    assert isinstance(total_of("sum", lambda w, x: w.aggregate(w.scatter(x, "source", 3), 3)).x, Propagate)


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


def lifts(spec):
    return sum(firing.rule == "lift_message" for firing in optimize(build(spec)).firings)


@pytest.mark.parametrize(("first", "second", "fires"), [("source", "source", 1), ("source", "destination", 0)])
def test_lift_message_does_not_mix_ends(first, second, fires):
    w = SpecWriter(width=3, layer="conv")
    ends = [w.scatter(x, end, 3) for x, end in ((w.linear(FEATURES, "lin", 3, 3), first), (FEATURES, second))]
    assert lifts(w.spec(w.aggregate(w.edge("add.Tensor", *ends, width=3), 3))) == fires


@pytest.mark.parametrize("other", ["graph", "self_loops"])
def test_lift_message_does_not_mix_edge_sets(other):
    """Rows of two edge sets are not of equal number; no model traces to their sum, and a rule must not take it for one."""
    x, y = (StaticColumn(name, ValueType("vertex", (3,))) for name in ("features", "y"))
    values = Scatter(x, "source", "graph"), Scatter(y, "source", other)
    total = lift_message(Elementwise("aten.add.Tensor", values, (), ValueType("edge", (3,), edges="graph")))
    assert (total is None) == (other == "self_loops")


# --- split_ends -----------------------------------------------------------------------------------------------------


def normalised(w, x_j, x_i, *, weight=True):
    """GCN's message as PyG writes it: (scale of the source * weight * scale of the destination) * x_j."""
    scale = w.call("lotan.vertex_input", "gcn_scale@graph", type=ValueType("vertex", ()))
    edge = ValueType("edge", (), edges="graph")
    factor, other = (w.call("lotan.scatter", scale, end, "graph", type=edge) for end in ("source", "destination"))
    if weight:
        factor = w.call("aten.mul.Tensor", factor, w.call("lotan.edge_weight", "graph", type=edge), type=edge)
    factor = w.call("aten.mul.Tensor", factor, other, type=edge)
    return w.edge("mul.Tensor", w.edge("reshape.default", factor, (-1, 1), width=1), x_j, width=3)


@pytest.mark.parametrize("weight", [True, False])
def test_split_ends_leaves_a_plain_sum(weight):
    rewritten = optimize(build(message_spec(partial(normalised, weight=weight))))
    assert any(firing.rule == "split_ends" for firing in rewritten.firings)
    assert all(node.output.rows == "vertex" for node in topological(rewritten.root))
    (total,) = [node for node in topological(rewritten.root) if isinstance(node, Propagate)]
    assert total.weighted == weight
    assert isinstance(total.x, Elementwise)
    assert isinstance(rewritten.root, Elementwise)


def rows_of(width, name):
    return StaticColumn(name, ValueType("vertex", (width,)))


def product_of(a, b):
    return Elementwise("aten.mul.Tensor", (a, b), (), max(a.output, b.output, key=lambda kind: kind.width))


def test_split_ends_takes_a_wide_factor_of_the_destination_out_of_a_mean():
    """What is left of the message has one number for each edge."""
    x, copy = rows_of(4, "features"), Scatter(rows_of(1, "label"), "source", "graph")
    found = split_ends(Aggregate(product_of(Scatter(x, "destination", "graph"), copy), "mean", "graph"))
    assert found.output == x.output
    assert found.arguments == (Aggregate(copy, "mean", "graph"), x)


def test_split_ends_multiplies_factors_of_the_source_below_the_sum():
    x, y = rows_of(4, "features"), rows_of(1, "label")
    row, factor = Scatter(x, "source", "graph"), Scatter(y, "source", "graph")
    share = EdgeSoftmax(factor, "graph")
    found = split_ends(Aggregate(product_of(product_of(share, factor), row), "sum", "graph"))
    assert found.message.arguments == (Scatter(product_of(y, x), "source", "graph"), share)
    assert split_ends(found) is None


@pytest.mark.parametrize(("kind", "op"), [("max", "mul"), ("min", "mul"), ("sum", "add"), ("sum", "div")])
def test_split_ends_must_not_split_an_extreme_or_anything_but_a_product(kind, op):
    x = rows_of(4, "features")
    scatters = tuple(Scatter(x, end, "graph") for end in ("source", "destination"))
    message = Elementwise(f"aten.{op}.Tensor", scatters, (), scatters[0].output)
    assert split_ends(Aggregate(message, kind, "graph")) is None


def test_split_ends_must_not_leave_an_empty_product():
    assert split_ends(Aggregate(Scatter(rows_of(4, "features"), "destination", "graph"), "sum", "graph")) is None


# --- split_relations ------------------------------------------------------------------------------------------------


def mask(number=2, edges="graph", op="eq"):
    """1 for each edge of a type, 0 for any other. [E, 1]"""
    bits, ones = (ValueType("edge", (), dtype, edges) for dtype in ("bool", "float32"))
    compared = RowWise(f"aten.{op}.Scalar", (EdgeColumn("edge_type", edges, (), "int64"), number), (), bits)
    cast = RowWise("aten.to.dtype", (compared, "float32"), (), ones)
    return RowWise("aten.reshape.default", (cast, -1, 1), (), ValueType("edge", (1,), "float32", edges))


def masked(*factors, kind="sum", edges="graph"):
    copy = Scatter(rows_of(4, "features"), "source", edges)
    return Aggregate(reduce(product_of, factors, copy), kind, edges)


@pytest.mark.parametrize("edges", ["graph", "reversed"])
def test_split_relations_sums_over_the_edges_of_one_type(edges):
    found = split_relations(masked(mask(edges=edges), edges=edges))
    assert found == Aggregate(Scatter(rows_of(4, "features"), "source", f"{edges}:2"), "sum", f"{edges}:2")
    assert split_relations(found) is None


def test_split_relations_leaves_a_sum_that_is_pushed_down_with_its_weight():
    weight = EdgeWeight("graph")
    wide = RowWise("aten.unsqueeze.default", (weight, -1), (), ValueType("edge", (1,), "float32", "graph"))
    found = optimize(masked(wide, mask(1))).root
    assert found == Propagate(rows_of(4, "features"), "graph:1", True)


@pytest.mark.parametrize(
    "total",
    [
        masked(mask(), kind="mean"),
        masked(mask(), kind="max"),
        masked(mask(), mask(3)),
        masked(mask(op="ne")),
        masked(mask(-1)),
        masked(mask(edges="self_loops"), edges="self_loops"),
        masked(mask(), EdgeSoftmax(Scatter(rows_of(1, "label"), "source", "graph"), "graph")),
        masked(mask(), Dropout(Scatter(rows_of(1, "label"), "source", "graph"), 0.5, 7)),
        Aggregate(mask(), "sum", "graph"),
    ],
    ids=["mean", "maximum", "two types", "all other types", "no type", "added loops", "softmax", "dropout", "a count"],
)
def test_split_relations_leaves_what_needs_the_other_edges(total):
    assert split_relations(total) is None


def test_rules_do_not_fire_on_vertices():
    """What fires on edges must leave the same operator alone on rows of vertices: no rule finds anything here to do."""
    w = SpecWriter()
    h = w.linear(FEATURES, "enter", 8, 4)
    h = w.vertex("add.Tensor", w.vertex("relu.default", h, width=4), h, width=4)
    h = w.vertex("mul.Tensor", w.vertex("dropout.default", h, 0.5, True, width=4), h, width=4)
    logical = build(w.spec(w.linear(h, "leave", 4, 3)))
    rewritten = optimize(logical, (), ("edge_columns", "extremes"))
    assert (rewritten.root, rewritten.firings) == (logical, ())
    nodes = topological(logical)
    assert {"MatMul", "Elementwise", "Dropout"} <= {*kinds(logical)}
    assert [rule.name for rule in NODE_RULES for node in nodes if rule.apply(node) is not None] == []


# --- fuse_apply -----------------------------------------------------------------------------------------------------


def test_fuse_apply_leaves_one_pipe_between_two_graph_operators():
    steps = planned(gcn(), options=Options(disabled=IN_PLACE)).plan.train
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
    spec = w.spec(w.vertex("add.Tensor", neighbours, w.linear(FEATURES, "lin_r", 8, 3), width=3))
    plan = planned(spec, options=Options(disabled=IN_PLACE)).plan
    assert [type(step).__name__ for step in plan.train] == ["PropagateStep", "PipeStep"]


# --- drop_dead_gradients --------------------------------------------------------------------------------------------


def test_drop_dead_gradients_asks_for_no_gradient_of_the_features():
    with_rule = planned(gcn(), options=Options(disabled=IN_PLACE)).plan
    without = planned(gcn(), options=Options(disabled=("drop_dead_gradients", *IN_PLACE))).plan
    assert not any("d_features" in str(step) for step in with_rule.train)
    assert any("d_features" in str(step) for step in without.train)


def test_drop_dead_gradients_skips_the_reverse_pass_of_a_static_aggregate():
    w = SpecWriter()
    spec = w.spec(w.linear(w.aggregate(w.scatter(FEATURES, "source", 8), 8), "lin", 8, 3))
    steps = planned(spec, options=Options(disabled=IN_PLACE)).plan.train
    reverse = [step for step in steps if isinstance(step, PropagateStep) and step.reverse]
    naive = planned(spec, options=Options(disabled=("drop_dead_gradients", *IN_PLACE))).plan.train
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
    plan = planned(w.spec(h), options=Options(disabled=IN_PLACE)).plan
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


def test_rules_are_named_after_their_files_and_functions():
    files = {path.stem for path in Path(planner.rules.__file__).parent.glob("*.py")} - {"__init__"}
    assert files | {"choose_physical"} == set(RULE_NAMES)
    for rule in RULES:
        module = inspect.getmodule(rule.apply)
        assert module is not None
        assert module.__name__.rpartition(".")[2] == rule.name
        assert module.RULE is rule
        assert callable(getattr(module, rule.name))


def test_rules_are_listed_in_the_order_of_their_phases():
    phases = get_args(Phase)
    assert sorted(RULES, key=lambda rule: phases.index(rule.phase)) == list(RULES)


def test_an_operator_of_width_zero_parameters_is_planned():
    w = SpecWriter(width=3)
    spec = w.spec(w.vertex("relu.default", Ref("features"), width=3))
    assert planned(spec).plan.trainable == ()
