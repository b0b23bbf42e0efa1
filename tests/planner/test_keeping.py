"""What a stage keeps for its backward, and what it would pay without: counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import Options
from planner.keeping import DISK_RATE, MULTIPLICATIONS, SENT_RATE, VALUES, kept_bytes, saved_row_bytes, seconds_again
from planner.kernels import run_by_autograd
from planner.physical import Stage
from planner.rules.keep_or_recompute import ALL_KEPT, choose_overflow, keep_or_recompute
from planner.spec import Call, ParameterSpec, Ref, ValueType
from tests.planner.engines import ON_BLOCKS
from tests.planner.specs import STATISTICS, attention, gcn, planned


def stage(name: str, *specs, **options) -> Stage:
    return planned(*specs, options=Options(**options)).plan.stage(name)


def hidden(**options) -> Stage:
    """Of a GCN 8-16-3, after its first sum: the rows of a sum times a scale, plus a bias, ReLU, dropout, a product."""
    specs = gcn(), gcn(training=False)
    plan = planned(
        *specs, options=Options(disabled=("commute_linear", "hoist_invariant"), pricing=ON_BLOCKS, **options)
    ).plan
    backward = [step.stage for step in plan.train if getattr(step, "mode", None) == "backward"]
    return plan.stage(backward[0])


def test_a_stage_on_vertices():
    found = hidden()
    assert kept_bytes(found, STATISTICS) == saved_row_bytes(found) == 4 * 16  # what the product reads: ReLU and dropout
    # sent again: the sum; made again: times scale, relu, dropout (the bias: as a product is made; views: nothing)
    again = 4 * 16 / SENT_RATE + 3 * 16 / VALUES
    assert seconds_again(found, STATISTICS) == pytest.approx(again)
    assert found.overflow == "file"
    assert found.worth == pytest.approx(2 / DISK_RATE)


def test_of_a_stage_that_autograd_runs_more_is_kept():
    """ReLU and dropout each, and what the product made: there is an operator without an adjoint of our own."""
    found = hidden()
    total = Call("total", "aten.sum.dim_IntList", (Ref(found.calls[-1].output), (-1,)), ValueType("vertex", (1,)))
    summed = keep_or_recompute(replace(found, calls=(*found.calls, total)), STATISTICS)
    assert saved_row_bytes(summed) == 4 * (16 + 16 + 3)
    # a worker puts it in no file, so what memory spares is another run
    assert (found.overflow, summed.overflow) == ("file", "recompute")
    assert summed.worth == pytest.approx(seconds_again(summed, STATISTICS) / kept_bytes(summed, STATISTICS))


@pytest.mark.parametrize(
    ("op", "by", "numbers"), [("mul", "other", 6), ("div", "other", 6), ("add", "other", 0), ("div", "one", 3)]
)
def test_both_factors_are_kept_where_both_have_gradients(op, by, numbers):
    """Autograd runs such a stage: the sum of a row and a number is no kernel."""
    found = hidden()
    rows = found.calls[-1].output
    one = Call("one", "aten.add.Tensor", (Ref("gain"), 1), ValueType("none", (1,)))
    other = Call("other", "aten.add.Tensor", (Ref(rows), 1), ValueType("vertex", (3,)))
    last = Call("last", f"aten.{op}.Tensor", (Ref(rows), Ref(by)), ValueType("vertex", (3,)))
    parameters = (*found.parameters, ParameterSpec("gain", (1,)))
    before, after = (
        replace(found, calls=(*found.calls, one, other, *more), parameters=parameters) for more in ((), (last,))
    )
    assert run_by_autograd(before)
    assert saved_row_bytes(after) - saved_row_bytes(before) == 4 * numbers


@pytest.mark.parametrize(("trains", "numbers"), [(True, 3), (False, 0)])
def test_what_a_trained_number_multiplies_is_kept(trains, numbers):
    """Its gradient reads that; a buffer has none."""
    found = hidden()
    gain = ParameterSpec("gain", (1,), trains)
    one = Call("one", "aten.add.Tensor", (Ref("gain"), 1), ValueType("none", (1,)))
    times = Call("times", "aten.mul.Tensor", (Ref("one"), Ref(found.calls[-1].output)), ValueType("vertex", (3,)))
    gained = replace(found, calls=(*found.calls, one, times), parameters=(*found.parameters, gain))
    assert not run_by_autograd(gained)
    assert saved_row_bytes(gained) - saved_row_bytes(found) == 4 * numbers


def test_beyond_memory_is_what_takes_less_time():
    assert choose_overflow(again=2.0, file=3.0) == ("recompute", 2.0)
    assert choose_overflow(again=3.0, file=2.0) == ("file", 2.0)
    assert choose_overflow(again=3.0, file=None) == ("recompute", 3.0)


def test_a_stage_on_edges_counts_them():
    plan = planned(attention(dropout=True), attention(), options=Options()).plan
    (found,) = (one for one in plan.stages if one.edge_sets and one.name.startswith("train"))
    edges = [call for call in found.calls if call.type.rows == "edge"]
    vertices = [call for call in found.calls if call.type.rows == "vertex"]
    each = STATISTICS.edges / STATISTICS.vertices
    numbers = each * sum(call.type.width for call in edges) + sum(call.type.width for call in vertices)
    assert kept_bytes(found, STATISTICS) == pytest.approx(4 * numbers)
    assert not any("linear" in call.op for call in found.calls)  # lifted
    sent = sum(i.width for i in found.inputs if i.role == "source" or i.needs_gradient)
    assert seconds_again(found, STATISTICS) == pytest.approx(4 * sent / SENT_RATE + numbers / VALUES)


def test_products_count_by_their_multiplications():
    found = hidden()
    inner = Call("inner", "aten.linear.default", (Ref("dropout_1"), Ref("w")), ValueType("vertex", (32,)))
    outer = Call("outer", "aten.linear.default", (Ref("inner"), Ref("v")), ValueType("vertex", (2,)))
    matrices = ParameterSpec("w", (32, 16)), ParameterSpec("v", (2, 32))
    deeper = replace(found, calls=(*found.calls, inner, outer), parameters=(*found.parameters, *matrices))
    more = seconds_again(deeper, STATISTICS) - seconds_again(found, STATISTICS)
    assert more == pytest.approx(32 / VALUES + 32 * 16 / MULTIPLICATIONS)  # the last product is not made again


def test_what_keeps_nothing_is_left_as_it_is():
    last = next(one for one in planned(gcn(), gcn(training=False)).plan.stages if one.loss is not None)
    bare = keep_or_recompute(Stage("bare", last.inputs, (), (), ()), STATISTICS)
    assert bare == Stage("bare", last.inputs, (), (), ())


def test_without_the_rule_nothing_is_put_in_a_file():
    found = hidden().overflow, hidden().worth
    specs = gcn(), gcn(training=False)
    off = ("commute_linear", "hoist_invariant", "keep_or_recompute")
    plan = planned(*specs, options=Options(disabled=off, pricing=ON_BLOCKS)).plan
    assert found != ("recompute", 0.0)
    assert all((one.overflow, one.worth) == ("recompute", 0.0) for one in plan.stages)


def test_on_local_all_is_kept_and_the_rule_says_so():
    found = planned(gcn(), gcn(training=False), options=Options(disabled=("commute_linear", "hoist_invariant")))
    assert not found.firings["keep_or_recompute"]
    assert [one.reason for one in found.rewritten.declined if one.rule == "keep_or_recompute"] == [ALL_KEPT]
    assert {one.worth for one in found.plan.stages} == {0.0}
