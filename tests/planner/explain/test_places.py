"""Where rules fired that work on stages and steps."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from planner import Options, Planned
from planner.cost import DEFAULT_RATES, Pricing
from planner.explain import explain
from planner.spec import Spec
from planner.statistics import Degrees, Profile, Statistics
from tests.planner.specs import FEATURES, IN_PLACE, STATISTICS, SpecWriter, attention, gcn, hops, jumping, planned

EDGES = Options(abilities=("edge_columns", "extremes"))
IN_ORDER = Options(disabled=IN_PLACE)
ON_SPARK = Options(pricing=Pricing("blocks", rates=DEFAULT_RATES["blocks"]))
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
    ("keep_or_recompute", lambda: two_gcns(Options(engine="blocks"), layers=3), ["train.0", "train.1"]),
    ("hold_sparse", lambda: two_gcns(Options(disabled=IN_PLACE, abilities=("sparse_rows",)), SPARSE),
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
    assert "without it too; it matters beyond a worker's memory" in explain(two_gcns(Options(engine="blocks")))
