"""Still pictures for the notebooks: of two plans side by side, of a search, of a schedule, of a few figures as bars.

A plan and a search show themselves as a page with a script, which GitHub, and Jupyter for a notebook that is not trusted, leave
out. Here are the pictures of these pages alone, as SVG: colours stand on every element and nothing is clipped, for GitHub
leaves out style sheets and clipping, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from xml.etree import ElementTree

import lotan
from lotan.tuning.result import Tuned
from planner.explain.view import DiffView

INK, QUIET, RULE, PAPER, CHIP = "#0f172a", "#526073", "#cbd5e1", "#ffffff", "#eceff3"
GRAPH, GRAPH_FILL, DL, DL_FILL, MARK = "#1d5fb8", "#e0efff", "#b45309", "#ffeedd", "#facc15"
FLOW, BACK = "#64748b", "#a21caf"
WORST, BEST = (0xCB, 0xB2, 0x6A), (0x4C, 0x1D, 0x95)  # of a search's lines, by rank
MONO, SANS = "DejaVu Sans Mono, Menlo, Consolas, monospace", "DejaVu Sans, Helvetica, Arial, sans-serif"

HALO = {"stroke": PAPER, "stroke-width": "3", "paint-order": "stroke"}  # of words that lines cross

Style = tuple[str, str, dict[str, str]]
"""A tag, classes that an element or those around it have, and what that makes of it; later ones win."""

PLAN: Sequence[Style] = (
    ("text", "", {"fill": INK, "font-size": "12", "font-family": MONO}),
    ("text", "lane", {"fill": QUIET, "font-size": "13", "font-family": SANS, "font-weight": "600"}),
    ("rect", "box", {"fill": DL_FILL, "stroke": DL}),
    ("path", "edge", {"fill": "none", "stroke": DL, "stroke-width": "4"}),
    ("rect", "box graph", {"fill": GRAPH_FILL, "stroke": GRAPH}),
    ("path", "edge graph", {"stroke": GRAPH}),
    ("rect", "box back", {"stroke-dasharray": "6 3"}),
    ("rect", "box marked", {"stroke": MARK, "stroke-width": "4", "stroke-dasharray": "none"}),
    ("text", "name", {"font-weight": "700"}),
    ("text", "operands", {"fill": QUIET}),
    ("text", "makes", {"fill": QUIET}),
    ("text", "size", {"fill": QUIET, "text-anchor": "end"}),
    ("text", "tag", {"fill": QUIET, "text-anchor": "end", "font-size": "10"}),
    ("path", "line", {"fill": "none", "stroke": FLOW}),
    ("path", "head", {"fill": FLOW}),
    ("path", "arrow back line", {"stroke": BACK}),
    ("path", "arrow back head", {"fill": BACK}),
    ("text", "arrow", {"fill": QUIET, "font-size": "10.5"}),
    ("text", "arrow over", {"text-anchor": "end"}),
    ("rect", "chip", {"fill": CHIP, "stroke": RULE, "stroke-width": "1", "stroke-dasharray": "none"}),
    ("text", "chip", {"font-size": "10", "text-anchor": "middle"}),
)
SEARCH: Sequence[Style] = (
    ("text", "", {"fill": INK, "font-size": "12", "font-family": SANS, **HALO}),
    ("text", "name", {"font-size": "13", "font-weight": "700", "text-anchor": "middle"}),
    ("text", "tick", {"fill": QUIET, "text-anchor": "end"}),
    ("text", "epoch", {"fill": QUIET, "text-anchor": "middle"}),
    ("line", "axis", {"stroke": QUIET, "stroke-width": "1.2"}),
    ("rect", "frame", {"fill": "none", "stroke": RULE}),
    ("line", "grid", {"stroke": RULE, "stroke-dasharray": "2 4"}),
    ("polyline", "", {"fill": "none", "stroke-width": "1.8"}),
    ("polyline", "none", {"stroke": "#94a3b8", "stroke-dasharray": "5 4"}),
)
TITLE = 26  # pixels above a picture, for what it is called
BAR, LABELS, ROOM = 22, 220, 420  # of a bar with what stands above it, its label, and the longest one


class Still:
    """An SVG; where none is shown, words."""

    def __init__(self, svg: str, words: str) -> None:
        self.svg, self.words = svg, words

    def __repr__(self) -> str:
        return self.words

    def _repr_svg_(self) -> str:
        return self.svg


def plans(diff: DiffView) -> Still:
    """The rewritten graphs of two plans; what only one of them has is framed."""
    drawn = _drawn(diff.explain("html", stage="rewritten"), "plan", PLAN)
    return Still(
        _beside([list(zip(diff.names, drawn, strict=True))]),
        f"(picture: {diff.names[0]}, and beside it {diff.names[1]})",
    )


def search(tuned: Tuned) -> Still:
    """Settings and scores, and the learning curves; a line is a model, the darker the better its rank."""
    page = tuned.html()
    (settings,), both = _drawn(page, "coordinates", SEARCH), _drawn(page, "curves", SEARCH)
    titles = (f"val {tuned.monitor} by epoch", "training loss by epoch")
    return Still(_beside([[("settings and scores", settings)], list(zip(titles, both, strict=True))]), repr(tuned))


def schedule(trainer: lotan.Trainer, title: str) -> Still:
    """When each partition is in memory, in an epoch of a run from a disk."""
    page = trainer.explain("html")
    (drawn,) = re.findall(r"<figure>(<svg xmlns=.*?</svg>)</figure>", page, re.DOTALL)
    picture = ElementTree.fromstring(drawn.replace(' xmlns="http://www.w3.org/2000/svg"', ""))
    return Still(_beside([[(title, picture)]]), f"(picture: {title}, when each partition is in memory)")


def bars(unit: str, groups: Mapping[str, Mapping[str, float]]) -> Still:
    """A bar for each figure, in groups; all have one scale."""
    longest = max(value for group in groups.values() for value in group.values())
    parts, words, y = [], [], 0
    for title, group in groups.items():
        parts.append(f'<text class="title" x="8" y="{y + 18}">{escape(title)}</text>')
        words.append(title)
        y += TITLE
        for name, value in group.items():
            said = f"{value:.3g} {unit}"
            parts += [
                f'<text x="{LABELS - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>',
                f'<rect x="{LABELS}" y="{y + 2}" width="{max(1.0, ROOM * value / longest):.1f}" height="16" fill="{GRAPH}"/>',
                f'<text x="{LABELS + max(1.0, ROOM * value / longest) + 6:.1f}" y="{y + 14}">{said}</text>',
            ]
            words.append(f"  {name:<30}{said:>14}")
            y += BAR
        y += 8
    picture = ElementTree.fromstring(f'<svg viewBox="0 0 {LABELS + ROOM + 180} {y}">{"".join(parts)}</svg>')
    title: Style = ("text", "title", {"font-weight": "700"})
    return Still(_beside([[("", _painted(picture, (*SEARCH[:1], title)))]]), "\n".join(words))


# --- from the page --------------------------------------------------------------------------------------------------


def _drawn(page: str, kind: str, styles: Sequence[Style]) -> list[ElementTree.Element]:
    """The pictures of one kind in a page, in colour."""
    found = re.findall(rf'<svg class="{kind}\b.*?</svg>', page, re.DOTALL)
    return [_painted(ElementTree.fromstring(one), styles) for one in found]


def _painted(picture: ElementTree.Element, styles: Sequence[Style]) -> ElementTree.Element:
    _clip(picture)
    _paint(picture, frozenset(), styles)
    return picture


def _clip(picture: ElementTree.Element) -> None:
    """Lines end at the frame around them, if there is one."""
    for clip in picture.findall("clipPath"):
        picture.remove(clip)
    frame = picture.find("rect[@class='frame']")
    if frame is None:
        return
    top = float(frame.get("y", 0))
    bottom = top + float(frame.get("height", 0))
    for line in picture.iter("polyline"):
        points = (point.split(",") for point in line.get("points", "").split())
        line.set("points", " ".join(f"{x},{min(max(float(y), top), bottom):.1f}" for x, y in points))


def _paint(element: ElementTree.Element, around: frozenset[str], styles: Sequence[Style]) -> None:
    """Give an element, and all in it, attributes for its classes; what only the page's script wants goes."""
    classes = around | set(element.get("class", "").split())
    for child in list(element):
        if child.get("class") == "reach":
            element.remove(child)
        else:
            _paint(child, classes, styles)
    share = re.search(r"--share: ([\d.]+)", element.get("style", ""))
    kept = {name: value for name, value in element.attrib.items() if not _is_for_script(name)}
    element.attrib.clear()
    for tag, wanted, attributes in styles:
        if tag == element.tag and classes.issuperset(wanted.split()):
            element.attrib.update(attributes)
    element.attrib.update(kept)
    if share:
        element.set("stroke", _mixed(float(share[1])))


def _is_for_script(name: str) -> bool:
    return name in ("class", "style", "tabindex", "role", "clip-path") or name.startswith(("data-", "aria-"))


def _mixed(share: float) -> str:
    return "#" + "".join(
        f"{round(worst + share * (best - worst)):02x}" for worst, best in zip(WORST, BEST, strict=True)
    )


# --- one beside the other -------------------------------------------------------------------------------------------


def _beside(rows: Sequence[Sequence[tuple[str, ElementTree.Element]]]) -> str:
    """Pictures in rows, each with its title above, as one."""
    parts, width, y = [], 0.0, 0.0
    for row in rows:
        x, low = 0.0, 0.0
        for title, picture in row:
            *_, wide, high = (float(number) for number in picture.get("viewBox", "").split())
            above = TITLE if title else 0
            for name, value in {"x": x, "y": y + above, "width": wide, "height": high}.items():
                picture.set(name, f"{value:.0f}")
            if title:
                parts.append(
                    f'<text x="{x + 8:.0f}" y="{y + 18:.0f}" fill="{INK}" font-size="14" font-weight="700" '
                    f'font-family="{SANS}">{escape(title)}</text>'
                )
            parts.append(ElementTree.tostring(picture, encoding="unicode"))
            x, low = x + wide + 16, max(low, above + high)
        width, y = max(width, x - 16), y + low + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y:.0f}" viewBox="0 0 {width:.0f} {y:.0f}">'
        f'<rect width="{width:.0f}" height="{y:.0f}" fill="{PAPER}"/>{"".join(parts)}</svg>'
    )
