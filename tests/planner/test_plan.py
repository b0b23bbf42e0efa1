"""Cutting into stages, adjoints, the last look, and what explain prints."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from lotan import nn
from lotan.tracing.trace import trace
from planner import RULE_NAMES, Options, PlanError, Planned
from planner.cost.seconds import Corrections, Pricing
from planner.explain.formats import explain
from planner.explain.sizes import size
from planner.loss import LossSpec
from planner.physical import Plan
from planner.spec import Ref, Spec, ValueType
from planner.statistics import Statistics
from planner.steps.collect import CollectStep, GatherStep
from planner.steps.edge_expression import EdgeExpressionStep
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.scaled_propagate import EdgeDotStep, ScaledPropagateStep
from planner.steps.segment_softmax import SegmentSoftmaxGradientStep, SegmentSoftmaxStep
from planner.steps.step import Step
from planner.validate import validate
from tests.planner.engines import BLOCKS, LOCAL, ON_EDGES, SAMPLES, able
from tests.planner.specs import FEATURES, IN_PLACE, SpecWriter, attention, gcn, jumping, planned

GOLDEN = Path(__file__).parent / "golden"
ARXIV = Statistics(vertices=169_343, edges=2_400_000, width=128, training=90_941)
MODELS = {
    "gcn": (gcn(), gcn(training=False)),
    "attention": (attention(dropout=True), attention()),
    "jumping": (jumping(), jumping()),
}
OPTIONS = {
    "auto": Options(engine_reason="the graph fits in memory"),
    "edges": Options(pricing=ON_EDGES),
    "general": Options(plan="general", rgb=False),
    "bare": Options(disabled=RULE_NAMES),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("options", OPTIONS)
def test_explain_is_what_it_was(model, options):
    """LOTAN_UPDATE_GOLDEN=1 writes the files anew; read the difference before committing it."""
    text = explain(planned(*MODELS[model], options=OPTIONS[options]))
    path = GOLDEN / f"{model}_{options}.txt"
    if os.environ.get("LOTAN_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
    assert max(len(line) for line in text.splitlines()) <= 100


def test_explain_says_the_same_as_data():
    data = json.loads(explain(planned(*MODELS["gcn"]), format="json"))
    assert [rule["name"] for rule in data["rules"]] == list(RULE_NAMES)
    assert data["epoch"][1]["operator"] == "Propagate(mul_1, self_loops) -> propagate_1"
    assert data["epoch"][1]["bytes"] == 100 * 3 * 4
    assert data["once"][1]["operator"] == "Propagate(prepare.mul_1, self_loops) -> prepare.propagate_1"


def test_explain_as_data_is_what_it_was():
    text = explain(planned(*MODELS["gcn"], options=OPTIONS["auto"]), format="json") + "\n"
    path = GOLDEN / "gcn_auto.json"
    if os.environ.get("LOTAN_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("options", OPTIONS)
def test_the_plan_names_the_rules_that_explain_says_fired(options):
    found = planned(*MODELS["gcn"], options=OPTIONS[options])
    facts = json.loads(explain(found, format="json"))["rules"]
    assert list(found.plan.fired) == [fact["name"] for fact in facts if fact["fired"]]
    assert all(fact["fired"] or fact["declined"] or not fact["enabled"] for fact in facts)


def arxiv_specs(model: str) -> list[Spec]:
    """Three layers for ogbn-arxiv: GCN maps rows and sums them, GraphSAGE is written the other way round, W (A x)."""
    if model == "levels":
        return [gcn(training, layers=3, hidden=256, classes=40, features=128) for training in (True, False)]
    return [trace(nn.GraphSAGE(128, 256, 3, 40, dropout=0.5), 128, training=training) for training in (True, False)]


@pytest.mark.parametrize("model", ["levels", "sums_first"])
def test_the_plan_that_an_expert_writes_by_hand_is_found(model):
    """The first sum once, the last map before its sum and that sum on the training vertices alone, no gradient of features."""
    text = explain(planned(*arxiv_specs(model), Options(engine_reason="asked for"), 40, ARXIV))
    path = GOLDEN / f"arxiv_{model}.txt"
    if os.environ.get("LOTAN_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_explain_of_a_plan_for_spark_says_what_leaves_a_process():
    one_jvm = Options(pricing=Pricing(replace(BLOCKS, abilities=())))
    text, data = (explain(planned(*MODELS["gcn"], options=one_jvm), format) for format in ("text", "json"))
    moved, steps = json.loads(data)["estimated_epoch_bytes"], json.loads(data)["epoch"]
    assert {name: sum(step[f"{name}_bytes"] for step in steps) for name in moved} == moved
    assert moved["piped"] > moved["shuffled"] == 0
    assert f"Bytes   {size(moved['piped'])} piped, estimated for an epoch's training pass" in text
    assert "Bytes   " not in explain(planned(*MODELS["gcn"]))


@pytest.mark.parametrize(
    ("pricing", "words"),
    [
        (Pricing(), "as shipped, of another machine; `lotan doctor --calibrate` measures this one"),
        (Pricing(measured=LOCAL.rates), "measured on this machine; `lotan doctor --calibrate` measures anew"),
        (Pricing(corrections=Corrections(1.3, 1.1, 0.9), runs=1),
         "as shipped, of another machine, corrected by 1 run (fixed x1.30, graph x1.10, neural x0.90); "
         "`lotan doctor --calibrate` measures this one; LOTAN_COSTS=off leaves corrections out"),
    ],
)  # fmt: skip
def test_explain_says_where_rates_come_from(pricing, words):
    found = planned(*MODELS["gcn"], options=Options(pricing=pricing))
    head = explain(found).partition("\n\n")[0]
    assert f"Rates   {words}" in " ".join(head.replace("\n        ", " ").splitlines())
    assert json.loads(explain(found, "json"))["rates"]["runs"] == pricing.runs


def test_explain_as_data_says_what_all_processes_take_and_what_is_there_at_a_step():
    data = json.loads(explain(planned(*MODELS["gcn"], options=Options(peak_bytes=12345)), "json"))
    assert data["estimated_peak_bytes"] == 12345
    assert all(step["alive_bytes"] >= step["bytes"] * step["operator"].startswith("Pipe") for step in data["epoch"])
    assert "columns there: " in explain(planned(*MODELS["gcn"]), "html")


LIBRARY = {"GCN": nn.GCN, "GraphSAGE": nn.GraphSAGE}


def of_the_library(name: str, engine: str, **options) -> Planned:
    specs = (trace(LIBRARY[name](128, 256, 3, 40, dropout=0.5), 128, training=training) for training in (True, False))
    given = Options(pricing=Pricing(SAMPLES[engine]), **options)
    return planned(*specs, given, 40, ARXIV)


@pytest.fixture(scope="module", params=product(LIBRARY, ["local", "blocks"]), ids=" on ".join)
def expert(request) -> Plan:
    """Of the library's own models, as an engine has them planned: nothing forced, nothing left out."""
    return of_the_library(*request.param).plan


def sums(steps, reverse=False):
    """Sums over edges, by the numbers in a row and the level within which they are made."""
    found = (step for step in steps if isinstance(step, PropagateStep) and step.reverse is reverse)
    return [(step.output.width, step.within) for step in found]


def test_the_first_sum_is_computed_once(expert):
    (column,) = expert.hoisted
    assert column.width == 128
    assert sums(expert.prepare) == [(128, None)]
    first = expert.train[0]
    assert isinstance(first, PipeStep)
    assert column.name in first.inputs
    assert len(sums(expert.train)) == 2  # of three layers


def test_the_last_layer_sums_what_its_map_has_made_on_the_training_vertices_alone(expert):
    assert sums(expert.train) == [(256, None), (40, 0)]
    assert sums(expert.train, reverse=True) == [(40, 0), (256, None)]
    (turn,) = (step for step in expert.train if isinstance(step, PipeStep) and step.mode == "turn")
    assert turn.within == 0


@pytest.mark.parametrize("engine", ["local", "blocks"])
def test_where_rows_are_summed_before_a_map_the_last_map_owes_its_place_to_commute_linear(engine):
    """256 to 40; of the others, 128 to 256 and 256 to 256, nothing would be spared."""
    found = of_the_library("GraphSAGE", engine)
    assert [firing.before.layer for firing in found.rewritten.firings if firing.rule == "commute_linear"] == [
        "convs.2.lin_l"
    ]
    as_written = of_the_library("GraphSAGE", engine, disabled=("commute_linear",)).plan
    assert sums(as_written.train) == [(256, None), (256, 0)]
    assert sums(as_written.train, reverse=True) == [(256, 0), (256, None)]


def test_no_step_makes_a_gradient_of_the_features_or_of_what_is_computed_from_them_once(expert):
    static = {column.name for column in (*expert.static_columns, *expert.hoisted)}
    last = expert.train[-1]
    assert isinstance(last, PipeStep)
    assert (last.mode, last.outputs) == ("backward", ())
    assert not static.isdisjoint(last.inputs)
    read = [i for stage in expert.stages for i in stage.inputs if i.column in static]
    assert read
    assert not any(i.needs_gradient for i in read)


def test_explain_shows_one_stage_at_a_time():
    plan = planned(*MODELS["gcn"])
    assert "== logical ==" in explain(plan, stage="logical")
    assert "== physical" not in explain(plan, stage="logical")
    with pytest.raises(PlanError, match="logical, rewritten, physical"):
        explain(plan, stage="optimised")
    with pytest.raises(PlanError, match="one of text, json"):
        explain(plan, format="yaml")


def test_a_deep_model_fits_the_page_and_the_stack():
    text = explain(planned(gcn(layers=64)))
    assert max(len(line) for line in text.splitlines()) <= 100


def with_gradients(plan: Plan, features: bool) -> set[str]:
    """The columns of the forward pass that depend on a trained parameter, or, if so said, on the features."""
    found = {"features"} if features else set()
    for step in plan.train:
        if isinstance(step, PipeStep) and step.mode == "forward":
            stage = plan.stage(step.stage)
            depend = {p.name for p in stage.parameters if p.trainable} | {
                i.value for i in stage.inputs if i.column in found
            }
            found |= {o.column for o in stage.outputs if o.value in stage.computed_from(depend)}
        elif isinstance(step, CollectStep) or not found.isdisjoint(step.reads):
            found |= set(step.makes)
    return found


def adjoints_due(step: Step, gradients: set[str]) -> list[tuple[object, ...]]:
    """What backward owes to a forward graph operator: the adjoint's kind, its edges, and the width that it makes."""
    match step:
        case PropagateStep(reverse=False) if step.input in gradients:
            return [("propagate", step.edges, step.output.width)]
        case CollectStep():
            return [("gather", name) for name in step.columns if name in gradients]
        case SegmentSoftmaxStep() if step.input in gradients:
            return [("softmax", step.edges, step.output.width)]
        case ScaledPropagateStep(reverse=False):
            due: list[tuple[object, ...]] = []
            if step.input in gradients:
                due.append(("scaled", step.edges, step.output.width))
            return [*due, ("dot", step.edges, step.heads)] if step.scales in gradients else due
    return []


def adjoint(step: Step) -> tuple[object, ...] | None:
    """The same of a step of backward."""
    match step:
        case PropagateStep(reverse=True):
            return ("propagate", step.edges, step.output.width)
        case GatherStep():
            return ("gather", step.output.name.removeprefix("d_").rpartition(".")[0])
        case SegmentSoftmaxGradientStep():
            return ("softmax", step.edges, step.output.width)
        case ScaledPropagateStep(reverse=True):
            return ("scaled", step.edges, step.output.width)
        case EdgeDotStep():
            return ("dot", step.edges, step.output.width)
    return None


ADJOINTS = {  # none of what is hoisted, nor of collected features, unless drop_dead_gradients is off
    "gcn": {"auto": 1, "edges": 1, "general": 2, "bare": 2},
    "attention": {"auto": 2, "edges": 3, "general": 0, "bare": 1},
    "jumping": {"auto": 1, "edges": 1, "general": 2, "bare": 2},
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("options", OPTIONS)
def test_backward_mirrors_forward(model, options):
    """Every graph operator that a gradient passes has one adjoint, over the reversed edges; no other has one."""
    plan = planned(*MODELS[model], options=OPTIONS[options]).plan
    gradients = with_gradients(plan, features="drop_dead_gradients" in OPTIONS[options].disabled)
    due = Counter(each for step in plan.train for each in adjoints_due(step, gradients))
    assert Counter(filter(None, map(adjoint, plan.train))) == due
    assert due.total() == ADJOINTS[model][options]
    made = {column.name for step in plan.train if isinstance(step, PipeStep) for column in step.outputs}
    assert all(step.contributions in made for step in plan.train if isinstance(step, GatherStep))
    reverse = [step for step in plan.train if isinstance(step, PropagateStep) and step.reverse]
    assert all(step.combine is OPTIONS[options].rgb for step in reverse)


def test_attention_on_an_engine_with_edge_columns_collects_nothing():
    steps = planned(*MODELS["attention"], options=OPTIONS["edges"]).plan.train
    assert not any(isinstance(step, (CollectStep, GatherStep)) for step in steps)
    assert len([step for step in steps if isinstance(step, PipeStep)]) == 3  # scores, the turn, and back


def test_a_column_of_edges_read_twice_gets_the_sum_of_its_gradients():
    """One softmax scales two propagates: its gradients are added before they pass it, in one pass over the edges."""
    w = SpecWriter(width=3)
    score = w.edge("sub.Tensor", w.scatter(FEATURES, "source", 3), w.scatter(FEATURES, "destination", 3), width=3)
    share = w.call("lotan.edge_softmax", score, "graph", type=ValueType("edge", (3,), edges="graph"))
    first = w.aggregate(w.edge("mul.Tensor", share, w.scatter(FEATURES, "source", 3), width=3), 3)
    h = w.linear(first, "lin", 3, 3)
    second = w.aggregate(w.edge("mul.Tensor", share, w.scatter(h, "source", 3), width=3), 3)
    options = Options(pricing=able("edge_columns"), disabled=("drop_dead_gradients", *IN_PLACE))
    steps = planned(w.spec(second), options=options).plan.train
    assert sum(isinstance(step, SegmentSoftmaxStep) for step in steps) == 1
    assert sum(isinstance(step, SegmentSoftmaxGradientStep) for step in steps) == 1
    sums = [step for step in steps if isinstance(step, EdgeExpressionStep) and step.expression[0] == "add"]
    assert len(sums) == 1


def test_a_value_read_twice_gets_the_sum_of_its_gradients():
    plan = planned(jumping(), options=Options(disabled=IN_PLACE)).plan
    summed = [gradient for step in plan.train if isinstance(step, PipeStep) for gradient in step.gradients
              if len(gradient.columns) == 2]  # fmt: skip
    assert len(summed) == 2  # h0 and h1: propagated, and concatenated


def hops_over_hidden_rows(count):
    """TAGConv: a map of the hidden rows, of their sum over neighbours, of the sum of that, and so on, side by side."""
    w = SpecWriter()
    h = w.vertex("tanh.default", w.linear(FEATURES, "enter", 8, 4), width=4)
    hops = [h]
    for _ in range(count):
        hops.append(w.aggregate(w.scatter(hops[-1], "source", 4), 4))
    return w.spec(w.linear(w.vertex("cat.default", tuple(hops), -1, width=4 * count + 4), "leave", 4 * count + 4, 3))


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_gradients_of_a_sum_over_edges_are_added_before_they_go_back_through_it(count):
    """Each by itself, they would pass 1 + 2 + ... + count reverse propagates."""
    plan = planned(hops_over_hidden_rows(count)).plan
    assert sum(isinstance(step, PropagateStep) and step.reverse for step in plan.train) == count
    added = [step for step in plan.train if isinstance(step, PipeStep) and step.stage.startswith("train.sum.")]
    assert [(step.mode, len(step.inputs)) for step in added] == [("forward", 2)] * (count - 1)


def test_no_gradients_are_added_that_lead_to_no_parameter():
    w = SpecWriter()
    once = w.aggregate(w.scatter(FEATURES, "source", 8), 8)
    twice = w.aggregate(w.scatter(once, "source", 8), 8)
    spec = w.spec(w.linear(w.vertex("cat.default", (once, twice), -1, width=16), "leave", 16, 3))
    plan = planned(spec, options=Options(disabled=IN_PLACE)).plan
    naive = planned(spec, options=Options(disabled=(*IN_PLACE, "drop_dead_gradients"))).plan
    assert not any(stage.name.startswith("train.sum.") for stage in plan.stages)
    assert any(stage.name.startswith("train.sum.") for stage in naive.stages)


def test_a_model_that_ends_in_a_propagate_has_a_last_stage_without_calls():
    w = SpecWriter()
    spec = w.spec(w.aggregate(w.scatter(w.linear(FEATURES, "lin", 8, 3), "source", 3), 3))
    plan = planned(spec, options=Options(disabled=IN_PLACE)).plan
    last = plan.stage(next(step for step in plan.train if isinstance(step, PipeStep) and step.mode == "turn").stage)
    assert last.calls == ()
    assert last.outputs[0].value == last.inputs[0].value == "propagate_1"


def test_a_model_without_edges_is_one_stage():
    w = SpecWriter()
    plan = planned(w.spec(w.linear(w.vertex("relu.default", FEATURES, width=8), "lin", 8, 3))).plan
    assert [step.mode for step in plan.train] == ["turn"]


def test_edge_values_are_computed_again_in_every_stage_that_reads_them():
    """Attention computed once and used by two layers: edges have no columns, so both stages hold the scores."""
    w = SpecWriter(width=3)
    score = w.edge("sub.Tensor", w.scatter(FEATURES, "source", 3), w.scatter(FEATURES, "destination", 3), width=3)
    first = w.aggregate(w.edge("mul.Tensor", score, w.scatter(FEATURES, "source", 3), width=3), 3)
    h = w.linear(first, "lin", 3, 3)
    second = w.aggregate(w.edge("mul.Tensor", score, w.scatter(h, "source", 3), width=3), 3)
    plan = planned(w.spec(second), options=Options(disabled=IN_PLACE)).plan
    holding = [stage.name for stage in plan.stages if any(call.op == "aten.sub.Tensor" for call in stage.calls)]
    assert holding[:2] == ["train.0", "train.1"]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_position_never_becomes_a_column(options):
    writer = SpecWriter()
    x = writer.linear(FEATURES, "w", 8, 3)
    index = writer.call("aten.argmax.default", x, 1, True, type=ValueType("vertex", (1,), "int64"))
    best = writer.vertex("gather.default", x, 1, index, width=1)
    plan = planned(writer.spec(writer.vertex("add.Tensor", x, best, width=3)), options=OPTIONS[options]).plan
    assert all(value.dtype == "float32" for stage in plan.stages for value in stage.inputs)
    assert not any(output.value.startswith("argmax") for stage in plan.stages for output in stage.outputs)


def test_collections_bring_each_column_once():
    plan = planned(attention()).plan
    (collect,) = [step for step in plan.train if isinstance(step, CollectStep)]
    assert len(collect.columns) == len(set(collect.columns)) == 2  # W x and its score


def test_the_output_must_fit_the_task():
    with pytest.raises(PlanError, match=r"shape \(3,\); the task classification needs vertex rows of shape \(7,\)"):
        planned(gcn(), outputs=7)


def test_the_loss_goes_with_the_last_stage_alone():
    plan = planned(*MODELS["jumping"]).plan
    assert [stage.loss for stage in plan.stages if stage.name.startswith("train.")][-1] == LossSpec(
        "classification", 3, 10.0
    )
    assert sum(stage.loss is not None for stage in plan.stages) == 2  # training and evaluation


def test_validate_refuses_a_step_that_reads_what_is_not_there():
    plan = planned(gcn()).plan
    with pytest.raises(PlanError, match="nothing before it makes"):
        validate(replace(plan, train=plan.train[1:]))
    with pytest.raises(PlanError, match="a second time"):
        validate(replace(plan, train=(plan.train[0], *plan.train)))


def test_validate_refuses_a_stage_that_reads_what_it_does_not_compute():
    plan = planned(gcn()).plan
    broken = replace(plan.stages[0], calls=plan.stages[0].calls[1:])
    with pytest.raises(PlanError, match="nothing before it makes"):
        validate(replace(plan, stages=(broken, *plan.stages[1:])))


@pytest.mark.parametrize(
    ("op", "arguments", "message"),
    [
        ("lotan.scatter", (FEATURES, "middle", "graph"), "expected 'source' or 'destination'"),
        ("lotan.scatter", (FEATURES, "source", "all"), "expected 'graph', 'self_loops', 'reversed'"),
        ("lotan.aggregate", (FEATURES, "median", "graph"), "expected one of"),
        ("lotan.vertex_input", ("colour",), "expected one of"),
        ("lotan.sample", (FEATURES,), "no operator of the planner"),
        ("aten.relu.default", (Ref("nowhere"),), "no earlier value"),
    ],
)
def test_a_spec_that_says_nonsense_is_refused(op, arguments, message):
    w = SpecWriter()
    output = w.call(op, *arguments, type=ValueType("vertex", (3,)))
    with pytest.raises(PlanError, match=message):
        planned(w.spec(output))
