"""Draws the arrows of a diagram as SVG: curves whose width shows the bytes that they carry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import hypot, sqrt

from planner.explain.diagram import Arrow, Diagram
from planner.explain.layout import BOX_WIDTH, Layout
from planner.explain.sizes import size

THINNEST, WIDEST = 1.2, 12.0  # pixels; the width grows with the root of the bytes, to keep small arrows visible
BOW = 0.45  # part of the distance between two points for which an arrow keeps its direction at each
LEAST_BOW = 24.0  # pixels, the least such length
LABEL = 17.0  # pixels from the end of an arrow to its label
LETTER, RISE, FALL = 6.4, 9.0, 3.0  # pixels of a label: a letter's width, the height above its line and the depth below

Point = tuple[float, float]


@dataclass(frozen=True)
class Waypoint:
    """A point of an arrow, and its direction there."""

    x: float
    y: float
    across: float
    down: float

    def on(self, distance: float) -> Point:
        """Return the point that lies so many pixels further in this direction."""
        return self.x + self.across * distance, self.y + self.down * distance


def draw_arrows(diagram: Diagram, layout: Layout, most: int) -> list[str]:
    """Return SVG elements, one for each drawn arrow. Arrows of `most` bytes or more have the greatest width."""
    ways = _ways(diagram, layout)
    labels = _labels(ways, most)
    return [_draw(arrow, way, most, labels.get(arrow)) for arrow, way in ways.items()]


def thickness(bytes: int, most: int) -> float:
    """Return the width of an arrow in pixels. More than `most` bytes make it no wider.

    >>> thickness(0, 100), thickness(25, 100), thickness(100, 100), thickness(900, 100)
    (1.2, 6.0, 12.0, 12.0)
    """
    return max(THINNEST, WIDEST * sqrt(min(1.0, bytes / most))) if most else THINNEST


def head(x: float, y: float, across: float, down: float, width: float) -> str:
    """Return the triangle at the end of an arrow."""
    half, long = head_length(width) * 0.6, head_length(width)
    base_x, base_y = x - across * long, y - down * long
    return (
        f"M{x:.1f} {y:.1f}L{base_x - down * half:.1f} {base_y + across * half:.1f}"
        f"L{base_x + down * half:.1f} {base_y - across * half:.1f}Z"
    )


def head_length(width: float) -> float:
    """Return the length in pixels of the triangle at the end of an arrow of some width."""
    return max(7.0, width * 1.3)


# --- ways -----------------------------------------------------------------------------------------------------------


def _ways(diagram: Diagram, layout: Layout) -> dict[Arrow, list[Waypoint]]:
    """Return the points at which each arrow leaves, bends and arrives. Arrows at one side of a box share it evenly."""
    back = {box.key for box in diagram.boxes if box.backward}
    meeting: dict[tuple[str, str], list[tuple[Point, Arrow, bool]]] = defaultdict(list)
    for arrow, bends in layout.drawn.items():
        assert arrow.source is not None  # only arrows with a source are drawn
        source, target = layout.centres[arrow.source], layout.centres[arrow.target]
        leaves, arrives = _sides(arrow, source, target, crosses=arrow.target in back and arrow.source not in back)
        meeting[arrow.source, leaves].append((bends[0] if bends else target, arrow, True))
        meeting[arrow.target, arrives].append((bends[-1] if bends else source, arrow, False))
    ends: dict[tuple[Arrow, bool], Waypoint] = {}
    for (key, side), found in meeting.items():
        found.sort(key=lambda entry: entry[0][0 if side in ("top", "bottom") else 1])
        for at, (_, arrow, leaves_here) in enumerate(found):
            ends[arrow, leaves_here] = _end(layout, key, side, (at + 1) / (len(found) + 1), 1 if leaves_here else -1)
    return {arrow: _by_way_of(ends[arrow, True], bends, ends[arrow, False]) for arrow, bends in layout.drawn.items()}


def _sides(arrow: Arrow, source: Point, target: Point, crosses: bool) -> tuple[str, str]:
    """Return the side of its source at which an arrow leaves, and the side of its target at which it arrives."""
    if crosses:
        return "right", "bottom" if arrow.backward and target[1] < source[1] else "left"
    return ("bottom", "top") if target[1] > source[1] else ("top", "bottom")


def _end(layout: Layout, key: str, side: str, part: float, outward: int) -> Waypoint:
    """Return a point on a side of a box, passed outward (1) or inward (-1)."""
    (x, y), height = layout.centres[key], layout.heights[key]
    sign = 1 if side in ("bottom", "right") else -1
    if side in ("top", "bottom"):
        return Waypoint(x + (part - 0.5) * BOX_WIDTH, y + sign * height / 2, 0, sign * outward)
    return Waypoint(x + sign * BOX_WIDTH / 2, y + (part - 0.5) * height, sign * outward, 0)


def _by_way_of(start: Waypoint, bends: tuple[Point, ...], end: Waypoint) -> list[Waypoint]:
    down = 1 if end.y > start.y else -1
    return [start, *(Waypoint(x, y, 0, down) for x, y in bends), end]


# --- drawing --------------------------------------------------------------------------------------------------------


def _draw(arrow: Arrow, way: list[Waypoint], most: int, label: Label | None) -> str:
    width, end = thickness(arrow.bytes, most), way[-1]
    curve = _curve([*way[:-1], Waypoint(*end.on(-head_length(width)), end.across, end.down)])
    told = f"{', '.join(arrow.names)}: {size(arrow.bytes)} from {arrow.source} to {arrow.target}"
    return (
        f'<g class="arrow{" back" if arrow.backward else ""}" data-source="{arrow.source}" data-target="{arrow.target}">'
        f"<title>{escape(told)}</title>"
        f'<path class="reach" d="{curve}"/><path class="line" d="{curve}" stroke-width="{width:.1f}"/>'
        f'<path class="head" d="{head(end.x, end.y, end.across, end.down, width)}"/>{label or ""}</g>'
    )


def _curve(way: list[Waypoint]) -> str:
    parts = [f"M{way[0].x:.1f} {way[0].y:.1f}"]
    for one, other in pairwise(way):
        (ax, ay), (bx, by) = one.on(_bow(one, one, other)), other.on(-_bow(other, one, other))
        parts.append(f"C{ax:.1f} {ay:.1f} {bx:.1f} {by:.1f} {other.x:.1f} {other.y:.1f}")
    return "".join(parts)


def _bow(at: Waypoint, one: Waypoint, other: Waypoint) -> float:
    """Return the pixels for which an arrow keeps its direction at a point. They are few enough for it not to turn back."""
    across, down = other.x - one.x, other.y - one.y
    return min(BOW * hypot(across, down), max(LEAST_BOW, abs(across * at.across + down * at.down)))


# --- labels ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Label:
    """Words on a line that begins at a point, or ends there."""

    x: float
    y: float
    words: str
    ends: bool

    @property
    def area(self) -> tuple[float, float, float, float]:
        """The left, right, top and bottom of the label."""
        width = LETTER * len(self.words)
        left = self.x - width if self.ends else self.x
        return left, left + width, self.y - RISE, self.y + FALL

    def __str__(self) -> str:
        kind = ' class="over"' if self.ends else ""
        return f'<text{kind} x="{self.x:.1f}" y="{self.y:.1f}">{self.words}</text>'


def _labels(ways: Mapping[Arrow, list[Waypoint]], most: int) -> dict[Arrow, Label]:
    """Return a label with its bytes for each arrow that has room.

    No label covers another. If there is no room, the label of the arrow with fewer bytes moves back, or is left out.
    """
    found: dict[Arrow, Label] = {}
    taken: dict[int, list[Label]] = defaultdict(list)  # by the bands of the picture that they touch
    for arrow in sorted(ways, key=lambda arrow: -arrow.bytes):
        for back in (0.0, RISE + FALL):
            label = _label(size(arrow.bytes), ways[arrow], thickness(arrow.bytes, most), back)
            bands = {int(edge // (RISE + FALL)) for edge in label.area[2:]}
            if not any(_overlap(label, other) for band in bands for other in taken[band]):
                found[arrow] = label
                for band in bands:
                    taken[band].append(label)
                break
    return found


def _overlap(one: Label, other: Label) -> bool:
    left, right, top, bottom = one.area
    begin, end, high, low = other.area
    return left < end and begin < right and top < low and high < bottom


def _label(words: str, way: list[Waypoint], width: float, back: float) -> Label:
    """Return the label beside the end of an arrow, on the side that the curve leaves free, or `back` pixels before it."""
    end = way[-1]
    x, y = end.on(-LABEL - back)
    if end.across:
        y = end.y + (width / 2 + 12 + back if way[-2].y < end.y else -width / 2 - 5 - back)
        return Label(end.x - 4, y, words, ends=True)
    return Label(x + width / 2 + 5, y + 4, words, ends=False)
