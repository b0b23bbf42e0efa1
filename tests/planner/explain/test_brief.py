"""The short form of a plan: what golden files hold, at most 40 lines for three layers, and nothing that it hides."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from planner import Options
from planner.explain.brief import brief_text, rules_line
from planner.explain.formats import explain
from planner.explain.view import PlanView
from planner.rules import RULE_NAMES, RULES
from planner.statistics import Statistics
from tests.planner.engines import ON_EDGES
from tests.planner.specs import attention, gcn, planned

GOLDEN = Path(__file__).parents[1] / "golden"
ARXIV = Statistics(vertices=169_343, edges=2_400_000, width=128, training=90_941)
REASON = Options(engine_reason="asked for")
EDGES = Options(pricing=ON_EDGES, engine_reason="asked for")


def three_layers(options=REASON):
    specs = [gcn(training, layers=3, hidden=256, classes=40, features=128) for training in (True, False)]
    return planned(*specs, options, 40, ARXIV)


PLANS = {
    "gcn": three_layers,
    "attention": lambda: planned(attention(dropout=True), attention(), EDGES),
}


@pytest.mark.parametrize("model", PLANS)
def test_the_short_form_is_what_it_was(model):
    """LOTAN_UPDATE_GOLDEN=1 writes the files anew; read the difference before committing it."""
    text, path = brief_text(PLANS[model]()), GOLDEN / f"brief_{model}.txt"
    if os.environ.get("LOTAN_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
    assert len(text.splitlines()) <= 40
    assert max(len(line) for line in text.splitlines()) <= 100
    assert ".Tensor" not in text


def section(text: str, title: str) -> list[str]:
    return text.partition(f"== {title} ==\n")[2].partition("\n\n")[0].splitlines()


def test_it_has_every_rule_that_fired_and_every_step_of_an_epoch():
    found = three_layers()
    text = brief_text(found)
    fired = [line.split()[0] for line in section(text, "rules that fired")]
    assert fired == [rule.name for rule in RULES if found.fired(rule)]
    steps = [line for line in section(text, "one epoch") if line[:2].strip().isdigit()]
    assert len(steps) == len(found.plan.train)
    whole = explain(found)
    assert all(line[58:] in whole for line in steps), "the same estimates as in the whole text"


def test_a_plan_without_rules_says_so():
    bare = three_layers(Options(disabled=RULE_NAMES))
    assert section(brief_text(bare), "rules that fired") == ["none"]
    assert rules_line(bare) == "none fired"


def test_rules_fill_a_line_and_no_more():
    found = three_layers()
    fired = [rule.name for rule in RULES if found.fired(rule)]
    assert rules_line(found, 1000) == ", ".join(fired)
    assert rules_line(found, 50) == f"{', '.join(fired[:2])} and {len(fired) - 2} more"


def test_a_view_shows_it_unless_a_stage_is_asked_for():
    found = three_layers()
    view = PlanView(found)
    assert repr(view) == view.explain() == brief_text(found)
    assert view.explain(stage="all") == explain(found)
