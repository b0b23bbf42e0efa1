"""share_subplans: two layers over the same rows sum them once, forward and backward; what only looks alike stays apart."""

from __future__ import annotations

import pytest

from planner import Options
from planner.build import build
from planner.explain.formats import explain
from planner.explain.text import as_data
from planner.labels import layer_of
from planner.nodes import Dropout, Propagate, topological
from planner.optimizer import optimize
from planner.spec import Ref, Spec
from planner.steps.propagate import PropagateStep
from tests.planner.specs import FEATURES, SpecWriter, gcn, planned

SUMMED = 6


def heads(*names: str, dropout: bool = False, hidden: bool = True, width: int = 20) -> Spec:
    """Layers of one kind over the same rows: the mean over neighbours, mapped by each layer's own matrix."""
    w = SpecWriter()
    x, given = (
        (w.vertex("relu.default", w.linear(FEATURES, "enter", 8, SUMMED), width=SUMMED), SUMMED)
        if hidden
        else (FEATURES, 8)
    )
    found: list[Ref] = []
    for name in names:
        w.layer = name
        rows = w.vertex("dropout.default", x, 0.5, True, width=given) if dropout and name != "plain" else x
        mean = w.aggregate(w.scatter(rows, "source", given), given, "mean")
        found.append(w.linear(mean, name, given, width))
    w.layer, total = "", found[0]
    for other in found[1:]:
        total = w.vertex("add.Tensor", total, other, width=width)
    return w.spec(w.linear(w.vertex("tanh.default", total, width=width), "leave", width, 3))


def propagates(spec: Spec, disabled: tuple[str, ...] = ()) -> list[bool]:
    """Of each propagate of an epoch, whether it is one of backward."""
    steps = planned(spec, options=Options(disabled=disabled)).plan.train
    return [step.reverse for step in steps if isinstance(step, PropagateStep)]


def test_two_layers_over_the_same_rows_propagate_once_in_each_direction():
    assert propagates(heads("mean", "variance")) == [False, True]
    assert propagates(heads("mean", "variance"), ("share_subplans",)) == [False, False, True, True]


def test_it_sums_once_also_what_two_narrower_maps_read():
    """Each map alone would be moved below its sum; both together are no narrower than what they share."""
    root = optimize(build(heads("mean", "variance", width=SUMMED - 1))).root
    assert [node.output.width for node in topological(root) if isinstance(node, Propagate)] == [SUMMED]


@pytest.mark.parametrize("layers", [2, 5])
def test_a_shared_operator_names_its_layers(layers):
    names = [f"head{number}" for number in range(layers)]
    found = planned(heads(*names))
    (shared,) = [node for node in topological(found.rewritten.root) if isinstance(node, Propagate)]
    assert layer_of(shared) == ("head0+head1" if layers == 2 else "head0+head1+head2+...")
    assert f"Propagate(sum, edges=graph, layer={layer_of(shared)}" in explain(found)
    assert found.firings["share_subplans"] >= layers - 1


def test_explain_shows_the_two_operators_that_became_one():
    """Both have the same text but for their layers, and what is below them too."""
    facts = as_data(planned(heads("mean", "variance")), "rewritten")["rules"]
    (rewrites,) = [fact["rewrites"] for fact in facts if fact["name"] == "share_subplans"]
    sums = next(one for one in rewrites if one["before"][0].startswith("Aggregate"))
    shared = "Aggregate(kind=mean, edges=graph, layer="
    assert sums["before"] == [f"{shared}mean) [V, 6]", f"{shared}variance) [V, 6]"]
    assert sums["after"] == [f"{shared}mean+variance) [V, 6]"]


def test_explain_places_what_has_no_layer_in_its_text():
    facts = as_data(planned(gcn()), "rewritten")["rules"]
    (rewrite,) = next(fact["rewrites"] for fact in facts if fact["name"] == "share_subplans")
    inverse = "RowWise(unsqueeze, -1) [V, 1], layer "
    assert rewrite["before"] == [f"{inverse}convs.0", f"{inverse}convs.1"]
    assert rewrite["after"] == [f"{inverse}convs.0+convs.1"]


def test_it_must_not_share_what_different_random_numbers_have_dropped():
    rewritten = optimize(build(heads("mean", "variance", dropout=True)))
    dropouts = [node for node in topological(rewritten.root) if isinstance(node, Dropout)]
    assert len({node.key for node in dropouts}) == len(dropouts) == 2
    assert propagates(heads("mean", "variance", dropout=True)) == [False, False, True, True]


def test_it_must_not_share_sums_over_different_edges():
    w = SpecWriter(width=3)
    sums = [w.aggregate(w.scatter(FEATURES, "source", 3, edges), 3, edges=edges) for edges in ("graph", "self_loops")]
    root = optimize(build(w.spec(w.vertex("add.Tensor", *sums, width=3)))).root
    assert sum(isinstance(node, Propagate) for node in topological(root)) == 2


def test_evaluation_reads_what_training_hoists_although_more_of_its_layers_share_it():
    """In evaluation the third layer drops nothing, so the sum over the features has one layer more there."""
    names = ("plain", "dropping", "another")
    plan = planned(heads(*names, dropout=True, hidden=False), heads(*names, hidden=False)).plan
    assert len(plan.hoisted) == 1
    assert not any(isinstance(step, PropagateStep) for step in plan.evaluate)
