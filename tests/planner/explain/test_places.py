"""Where rules fired that work on stages and steps."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from planner import Options, Planned
from planner.cost.seconds import Pricing
from planner.explain.formats import explain
from planner.explain.rules import gain_mark, gain_words, rule_facts
from planner.explain.sizes import duration
from planner.spec import Spec
from planner.statistics import Degrees, Profile, Statistics
from planner.steps.collect import CollectStep, GatherStep
from planner.steps.pipe import PipeStep
from tests.planner.engines import BLOCKS, ON_BLOCKS, ON_EDGES, able
from tests.planner.specs import FEATURES, IN_PLACE, STATISTICS, SpecWriter, attention, gcn, hops, jumping, planned

EDGES = Options(pricing=ON_EDGES)
IN_ORDER = Options(disabled=IN_PLACE)
ON_SPARK = Options(pricing=Pricing(BLOCKS))
FEW = Statistics(vertices=1000, edges=4000, width=8, training=100)
EVEN = Degrees.even(100, 500)
SPARSE = replace(STATISTICS, profile=Profile(EVEN, EVEN, density=0.1))


def dropping_first(training: bool = True) -> Spec:
    """Training shares nothing with evaluation: it drops some of the features."""
    w = SpecWriter()
    x = w.vertex("dropout.default", FEATURES, 0.5, True, width=8) if training else FEATURES
    return w.spec(w.linear(x, "lin", 8, 3))


def two_gcns(options: Options, statistics: Statistics = STATISTICS, layers: int = 2) -> Planned:
    return planned(gcn(layers=layers), gcn(layers=layers, training=False), options, statistics=statistics)


FIRED = [
    ("fuse_apply", lambda: two_gcns(Options()), ["train.0", "train.1"]),
    ("fuse_apply", lambda: planned(attention(), options=EDGES), ["train.0"]),  # the last has none
    ("fuse_apply", lambda: planned(jumping(), options=Options(plan="general")), ["train.1", "train.2"]),  # the first has one
    ("prune_vertices", lambda: two_gcns(Options(), FEW, layers=3),
     ["propagate_2, train.2 within level 0 (~100 of 1,000 vertices)",
      "propagate_1, train.1 within level 1 (~410 of 1,000 vertices)"]),
    ("prune_vertices", lambda: two_gcns(Options(), replace(FEW, evaluated=110)),
     ["propagate_1, train.1, evaluate.1 within level 0 (~110 of 1,000 vertices)",
      "train.0, evaluate.0 within level 1 (~442 of 1,000 vertices)"]),
    ("drop_dead_gradients", lambda: two_gcns(IN_ORDER), ["features"]),
    ("drop_dead_gradients", lambda: planned(hops(2), options=IN_ORDER), ["features", "propagate_1", "propagate_2"]),
    ("drop_dead_gradients", lambda: planned(jumping()), ["hoisted_1", "features"]),
    ("keep_or_recompute", lambda: two_gcns(Options(pricing=ON_BLOCKS), layers=3), ["train.0", "train.1"]),
    ("hold_sparse", lambda: two_gcns(Options(disabled=IN_PLACE, pricing=able("sparse_rows")), SPARSE),
     ["train.0", "evaluate.0"]),
    ("reuse_evaluation", lambda: planned(jumping(), options=IN_ORDER),
     ["train.0", "propagate_1", "train.1", "propagate_2", "train.2"]),
    ("reuse_evaluation", lambda: planned(attention(dropout=True), attention(), EDGES),
     ["train.0", "edgeexpression_1", "segmentsoftmax_1"]),
    ("reuse_evaluation", lambda: two_gcns(Options()), ["train.0.beside"]),
    ("reuse_evaluation", lambda: planned(dropping_first(), dropping_first(False), ON_SPARK),
     ["one pass for both, without common steps"]),
]  # fmt: skip


def fact(plan: Planned, rule: str) -> dict:
    return next(one for one in json.loads(explain(plan, format="json"))["rules"] if one["name"] == rule)


@pytest.mark.parametrize(("rule", "make", "places"), FIRED)
def test_a_rule_names_where_it_fired(rule, make, places):
    found = fact(make(), rule)
    assert found["fired"]
    assert found["where"] == places


@pytest.mark.parametrize("rule", sorted({rule for rule, _, _ in FIRED}))
def test_a_rule_that_is_off_names_no_place(rule):
    assert fact(two_gcns(Options(disabled=(rule,)), FEW), rule)["where"] == []


def test_text_and_page_say_how_many_places_are_left_out():
    plan = two_gcns(Options(), layers=12)
    assert fact(plan, "fuse_apply")["where"] == [f"train.{number}" for number in range(12)]
    said = ", ".join(f"train.{number}" for number in range(8)) + " and 4 more"
    text = explain(plan)
    assert said in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100
    assert said in explain(plan, format="html")


def test_long_places_go_on_in_the_next_line():
    text = explain(two_gcns(Options(), replace(FEW, evaluated=110)), stage="rewritten")
    assert "(~110 of 1,000 vertices), train.0, evaluate.0 within level 1 (~442" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100


def test_what_is_kept_matters_to_workers_without_memory():
    """Its gain is none where all fits, which is not to say that it does nothing."""
    text = explain(two_gcns(Options(pricing=ON_BLOCKS)))
    assert re.search(
        "  = no difference: [^;]+ steps; it matters beyond a worker's memory", " ".join(text.split("\n    "))
    )


SAME = [
    ("commute_linear", lambda: two_gcns(Options()), "without it, hoist_invariant comes to the same plan"),
    ("share_subplans", lambda: two_gcns(IN_ORDER), "the same steps, with 3 operators fewer in their stages"),
    ("share_subplans", lambda: two_gcns(Options()), "the same steps, with as many operators in their stages"),
]


@pytest.mark.parametrize(("rule", "make", "why"), SAME)
def test_what_makes_no_difference_says_why(rule, make, why):
    gain = fact(make(), rule)["gain"]
    assert gain_mark(gain) == "="
    assert gain["same_because"] == why
    assert gain_words(gain).endswith(why)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, "the plan without it is the same"),
        ({"evaluate": ()}, "it changes an evaluation"),
        ({"evaluate": (), "prepare": ()}, "it changes an evaluation and what is computed once"),
        ({"train": lambda steps: (replace(steps[0], within=1), *steps[1:])}, "it changes less than these figures show"),
    ],
)
def test_what_changes_elsewhere_or_too_little_says_so(change, why):
    plan = two_gcns(Options())
    changed = {name: value(plan.plan.train) if callable(value) else value for name, value in change.items()}
    assert gain_without(plan, "push_down", **changed)["same_because"] == why


def gain_without(plan: Planned, rule: str, **changed: Any) -> dict[str, Any]:
    """Of a rule without which the plan would be changed so."""
    facts = rule_facts(plan, {rule: replace(plan, draft=replace(plan.draft, plan=replace(plan.plan, **changed)))})
    (gain,) = [one["gain"] for one in facts if one["gain"]]
    return gain


def test_a_rule_on_evaluation_that_changes_an_evaluation_changes_its_own_figures():
    plan = two_gcns(Options(eval_every=1))
    steps = plan.plan.evaluate
    changed = (
        (replace(steps[0], within=None), *steps[1:]) if steps[0].within else (replace(steps[0], within=9), *steps[1:])
    )
    for rule, why in (
        ("reuse_evaluation", "it changes less than these figures show"),
        ("push_down", "it changes an evaluation"),
    ):
        assert gain_without(plan, rule, evaluate=changed)["same_because"] == why


def test_stages_may_have_more_operators_by_a_rule():
    plan = two_gcns(Options())
    last = plan.plan.stages[-1]
    fewer = (*plan.plan.stages[:-1], replace(last, calls=last.calls[:-1]))
    why = "the same steps, with 1 operator more in their stages"
    assert gain_without(plan, "push_down", stages=fewer)["same_because"] == why


def called_by_itself(times: int) -> Spec:
    """Sums in the model's own `forward`, and no layer."""
    w, x = SpecWriter(), FEATURES
    for _ in range(times):
        x = w.aggregate(w.scatter(x, "source", 8), 8)
    return w.spec(w.linear(x, "lin", 8, 3))


def test_what_no_layer_has_is_the_models_own():
    plan, unmoved = planned(called_by_itself(2), options=IN_ORDER), Options(disabled=("commute_linear",))
    assert (fact(plan, "push_down")["fired"], fact(plan, "push_down")["where"]) == (2, ["the model itself"])
    assert fact(planned(called_by_itself(2), options=unmoved), "hoist_invariant")["where"] == ["the model itself"]
    assert fact(two_gcns(Options()), "commute_linear")["where"] == ["convs.0"]


def test_a_linear_map_that_moved_is_told():
    wide = gcn(features=32), gcn(training=False, features=32)
    found = planned(*wide, statistics=replace(STATISTICS, width=32))
    assert fact(found, "hoist_invariant")["where"] == ["convs.0 (its linear map moved behind the sum)"]
    assert fact(two_gcns(Options()), "hoist_invariant")["where"] == ["convs.0"], "commute_linear had moved it before"


GAIN = {"evaluated": False, "seconds": 0.0128, "bytes": 11_100_000, "steps": 9,
        "seconds_without": 0.0132, "bytes_without": 26_200_000, "steps_without": 23, "same_because": ""}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "mark", "words"),
    [
        ({}, "+", "the training pass is 3% shorter: 12.8 ms, 11.1 MB in 9 steps; without it, 13.2 ms, 26.2 MB in 23"),
        ({"seconds_without": 0.0128}, "+", "the training pass: 12.8 ms, 11.1 MB in 9 steps; without it, 12.8 ms, 26.2 MB in 23"),
        ({"seconds": 0.0264, "steps": 1}, "!",
         "the training pass is 100% longer: 26.4 ms, 11.1 MB in 1 step; without it, 13.2 ms, 26.2 MB in 23"),
        ({"seconds_without": 0.0128, "bytes_without": 11_100_000, "steps_without": 9}, "=",
         "no difference: 12.8 ms, 11.1 MB in 9 steps"),
        ({"seconds_without": 0.0128, "bytes_without": 11_100_000, "steps_without": 9, "same_because": "so it is"}, "=",
         "no difference: 12.8 ms, 11.1 MB in 9 steps; so it is"),
        ({"evaluated": True, "seconds_without": 0.0256}, "+",
         "an epoch with its evaluation is 50% shorter: 12.8 ms, 11.1 MB in 9 steps; without it, 25.6 ms, 26.2 MB in 23"),
    ],
)  # fmt: skip
def test_gains_losses_and_what_makes_no_difference(change, mark, words):
    assert (gain_mark(GAIN | change), gain_words(GAIN | change)) == (mark, words)


def test_what_is_collected_is_priced_once_with_the_stages_that_read_it():
    found = planned(attention(dropout=True), attention(), options=Options(disabled=("push_down_edges",)))
    steps = json.loads(explain(found, format="json"))["epoch"]
    collected = [step for step in found.plan.train if isinstance(step, PipeStep) and step.collections]
    assert {step.mode for step in collected} & {"turn", "backward"}
    seconds = sum(
        step["seconds"]
        for step, one in zip(steps, found.plan.train, strict=True)
        if one in collected or isinstance(one, CollectStep | GatherStep)
    )
    told = [reason for one in json.loads(explain(found, format="json"))["rules"] for reason in one["declined"]]
    (said,) = [reason for reason in told if reason.startswith("all that is collected")]
    assert f"takes {duration(seconds)[:3]}" in said
    assert not any("for now" in reason for reason in told)
