"""Two plans side by side."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from planner import PlanError
from planner.explain.formats import FORMATS, compare, explain
from planner.explain.sizes import duration, memory, size
from planner.explain.view import PlanView
from tests.planner.explain.plans import PLAIN, plan
from tests.planner.explain.test_page import parsed
from tests.planner.specs import gcn, planned

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = ("as given", "--disable push_down")


@pytest.fixture(scope="module")
def less():
    return planned(gcn(), gcn(training=False), options=replace(PLAIN, disabled=(*PLAIN.disabled, "push_down")))


def test_difference_is_what_it_was(less):
    """LOTAN_UPDATE_GOLDEN=1 writes the file anew; read the difference before committing it."""
    text, path = compare(plan("plain"), less, NAMES), GOLDEN / "gcn_without_push_down.txt"
    if os.environ.get("LOTAN_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
    assert max(len(line) for line in text.splitlines()) <= 100


def test_marks_stand_where_plans_differ(less):
    lines = compare(plan("plain"), less, NAMES, stage="physical").splitlines()
    propagate = next(line for line in lines if line.startswith(" 1 Propagate(mul_1,"))
    assert " |  1 Collect(mul_1, self_loops)" in propagate
    first = next(line for line in lines if line.startswith(" 0 Pipe(train.0, forward)"))
    assert " | " not in first
    assert first.count("Pipe(train.0, forward)") == 2


def test_what_only_one_has_stands_alone(less):
    lines = compare(plan("plain"), less, NAMES, stage="rewritten").splitlines()
    assert [line for line in lines if " > " in line and "Aggregate" in line]
    turned = compare(less, plan("plain"), NAMES, stage="rewritten").splitlines()
    assert [line for line in turned if line.endswith(" <") and "Aggregate" in line]


@pytest.mark.parametrize("stage", ["rewritten", "physical"])
def test_every_number_has_its_operator_and_follows_the_one_before(less, stage):
    lines = compare(plan("plain"), less, NAMES, stage=stage).splitlines()
    starts = [(int(found[1]), found[2]) for line in lines if (found := re.match(r" ?(\d+) (.*)", line))]
    assert all(re.match(r"\w+\(", rest) for _, rest in starts), "no number stands alone"
    numbers = [number for number, _ in starts]
    assert all(number in (before + 1, 0) for before, number in pairwise(numbers))
    assert max(numbers) > 7


def test_what_is_the_same_is_said_in_a_line():
    text = compare(plan("deep"), plan("deep"), ("one", "other"))
    assert "the same in both: 61 steps" in text
    assert len(text.splitlines()) < 30


def test_rules_that_differ_are_listed(less):
    text = compare(plan("plain"), less, NAMES)
    assert f"{'push_down':<24}{'fired 2x':<24}off" in text
    assert "drop_dead_gradients" not in text


def test_page_marks_what_differs(less):
    document = parsed(compare(plan("plain"), less, NAMES, "html"))
    (epoch,) = document.all(id="view-epoch")
    figures = epoch.all(tag="figure")
    marked = [[box.attributes["data-key"] for box in figure.all(has="marked")] for figure in figures]
    assert marked == [["1", "3", "4", "5", "6", "7"], ["1", "3", "4", "5", "6", "7"]]
    assert [figure.all(tag="b")[0].text for figure in figures] == [f"{name}:" for name in NAMES]
    assert not any("hidden" in figure.attributes for figure in figures)


def test_a_pass_that_only_one_has_is_nothing_in_the_other():
    document = parsed(compare(plan("gcn"), plan("plain"), NAMES, "html"))
    captions = [caption.text for caption in document.all(id="view-once")[0].all(tag="figcaption")]
    assert captions == [
        "as given: 3 steps, which hand on 9.6 kB; 550 us beside them",
        "--disable push_down: nothing to do",
    ]
    assert " 0 Pipe(prepare.0, forward)" in compare(plan("plain"), plan("gcn"), NAMES)


def test_data_and_flowchart_hold_both(less):
    one, other = json.loads(compare(plan("plain"), less, NAMES, "json"))
    assert (one["name"], other["name"]) == NAMES
    assert len(one["epoch"]) == len(other["epoch"])
    flowchart = compare(plan("plain"), less, NAMES, "mermaid")
    assert 'subgraph a_epoch_ ["as given: physical: one epoch"]' in flowchart
    assert "b_epoch_1" in flowchart


def test_views_show_themselves(less):
    view = PlanView(plan("plain")).diff(PlanView(less), NAMES)
    assert repr(view) == compare(plan("plain"), less, NAMES)
    assert view._repr_html_().startswith("<iframe ")


def test_sides_are_called_by_their_plans_names(less):
    without = "local-push_down-commute_linear-hoist_invariant"
    view = PlanView(plan("plain"))
    assert view.diff(PlanView(less)).names == ("local-commute_linear-hoist_invariant", without)
    assert view.diff(view).names == (
        "this plan, local-commute_linear-hoist_invariant",
        "the other, local-commute_linear-hoist_invariant",
    )


def test_steps_have_their_seconds_and_memory_is_that_of_the_head(less):
    text, (data, _) = compare(plan("plain"), less, NAMES), json.loads(compare(plan("plain"), less, NAMES, "json"))
    left = next(line for line in text.splitlines() if line.startswith(" 1 Propagate(mul_1,")).split(" | ")[0]
    assert left.split()[-4:] == [
        *size(data["epoch"][1]["bytes"]).split(),
        *duration(data["epoch"][1]["seconds"]).split(),
    ]
    peak = memory(data["estimated_peak_bytes"])
    assert f"Memory  {peak} estimated" in explain(plan("plain"))
    assert f"{'memory, all processes':<24}{peak}" in text


@pytest.mark.parametrize("format", FORMATS)
def test_unknown_stage_and_format_are_refused(format):
    with pytest.raises(PlanError, match="logical, rewritten, physical"):
        compare(plan("plain"), plan("plain"), format=format, stage="optimised")
    with pytest.raises(PlanError, match="text, json, mermaid, html"):
        compare(plan("plain"), plan("plain"), format="yaml")
