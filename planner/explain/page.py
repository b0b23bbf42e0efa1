"""A plan as one HTML page: pictures to zoom into, and the rules beside them. The page loads no other files.

Without its script, the page shows all pictures one below the other, and this is also how it prints. `page.js` makes
tabs and tooltips of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from importlib.resources import files
from typing import Any

from planner.explain.diagram import Diagram
from planner.explain.rules import LOSS, gain_mark, gain_words
from planner.explain.sizes import size
from planner.explain.svg import svg
from planner.explain.text import head_words
from planner.places import listed
from planner.traits import EngineTraits


@dataclass(frozen=True)
class Picture:
    """A diagram with a caption above it."""

    diagram: Diagram
    caption: str = ""
    less: str = ""  # the rule that the drawn plan does without, if a switch shows the picture
    marked: Collection[str] = field(default=())  # keys of boxes that the reader should notice


@dataclass(frozen=True)
class View:
    """The content of one tab: pictures side by side, or one at a time."""

    key: str
    title: str
    pictures: tuple[Picture, ...]
    elsewhere: Mapping[str, Sequence[View]] = field(default_factory=dict)
    """For each rule that does not change this view, the views that it changes."""


def page(
    data: Mapping[str, Any],
    traits: EngineTraits,
    shown: Sequence[Diagram],
    without: Mapping[str, Sequence[Diagram]],
    below: str = "",
) -> str:
    """Return the page of a plan.

    Args:
        data: The result of `planner.explain.text.as_data`.
        traits: The traits of the plan's engine.
        shown: The plan's diagrams.
        without: For each rule that fired, the diagrams of the plan without it.
        below: HTML of more sections, below the pictures.
    """
    views = [_view(diagram, without) for diagram in shown]
    differing = {rule: found for rule in without if (found := [view for view in views if _differs(view, rule)])}
    rules = "\n".join(_rule(fact, fact["name"] in differing) for fact in data["rules"])
    views = [
        replace(view, elsewhere={rule: found for rule, found in differing.items() if not _differs(view, rule)})
        for view in views
    ]
    aside = f'<aside aria-label="Rules"><h2>Rules</h2><ul>{rules}</ul></aside>'
    return document("Plan", _facts(data, traits), views, aside, below)


def _view(diagram: Diagram, without: Mapping[str, Sequence[Diagram]]) -> View:
    """Return a view of a diagram, and of the diagrams of plans without a rule, as far as they differ. These may be empty."""
    nothing = Diagram(diagram.key, diagram.title, (), ())
    others = {rule: next((d for d in found if d.key == diagram.key), nothing) for rule, found in without.items()}
    less = [Picture(other, f"without {rule}", rule) for rule, other in others.items() if other != diagram]
    return View(diagram.key, diagram.title, (Picture(diagram), *less))


def _differs(view: View, rule: str) -> bool:
    return any(picture.less == rule for picture in view.pictures)


def document(title: str, head: str, views: Sequence[View], aside: str = "", below: str = "") -> str:
    """Return a page of views below a head. `aside` stands beside them, and `below` under them."""
    pictures = [picture for view in views for picture in view.pictures]
    most = _most_bytes(picture for picture in pictures if not picture.less)
    return "\n".join([
        "<!doctype html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Lotan: {escape(title)}</title>", f"<style>\n{_resource('page.css')}</style>", "</head>", "<body>",
        f"<header><h1>{escape(title)}</h1>{head}</header>",
        f'<div class="columns{"" if aside else " alone"}">', "<main>", f'<div class="bar" hidden>{_tabs(views)}{_tools()}</div>',
        *(_panel(view, most) for view in views), _legend(most, pictures), below, "</main>", aside, "</div>",
        '<div id="tip" role="tooltip" hidden></div>', f"<script>\n{_resource('page.js')}</script>", "</body>", "</html>",
    ])  # fmt: skip


def _most_bytes(pictures: Iterable[Picture]) -> int:
    return max((picture.diagram.most_bytes for picture in pictures), default=0)


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


# --- pictures -------------------------------------------------------------------------------------------------------


def _tabs(views: Sequence[View]) -> str:
    tabs = "".join(
        f'<button type="button" role="tab" id="tab-{escape(view.key)}" aria-controls="view-{escape(view.key)}"'
        f' aria-selected="false" tabindex="-1">{escape(_short(view))}</button>'
        for view in views
    )
    return f'<div role="tablist" aria-label="Views of the plan">{tabs}</div>'


def _short(view: View) -> str:
    return view.title.removeprefix("physical: ")


def _panel(view: View, most: int) -> str:
    figures = "\n".join(_figure(picture, most) for picture in view.pictures)
    notes = "\n".join(_note(rule, found) for rule, found in view.elsewhere.items())
    return (
        f'<section id="view-{escape(view.key)}" role="tabpanel" aria-labelledby="tab-{escape(view.key)}">'
        f"<h2>{escape(view.title)}</h2>\n"
        f'<div class="notes" role="status">{notes}</div>\n'
        f'<div class="pictures">\n{figures}\n</div></section>'
    )


def _note(rule: str, differing: Sequence[View]) -> str:
    """Return the note that a rule's switch shows in a view that it does not change. It has buttons to other views."""
    ways = ", ".join(
        f'<button type="button" data-opens="tab-{escape(view.key)}">{escape(_short(view))}</button>'
        for view in differing
    )
    return f'<p data-without="{escape(rule)}" hidden><b>without {escape(rule)}:</b> the same here; it differs in {ways}</p>'


def _tools() -> str:
    buttons = (("out", "&#8722;", "Zoom out"), ("in", "+", "Zoom in"), ("fit", "fit", "Fit to the width"),
               ("whole", "whole", "Show the whole picture"))  # fmt: skip
    return '<div class="tools" role="group" aria-label="Zoom">' + "".join(
        f'<button type="button" data-zoom="{name}" title="{words}" aria-label="{words}">{sign}</button>'
        for name, sign, words in buttons
    ) + "</div>"  # fmt: skip


def _figure(picture: Picture, most: int) -> str:
    diagram = picture.diagram
    less = f' data-without="{escape(picture.less)}" hidden' if picture.less else ""
    name = f"<b>{escape(picture.caption)}:</b> " if picture.caption else ""
    caption = f"<figcaption>{name}{_measure(diagram)}</figcaption>"
    return f"<figure{less}>{caption}{_scroll(picture, most) if diagram.boxes else ''}</figure>"


def _scroll(picture: Picture, most: int) -> str:
    drawn = svg(picture.diagram, most, picture.marked)
    label = escape(f"{picture.diagram.title}, picture")
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{drawn}</div>'


def _measure(diagram: Diagram) -> str:
    if not diagram.boxes:
        return "nothing to do"
    if diagram.is_graph:
        return f"{len(diagram.boxes)} operators"
    return f"{len(diagram.boxes)} steps, which hand on {size(sum(box.bytes for box in diagram.boxes))}; {diagram.own} beside them"


def _legend(most: int, pictures: Sequence[Picture]) -> str:
    marks = any(picture.marked for picture in pictures)
    or_more = ", or more without a rule" if _most_bytes(pictures) > most else ""
    keys = (
        ("graph", "Graph Engine"),
        ("dl", "DL Engine"),
        ("back", "backward: gradients"),
        ("chip", "a column of the graph, or a value from afar"),
        *[("marked", "differs from the other plan")] * marks,
    )
    entries = "".join(f'<li><i class="key {name}"></i>{words}</li>' for name, words in keys)
    return (
        f'<footer><ul class="legend">{entries}<li>width of arrows: root of the bytes; the widest is {size(most)}{or_more}'
        '</li></ul><p class="hint">Hover over a box, or reach one with Tab and go on with the arrow keys: all that is known'
        " of it. Drag to move; +, &#8722;, 0 or Ctrl and the wheel to zoom.</p></footer>"
    )


# --- words ----------------------------------------------------------------------------------------------------------


def _facts(data: Mapping[str, Any], traits: EngineTraits) -> str:
    facts = head_words(data, traits).items()
    return "<dl>" + "".join(f"<div><dt>{name}</dt><dd>{escape(said)}</dd></div>" for name, said in facts) + "</dl>"


def _rule(fact: Mapping[str, Any], has_switch: bool) -> str:
    state = "off" if not fact["enabled"] else f"fired {fact['fired']}&times;" if fact["fired"] else "did not fire"
    name = escape(fact["name"])
    switch = (
        f'<button type="button" role="switch" aria-checked="true" data-rule="{name}"'
        f' aria-label="Show the plan with {name}" hidden><i></i></button>'
    )
    parts = [
        f'<li class="rule{" fired" if fact["fired"] else ""}"><div class="state"><code>{name}</code>'
        f"<span>{state}</span>{switch if has_switch else ''}</div>",
        f'<p class="where">{escape(listed(fact["where"]))}</p>' if fact["where"] else "",
        _gain(fact["gain"]) if fact["gain"] else "",
        "".join(f'<p class="reason">{escape(reason)}</p>' for reason in fact["declined"]),
        _rewrites(fact["rewrites"]),
        "</li>",
    ]
    return "\n".join(part for part in parts if part)


def _gain(gain: Mapping[str, Any]) -> str:
    """Return the text of what a rule gained or lost."""
    lost = f"{LOSS} " if gain_mark(gain) == LOSS else ""
    return f'<p class="gain">{lost}{escape(gain_words(gain))}</p>'


def _rewrites(rewrites: Sequence[Mapping[str, Any]]) -> str:
    """Return the operators before and after every firing of a rule, folded away at first."""
    if not rewrites:
        return ""
    sides = [
        f"<li>{escape(rewrite['layer'])}<div><b>before</b><pre>{escape(chr(10).join(rewrite['before']))}</pre></div>"
        f"<div><b>after</b><pre>{escape(chr(10).join(rewrite['after']))}</pre></div></li>"
        for rewrite in rewrites
    ]
    count = f"{len(rewrites)} rewrite{'s' if len(rewrites) > 1 else ''}: before and after"
    return f"<details><summary>{count}</summary><ol>{''.join(sides)}</ol></details>"
