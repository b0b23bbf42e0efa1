"""Plans as HTML pages: parsed, as a browser would."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from html.parser import HTMLParser

import pytest

from planner import Options
from planner.explain.arrows import WIDEST, thickness
from planner.explain.brief import brief_text
from planner.explain.diagram import diagrams
from planner.explain.formats import explain
from planner.explain.sizes import size
from planner.explain.text import as_data
from planner.explain.view import PlanView
from planner.spec import ValueType
from tests.planner.explain.plans import EDGES, MAKERS, plan
from tests.planner.specs import FEATURES, SpecWriter, planned

VOID = {"meta", "br", "hr", "img", "input", "link"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    children: list[Element] = field(default_factory=list)
    words: str = ""  # of "#text"

    def all(self, **wanted: str) -> list[Element]:
        """Those below, and this, with these attributes; `tag` and `has` (a class) are two of them."""
        tag, has = wanted.pop("tag", None), wanted.pop("has", None)
        names = {name.rstrip("_").replace("_", "-"): value for name, value in wanted.items()}
        fits = (
            tag in (None, self.tag)
            and (has is None or has in (self.attributes.get("class") or "").split())
            and all(self.attributes.get(name) == value for name, value in names.items())
        )
        again = {"tag": tag, "has": has, **wanted}
        below = [found for child in self.children for found in child.all(**{k: v for k, v in again.items() if v})]
        return [self, *below] if fits else below

    @property
    def text(self) -> str:
        return self.words + "".join(child.text for child in self.children)


class Strict(HTMLParser):
    """Refuses what is not closed in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("#document")]

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in <{tag}>"
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data):
        if data.strip():
            self.open[-1].children.append(Element("#text", words=data))


def parsed(page: str) -> Element:
    parser = Strict()
    parser.feed(page)
    parser.close()
    assert len(parser.open) == 1, "something is left open"
    return parser.open[0]


@cache
def page(name: str) -> str:
    return explain(plan(name), "html")


@cache
def document(name: str) -> Element:
    return parsed(page(name))


every_plan = pytest.mark.parametrize("name", MAKERS)


def shown(document: Element, key: str, without: str | None = None) -> Element:
    """The figure of a view."""
    (section,) = document.all(id=f"view-{key}")
    (found,) = [figure for figure in section.all(tag="figure") if figure.attributes.get("data-without") == without]
    return found


@every_plan
def test_page_is_whole_and_needs_nothing_else(name):
    found = document(name)
    elements = found.all()
    ids = [element.attributes["id"] for element in elements if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    assert {tab.attributes["aria-controls"] for tab in found.all(role="tab")} <= set(ids)
    assert {panel.attributes["aria-labelledby"] for panel in found.all(role="tabpanel")} <= set(ids)
    assert len(found.all(tag="script")) == len(found.all(tag="style")) == 1
    fetching = {"src", "href", "xlink:href", "srcset", "action", "data"}
    assert not [element for element in elements if fetching & set(element.attributes)]
    assert not re.search(r"https?:|@import|url\(|fetch\(|XMLHttpRequest|import\(", page(name))


@every_plan
def test_every_operator_and_step_is_drawn_once(name):
    for diagram in diagrams(as_data(plan(name))):
        boxes = shown(document(name), diagram.key).all(has="box")
        assert [box.attributes["data-key"] for box in boxes] == [box.key for box in diagram.boxes]
        for drawn, box in zip(boxes, diagram.boxes, strict=True):
            classes = drawn.attributes["class"].split()
            assert box.engine in classes
            assert ("back" in classes) is box.backward
            told = drawn.children[0]
            assert told.tag == "title"
            assert told.text.startswith(f"{box.key} {box.title}")
            assert (
                dict(box.facts).items()
                <= dict(re.findall(r"^(\w[\w ]*): (.*(?:\n[\w.]+ =.*)*)$", told.text, re.M)).items()
            )


@every_plan
def test_boxes_are_reached_by_keyboard_and_told_by_hover(name):
    found = document(name)
    for box in found.all(has="box"):
        assert box.attributes["tabindex"] == "0"
        assert box.attributes["role"] == "img"
        assert box.children[0].tag == "title"
    for arrow in [*found.all(has="arrow"), *found.all(has="chip")]:
        assert arrow.tag == "i" or arrow.children[0].tag == "title"
    script = found.all(tag="script")[0].text
    for needed in ('"focus"', '"blur"', '"pointermove"', '"pointerenter"', '"Escape"', "ArrowDown", '"wheel"'):
        assert needed in script
    assert all(button.attributes["aria-label"] for button in found.all(tag="button", role="switch"))


def test_the_more_bytes_the_wider_the_arrow():
    found = shown(parsed(explain(plan("gcn"), "html", "logical")), "logical")
    arrows = {
        tuple(arrow.attributes[f"data-{end}"] for end in ("source", "target")): arrow
        for arrow in found.all(has="arrow")
    }
    width = {ends: float(arrow.all(has="line")[0].attributes["stroke-width"]) for ends, arrow in arrows.items()}
    bytes_of = {(arrow.source, arrow.target): arrow.bytes for arrow in diagrams(as_data(plan("gcn")))[0].arrows}
    assert {bytes_of[ends] for ends in width} == {400, 1200, 6400, 7200, 38400}
    by_bytes = sorted(width, key=bytes_of.__getitem__)
    assert [width[ends] for ends in by_bytes] == sorted(width.values())
    assert len(set(width.values())) == 5
    assert width["5", "6"] == thickness(38400, 38400), "messages of all edges are the widest"


def test_the_widest_arrow_is_one_that_is_shown_at_first():
    """Those that a switch brings up may carry more, and are no wider."""
    for name, or_more in (("gcn", True), ("row_wise", False)):
        most = max(diagram.most_bytes for diagram in diagrams(as_data(plan(name))))
        legend = document(name).all(tag="ul", has="legend")[0].text
        assert legend.endswith(f"the widest is {size(most)}" + ", or more without a rule" * or_more)
        lines = document(name).all(tag="path", has="line")
        assert max((float(line.attributes["stroke-width"]) for line in lines), default=0.0) <= WIDEST


def test_gradients_are_told_from_values():
    epoch = shown(document("gcn"), "epoch")
    back = {(a.attributes["data-source"], a.attributes["data-target"]) for a in epoch.all(tag="g", has="back")
            if "arrow" in a.attributes["class"]}  # fmt: skip
    assert back == {("2", "3"), ("3", "4")}
    assert [lane.text[:8] for lane in epoch.all(has="lane")] == ["forward ", "backward"]
    evaluation = shown(document("gcn"), "evaluation")
    assert evaluation.all(has="lane") == evaluation.all(has="back") == []


def test_each_rule_that_fired_has_a_switch_between_two_plans():
    found, facts = document("attention"), as_data(plan("attention"))["rules"]
    switches = {switch.attributes["data-rule"] for switch in found.all(role="switch")}
    assert switches == {fact["name"] for fact in facts if fact["fired"]} - {"keep_or_recompute"}  # which moves no box
    less = plan("attention").options
    for rule in switches - {"reuse_evaluation"}:  # without which there is one pass less
        other = planned(*plan("attention").given[:2], options=replace(less, disabled=(rule,)))
        (wanted,) = [found for found in diagrams(as_data(other)) if found.key == "epoch"]
        figure = shown(found, "epoch", rule)
        assert "hidden" in figure.attributes
        assert len(figure.all(has="box")) == len(wanted.boxes)
    assert "hidden" not in shown(found, "epoch").attributes
    assert shown(found, "epoch_and_evaluation", "reuse_evaluation").all(has="box") == []


def test_a_switch_that_changes_nothing_here_says_so_and_leads_to_where_it_does():
    found = document("deep")
    sections = {section.attributes["id"].removeprefix("view-"): section for section in found.all(tag="section")}
    tabs = {tab.attributes["id"]: tab.text for tab in found.all(role="tab")}
    for rule in (switch.attributes["data-rule"] for switch in found.all(role="switch")):
        differing = [key for key, section in sections.items() if section.all(tag="figure", data_without=rule)]
        for key, section in sections.items():
            notes = section.all(tag="p", data_without=rule)
            assert len(notes) == (key not in differing), "a picture or a note, not both"
            for note in notes:
                assert "hidden" in note.attributes, "until the switch is thrown; never without script, nor in print"
                buttons = note.all(tag="button")
                assert [button.attributes["data-opens"] for button in buttons] == [f"tab-{name}" for name in differing]
                assert [button.text for button in buttons] == [tabs[f"tab-{name}"] for name in differing]
    (note,) = sections["logical"].all(tag="p", data_without="hoist_invariant")
    assert note.text.startswith("without hoist_invariant: the same here; it differs in rewritten")
    assert all(section.all(role="status", has="notes") for section in sections.values()), "and it is read out"


def test_each_rule_says_where_it_fired_and_what_that_gained_or_why_it_did_not():
    rules = {rule.all(tag="code")[0].text: rule for rule in document("attention").all(tag="li", has="rule")}
    assert list(rules) == [fact["name"] for fact in as_data(plan("attention"))["rules"]]
    lifted = rules["lift_message"]
    assert lifted.all(has="where")[0].text == "conv"
    assert "in 14 steps; without it, " in lifted.all(has="gain")[0].text
    before, after = (pre.text for pre in lifted.all(tag="pre")[:2])
    assert before.startswith("MatMul(linear, weight) [E, 3]\n  Scatter(end=source")
    assert after.startswith("Scatter(end=source, edges=graph, layer=conv) [E, 3]\n  MatMul(linear, weight) [V, 3]")
    idle = rules["push_down_extremes"]
    assert [reason.text for reason in idle.all(has="reason")] == ["the model takes no max or min over edges"]
    assert idle.all(role="switch") == []


def test_what_is_computed_once_is_a_pass_of_its_own():
    found = document("gcn")
    assert [tab.text for tab in found.all(role="tab")][2:4] == [
        "once, before the first epoch",
        "one epoch",
    ]
    assert len(shown(found, "once").all(has="box")) == 3
    less = shown(found, "once", "hoist_invariant")
    assert less.all(tag="figcaption")[0].text == "without hoist_invariant: nothing to do"
    assert less.all(tag="svg") == []
    chips = [chip.all(tag="text")[0].text for chip in shown(found, "epoch").all(tag="g", has="chip")]
    assert "hoisted_1" in chips


def test_a_rule_switched_off_says_so():
    other = parsed(explain(planned(*plan("gcn").given[:2], options=Options(disabled=("push_down",))), "html"))
    (rule,) = [found for found in other.all(tag="li", has="rule") if found.all(tag="code")[0].text == "push_down"]
    assert rule.all(tag="span")[0].text == "off"


def test_columns_and_weights_are_named_where_they_are_read():
    writer = SpecWriter()
    weight = writer.call("lotan.edge_weight", "graph", type=ValueType("edge", (), edges="graph"))
    weight = writer.edge("unsqueeze.default", weight, -1, width=1)
    message = writer.edge("mul.Tensor", weight, writer.scatter(FEATURES, "source", 8), width=8)
    found = parsed(explain(planned(writer.spec(writer.linear(writer.aggregate(message, 8), "lin", 8, 3))), "html"))
    chips = shown(found, "logical").all(tag="g", has="chip")
    assert {chip.all(tag="title")[0].text for chip in chips} == {"weight of graph: 2.0 kB", "features: 3.2 kB"}


def test_one_stage_alone():
    found = parsed(explain(plan("gcn"), "html", "rewritten"))
    assert [tab.text for tab in found.all(role="tab")] == ["rewritten"]


def test_no_name_becomes_markup():
    """Names of modules, parameters and reasons are the user's."""
    evil = "\"><script>alert(1)</script><img src=x onerror=alert(1)>&amp;'</style></title>"
    writer = SpecWriter(layer=evil)
    message = writer.scatter(writer.linear(FEATURES, evil, 8, 3), "source", 3)
    found = planned(writer.spec(writer.aggregate(message, 3)), options=replace(EDGES, engine_reason=evil, memory=evil))
    text = explain(found, "html")
    read = parsed(text)
    assert len(read.all(tag="script")) == 1
    assert read.all(tag="img") == []
    assert not [name for element in read.all() for name in element.attributes if name.startswith("on")]
    assert "<script>alert" not in text
    assert evil in read.text, "and is shown as it is"


def test_a_page_in_a_notebook_has_a_frame_of_its_own():
    view = PlanView(plan("gcn"))
    (frame,) = parsed(view._repr_html_()).all(tag="iframe")
    assert frame.attributes["srcdoc"] == page("gcn")
    assert frame.attributes["sandbox"] == "allow-scripts"
    assert repr(view) == brief_text(plan("gcn"))


def test_a_page_is_the_same_every_time():
    assert explain(MAKERS["attention"](), "html") == page("attention")
