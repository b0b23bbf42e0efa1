"""Plans as Mermaid flowcharts."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from planner import Options
from planner.explain.diagram import diagrams
from planner.explain.formats import explain
from planner.explain.mermaid import mermaid
from planner.explain.text import as_data
from tests.planner.engines import ON_EDGES
from tests.planner.specs import attention, gcn, planned

GOLDEN = Path(__file__).parents[1] / "golden"
PLANS = {
    "gcn_auto": lambda: planned(gcn(), gcn(training=False)),
    "attention_edges": lambda: planned(attention(dropout=True), attention(), options=Options(pricing=ON_EDGES)),
}


@pytest.mark.parametrize("name", PLANS)
def test_flowchart_is_what_it_was(name):
    """LOTAN_UPDATE_GOLDEN=1 writes the files anew; read the difference before committing it."""
    text, path = explain(PLANS[name](), format="mermaid") + "\n", GOLDEN / f"{name}.mmd"
    if os.environ.get("LOTAN_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_every_arrow_leads_from_box_to_box_and_gradients_are_dotted():
    lines = [line.strip() for line in explain(PLANS["attention_edges"](), "mermaid", "physical").splitlines()]
    boxes = {line[: re.search(r"[\[(]", line).start()] for line in lines if ":::" in line}
    arrows = [re.fullmatch(r'(\w+) (-->|-\.->)\|"([^"]*)"\| (\w+)', line) for line in lines if "->" in line]
    assert all(arrow and {arrow[1], arrow[4]} <= boxes for arrow in arrows)
    assert {arrow[2] for arrow in arrows if arrow[4] == "epoch_6"} == {"-.->", "-->"}  # a gradient, and an activation
    assert not any(arrow[2] == "-.->" for arrow in arrows if arrow[4].startswith("evaluation"))


@pytest.mark.parametrize(("layers", "is_long"), [(8, False), (16, True)])
def test_more_arrows_than_mermaid_draws_are_told_in_comments(layers, is_long):
    """A comment is a line of its own that begins with %%, spaces aside; with braces it would be a directive."""
    lines = explain(planned(gcn(layers=layers), gcn(layers=layers, training=False)), "mermaid").splitlines()
    arrows = sum("-->|" in line or "-.->|" in line for line in lines)
    comments = [line for line in lines if "%%" in line]
    assert (arrows > 500) is bool(comments) is is_long
    assert lines[0] == "flowchart TB"
    assert lines[1 : 1 + len(comments)] == comments
    if comments:
        assert comments[0].startswith(f"  %% {arrows} arrows: Mermaid draws no more than 500, unless maxEdges")
        assert comments[1] == "  %% Take one --stage, or --format html."
    assert not any(set("{}") & set(line) for line in comments)


def test_of_one_stage_with_too_many_arrows_only_a_page_is_left():
    shown = explain(planned(gcn(layers=200), gcn(layers=200, training=False)), "mermaid", "physical")
    assert shown.splitlines()[2] == "  %% Take --format html."


def test_no_name_ends_a_label():
    """Names of modules are the user's."""
    data = as_data(planned(gcn()), "logical")
    data["logical"][2]["operator"] = 'MatMul("]:::x\n<script>alert(1)</script>#quot;`**;&amp;)'
    (line,) = [line for line in mermaid(diagrams(data)).splitlines() if "MatMul" in line and "script" in line]
    label = re.fullmatch(r'    logical_2\["(.*)<br>\[V, 16\]"\]:::dlEngine', line)[1]
    assert not re.search(r'["<>&`]', label)
    unescaped = re.sub(r"#(\d+);", lambda found: chr(int(found[1])), label)
    assert unescaped == '2 MatMul("]:::x <script>alert(1)</script>#quot;`**;&amp;)'
