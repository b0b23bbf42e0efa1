"""Draws a diagram as SVG, with classes and places only. Colours, fonts and reactions to the mouse belong to the page."""

from __future__ import annotations

from collections.abc import Collection
from html import escape

from planner.explain.arrows import draw_arrows, head, head_length, thickness
from planner.explain.diagram import Arrow, Box, Diagram
from planner.explain.layout import BOX_HEIGHT, BOX_WIDTH, CHIP_HEIGHT, CHIP_WIDTH, Layout, lay_out
from planner.explain.sizes import size

LETTERS = 27  # letters of the box's font that fit in a box
CHIP_LETTERS = 20
ABOVE = 16.0  # pixels from the top of a lane's first box to the heading above it
TALL = 5_000  # pixels of height from which a picture does not print on one page
CHIP_ARROW = 16.0  # length in pixels of the arrow from a chip to its box
WIDEST_CHIP_ARROW = 7.0


def svg(diagram: Diagram, most: int, marked: Collection[str] = ()) -> str:
    """Return the picture of a diagram.

    Args:
        diagram: The diagram.
        most: The bytes of the widest arrow on the page, without pictures that a switch shows.
        marked: The keys of boxes that the reader should notice.
    """
    layout = lay_out(diagram)
    width, height = round(layout.width), round(layout.height)
    parts = [
        f'<svg class="plan{" tall" if height > TALL else ""}" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="group" aria-label="{escape(diagram.title)}">',
        *_headings(layout),
        *draw_arrows(diagram, layout, most),
        *(_box(box, layout, most, box.key in marked) for box in diagram.boxes),
        "</svg>",
    ]
    return "\n".join(parts)


def _headings(layout: Layout) -> list[str]:
    if len(layout.lanes) == 1:
        return []
    words = ("forward &#8595;", "backward &#8593;")
    places = zip(layout.lanes, words, strict=True)
    return [f'<text class="lane" x="{x:.0f}" y="{y - ABOVE:.0f}">{word}</text>' for (x, y), word in places]


# --- boxes ----------------------------------------------------------------------------------------------------------


def _box(box: Box, layout: Layout, most: int, marked: bool) -> str:
    (x, y), height = layout.centres[box.key], layout.heights[box.key]
    left, top, base = x - BOX_WIDTH / 2, y - height / 2, y - BOX_HEIGHT / 2
    classes = ["box", box.engine, *["back"] * box.backward, *["marked"] * marked]
    name, _, operands = box.title.removesuffix(")").partition("(")
    lines = [
        f'<g class="{" ".join(classes)}" data-key="{box.key}" tabindex="0" role="img">',
        f'<title>{escape(_told(box))}</title>',
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{BOX_WIDTH:.0f}" height="{height:.1f}" rx="6"/>',
        f'<path class="edge" d="M{left + 2:.1f} {top + 6:.1f}v{height - 12:.1f}"/>',
        _text("name", left + 12, base + 19, f"{box.key} {name}", LETTERS - 6),
        _text("tag", left + BOX_WIDTH - 10, base + 19, box.engine, 6),
        _text("operands", left + 12, base + 37, operands, LETTERS),
        _text("makes", left + 12, base + 55, f"→ {box.makes}" if box.makes else "", LETTERS - 9),
        _text("size", left + BOX_WIDTH - 10, base + 55, size(box.bytes), 9),
        *_chips(box, layout, most),
        "</g>",
    ]  # fmt: skip
    return "\n".join(line for line in lines if line)


def _text(kind: str, x: float, y: float, words: str, letters: int) -> str:
    if not words:
        return ""
    shown = words if len(words) <= letters else words[: letters - 1] + "…"
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(shown)}</text>'


def _told(box: Box) -> str:
    """Return the text of a box's tooltip: the operator in full, and everything known of it, one fact a line."""
    makes, measured = f" → {box.makes}" if box.makes else "", dict(box.measured)
    lines = [f"{box.key} {box.title}{makes}"]
    for name, value in box.facts:
        beside = f"; measured {measured.pop(name)}" if name in measured else ""
        lines.append(f"{name}: {value}{beside}")
    return "\n".join([*lines, *(f"{name}: measured {value}" for name, value in measured.items())])


def _chips(box: Box, layout: Layout, most: int) -> list[str]:
    """Return chips with the names of inputs that have no drawn arrow. They stand on the outer side of the box."""
    arrows = layout.chips[box.key]
    x, y = layout.centres[box.key]
    side = 1 if box.backward else -1
    first = y - (len(arrows) - 1) / 2 * CHIP_HEIGHT
    return [
        _chip(arrow, x + side * BOX_WIDTH / 2, first + at * CHIP_HEIGHT, side, thickness(arrow.bytes, most))
        for at, arrow in enumerate(arrows)
    ]


def _chip(arrow: Arrow, edge: float, y: float, side: int, thick: float) -> str:
    """Return one chip and its arrow. The box's edge is at `edge`, and the chip is at its right (`side` 1) or left (-1)."""
    name, thick = ", ".join(arrow.names), min(thick, WIDEST_CHIP_ARROW)
    outer, room = edge + side * CHIP_ARROW, CHIP_WIDTH - CHIP_ARROW - 6
    left = min(outer, outer + side * room)
    return (
        f'<g class="chip"><title>{escape(f"{name}: {size(arrow.bytes)}")}</title>'
        f'<rect x="{left:.1f}" y="{y - 8:.1f}" width="{room:.1f}" height="16" rx="8"/>'
        + _text("column", left + room / 2, y + 4, name, CHIP_LETTERS)
        + f'<path class="line" d="M{outer:.1f} {y:.1f}H{edge + side * head_length(thick):.1f}"'
        f' stroke-width="{thick:.1f}"/><path class="head" d="{head(edge, y, -side, 0, thick)}"/></g>'
    )
