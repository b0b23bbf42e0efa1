"""Where commute_linear fires, and where it must not."""

from __future__ import annotations

import pytest

from planner.build import build
from planner.nodes import MatMul, Propagate, topological
from planner.optimizer import optimize
from planner.spec import ValueType
from planner.statistics import Statistics
from planner.steps.propagate import PropagateStep
from tests.planner.specs import FEATURES, SpecWriter, hops, planned


def moved(write, disabled=("hoist_invariant",), width=8):
    """The rewritten graph of a model that `write(writer)` makes the output of."""
    w = SpecWriter(width=width, layer="conv")
    return optimize(build(w.spec(write(w))), disabled).root


def widths_summed(root):
    return [node.output.width for node in topological(root) if isinstance(node, Propagate)]


@pytest.mark.parametrize(("outputs", "summed"), [(3, 3), (8, 8), (20, 8)])
def test_commute_linear_sums_the_narrower_side_of_a_map_before_the_sum(outputs, summed):
    root = moved(lambda w: w.aggregate(w.scatter(w.linear(FEATURES, "lin", 8, outputs), "source", outputs), outputs))
    assert widths_summed(root) == [summed]
    assert root.output.width == outputs


@pytest.mark.parametrize(("outputs", "below", "summed"), [(5, False, 8), (5, True, 5), (3, False, 3), (4, False, 8)])
def test_commute_linear_counts_what_backward_moves_as_well(outputs, below, summed):
    """Of the features no gradient is wanted, of what a parameter made it is."""

    def write(w):
        x = w.vertex("mul.Tensor", FEATURES, w.parameter("scale", 8), width=8) if below else FEATURES
        return w.linear(w.aggregate(w.scatter(x, "source", 8), 8), "lin", 8, outputs)

    assert widths_summed(moved(write)) == [summed]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("outputs", "summed"), [(3, 3), (8, 8), (20, 8)])
def test_commute_linear_sums_the_narrower_side_of_a_map_after_the_mean(outputs, summed, bias):
    def write(w):
        found = w.aggregate(w.scatter(FEATURES, "source", 8), 8, "mean")
        added = [w.parameter("bias", outputs)] if bias else []
        return w.vertex("linear.default", found, w.parameter("lin", outputs, 8), *added, width=outputs)

    root = moved(write)
    assert widths_summed(root) == [summed]
    # the bias is no part of what is summed
    reads = [node for node in topological(root) if any(getattr(c, "name", "") == "bias" for c in node.children)]
    assert len(reads) == bias
    assert all(node is root for node in reads)


def test_commute_linear_passes_through_a_factor_of_each_row():
    def write(w):
        scale = w.call("lotan.vertex_input", "gcn_scale@self_loops", type=ValueType("vertex", ()))
        scale = w.vertex("unsqueeze.default", scale, -1, width=1)
        h = w.vertex("mul.Tensor", w.linear(FEATURES, "lin", 8, 20), scale, width=20)
        return w.vertex("mul.Tensor", w.aggregate(w.scatter(h, "source", 20), 20), scale, width=20)

    root = moved(write)
    assert isinstance(root, MatMul)
    assert widths_summed(root) == [8]


@pytest.mark.parametrize("outputs", [3, 20])
def test_commute_linear_passes_through_a_chain_of_any_length_at_once(outputs):
    rewritten = optimize(build(hops(500, outputs=outputs)), ("hoist_invariant",))
    assert widths_summed(rewritten.root) == [min(8, outputs)] * 500
    assert [firing.rule for firing in rewritten.firings].count("commute_linear") == (outputs < 8)


@pytest.mark.parametrize("layers", [2, 70])
def test_commute_linear_fires_in_every_layer_at_once_whatever_their_number(layers):
    """What a walk has done below a layer does not keep it from asking who reads that layer's sum."""

    def write(w):
        h = w.vertex("mul.Tensor", FEATURES, w.parameter("scale", 200), width=200)
        for layer in range(layers):
            width = 200 - layer
            total = w.aggregate(w.scatter(h, "source", width), width)
            h = w.vertex("relu.default", w.linear(total, f"lin{layer}", width, width - 1), width=width - 1)
        return h

    assert widths_summed(moved(write, width=200)) == list(range(199, 199 - layers, -1))


def test_commute_linear_leaves_a_bias_below_the_sum_and_says_so():
    w = SpecWriter(layer="conv")
    h = w.vertex("linear.default", FEATURES, w.parameter("lin", 20, 8), w.parameter("bias", 20), width=20)
    rewritten = optimize(build(w.spec(w.aggregate(w.scatter(h, "source", 20), 20))))
    assert widths_summed(rewritten.root) == [20]
    (reason,) = [entry.reason for entry in rewritten.declined if entry.rule == "commute_linear"]
    assert "bias" in reason


@pytest.mark.parametrize(("outputs", "summed"), [(3, [8]), (1, [1, 1])])
def test_commute_linear_leaves_a_sum_of_two_maps_unless_both_together_are_narrower(outputs, summed):
    def write(w):
        total = w.aggregate(w.scatter(FEATURES, "source", 8), 8)
        maps = [w.linear(total, name, 8, outputs) for name in ("a", "b")]
        return w.vertex("mul.Tensor", *maps, width=outputs)

    assert widths_summed(moved(write)) == summed


@pytest.mark.parametrize(("edges", "sums"), [(10, 4), (1_000_000, 2)])
def test_commute_linear_is_left_out_where_two_narrow_sums_are_estimated_to_take_longer_than_one(edges, sums):
    """A sum takes as long as its edges, however narrow it is, where the rows lie in the caches."""
    w = SpecWriter()
    h = w.vertex("relu.default", w.linear(FEATURES, "lin", 8, 8), width=8)
    total = w.aggregate(w.scatter(h, "source", 8), 8)
    maps = [w.linear(total, name, 8, 1) for name in ("a", "b")]
    found = planned(w.spec(w.vertex("mul.Tensor", *maps, width=1)), outputs=1, statistics=Statistics(1000, edges, 8))
    assert sum(isinstance(step, PropagateStep) for step in found.plan.train) == sums
    assert found.draft.without == ("commute_linear" if sums == 2 else "")


def test_commute_linear_leaves_a_sum_that_is_read_as_it_is():
    def write(w):
        total = w.aggregate(w.scatter(FEATURES, "source", 8), 8)
        return w.vertex("cat.default", (w.linear(total, "a", 8, 3), total), -1, width=11)

    assert widths_summed(moved(write)) == [8]


def test_commute_linear_must_not_pass_through_what_is_not_linear():
    def write(w):
        h = w.vertex("relu.default", w.linear(FEATURES, "lin", 8, 20), width=20)
        return w.aggregate(w.scatter(h, "source", 20), 20)

    assert widths_summed(moved(write)) == [20]
