"""Two plans side by side, to show what an option changes."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from html import escape

from planner.compiler import Planned
from planner.explain.diagram import Box, Diagram, diagrams
from planner.explain.mermaid import mermaid
from planner.explain.page import Picture, View, document
from planner.explain.rules import moved_bytes, rule_state
from planner.explain.sizes import duration, memory, size
from planner.explain.text import PASSES, PlanStage, as_data, graphs_data
from planner.printer import WIDTH

SIDE = (WIDTH - 3) // 2  # columns of text for each plan, with three between them

Pair = tuple[Box | None, Box | None]


@dataclass(frozen=True)
class Named:
    """A plan with the name that a comparison gives it."""

    name: str
    planned: Planned


def compare_text(a: Named, b: Named, stage: PlanStage) -> str:
    """Return both plans in lines of at most 100 columns.

    `|` stands between parts that differ. `<` and `>` stand beside parts that only one plan has.
    """
    lines = [*_heads(a, b), ""]
    for left, right in _matched(a, b, stage):
        lines += [f"== {left.title} ==", *_side_by_side(left, right), ""]
    return "\n".join(lines)


def compare_json(a: Named, b: Named, stage: PlanStage) -> str:
    """Return both plans as JSON."""
    return json.dumps([{"name": each.name} | as_data(each.planned, stage) for each in (a, b)], indent=2)


def compare_mermaid(a: Named, b: Named, stage: PlanStage) -> str:
    """Return a flowchart with the subgraphs of both plans."""
    drawn = [
        replace(diagram, key=f"{side}_{diagram.key}", title=f"{each.name}: {diagram.title}")
        for side, each in (("a", a), ("b", b))
        for diagram in diagrams(graphs_data(each.planned, stage))
    ]
    return mermaid(drawn)


def compare_html(a: Named, b: Named, stage: PlanStage) -> str:
    """Return a page that draws both plans and marks what differs."""
    views = [_view((left, right), (a.name, b.name)) for left, right in _matched(a, b, stage)]
    return document("Two plans", _table(a, b), views)


def _view(both: tuple[Diagram, Diagram], names: tuple[str, str]) -> View:
    pairs = list(_pairs(both[0].boxes, both[1].boxes))
    marked = [{box.key for pair in pairs if (box := pair[side]) and not _alike(*pair)} for side in (0, 1)]
    pictures = [
        Picture(diagram, name, marked=frozenset(keys)) for diagram, name, keys in zip(both, names, marked, strict=True)
    ]
    return View(both[0].key, both[0].title, tuple(pictures))


def _matched(a: Named, b: Named, stage: PlanStage) -> Iterator[tuple[Diagram, Diagram]]:
    """Yield the diagrams of both plans in pairs with the same key. If a plan has none, its diagram is empty."""
    left, right = ({found.key: found for found in diagrams(graphs_data(each.planned, stage))} for each in (a, b))
    for key in ("logical", "rewritten", *PASSES):
        found = left.get(key) or right.get(key)
        if found is not None:
            nothing = Diagram(key, found.title, (), ())
            yield left.get(key, nothing), right.get(key, nothing)


# --- what differs ---------------------------------------------------------------------------------------------------


def _pairs(left: Sequence[Box], right: Sequence[Box]) -> Iterator[Pair]:
    """Yield the boxes of both plans in order, alike ones together. Numbers in their names are ignored."""
    matcher = SequenceMatcher(a=[_kind(box) for box in left], b=[_kind(box) for box in right], autojunk=False)
    for _, start, end, other_start, other_end in matcher.get_opcodes():
        ours, others = left[start:end], right[other_start:other_end]
        for at in range(max(len(ours), len(others))):
            yield ours[at] if at < len(ours) else None, others[at] if at < len(others) else None


def _kind(box: Box) -> str:
    return re.sub(r"\d+", "", f"{box.title} {box.makes}")


def _alike(left: Box | None, right: Box | None) -> bool:
    if left is None or right is None:
        return False
    return (left.title, left.makes, left.bytes) == (right.title, right.makes, right.bytes)


def _summary(a: Named, b: Named) -> list[tuple[str, str, str]]:
    """Return rows of a name and both plans' values: first figures of the whole plans, then the rules that differ."""
    measures: list[tuple[str, Callable[[Planned], str]]] = [
        ("steps of training", lambda planned: str(len(planned.plan.train))),
        ("bytes they hand on", lambda planned: size(moved_bytes(planned, planned.plan.train))),
        ("an epoch, evaluated", lambda planned: duration(planned.seconds)),
        ("memory, all processes", lambda planned: memory(planned.peak_bytes)),
        ("engine", lambda planned: planned.options.traits.name),
    ]
    rows = [(name, measure(a.planned), measure(b.planned)) for name, measure in measures]
    rules = [(rule, rule_state(a.planned, rule), rule_state(b.planned, rule)) for rule in a.planned.firings]
    return [*rows, *(row for row in rules if row[1] != row[2])]


# --- text -----------------------------------------------------------------------------------------------------------


def _heads(a: Named, b: Named) -> list[str]:
    lines = [
        line
        for side, each in (("A", a), ("B", b))
        for line in textwrap.wrap(each.name, WIDTH - 4, initial_indent=f"{side}   ", subsequent_indent="    ")
    ]
    return [*lines, "", *(f"{name:<24}{one:<24}{other}" for name, one, other in [("", "A", "B"), *_summary(a, b)])]


def _side_by_side(left: Diagram, right: Diagram) -> list[str]:
    pairs, lines = list(_pairs(left.boxes, right.boxes)), []
    if all(_alike(*pair) for pair in pairs):
        return [f"the same in both: {len(pairs)} {'operators' if left.is_graph else 'steps'}"]
    for one, other in pairs:
        mark = " " if _alike(one, other) else "<" if other is None else ">" if one is None else "|"
        columns = _cell(one), _cell(other)
        for at in range(max(map(len, columns))):
            cells = [column[at] if at < len(column) else "" for column in columns]
            lines.append(f"{cells[0]:<{SIDE}} {mark} {cells[1]}".rstrip())
    return lines


def _cell(box: Box | None) -> list[str]:
    """Return the lines of a box. The first has the bytes at its right, and for a step the seconds."""
    if box is None:
        return [""]
    words = f"{box.key:>2} {box.title}" + (f" -> {box.makes}" if box.makes else "")
    seconds = dict(box.facts).get("seconds")  # only steps have seconds
    figures = f" {size(box.bytes):>8}" + (f" {seconds:>7}" if seconds else "")
    room = SIDE - len(figures)
    first = textwrap.wrap(words, room, break_long_words=False, break_on_hyphens=False)[0]
    if first.strip() == box.key:  # the next word is too long for the line, but not the part before its operands
        first = words[: words.find("(") + 1][:room]
    indent = " " * 5
    rest = words[len(first) :].lstrip()
    further = textwrap.wrap(rest, SIDE, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return [f"{first:<{room}}{figures}", *further]


# --- page -----------------------------------------------------------------------------------------------------------


def _table(a: Named, b: Named) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(one)}</td><td>{escape(other)}</td></tr>'
        for name, one, other in _summary(a, b)
    )
    heads = "".join(f'<th scope="col">{escape(each.name)}</th>' for each in (a, b))
    return f"<table><thead><tr><td></td>{heads}</tr></thead><tbody>{rows}</tbody></table>"
