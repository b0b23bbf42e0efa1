"""The drawing of an explanation: a vertex, and the vertices around it by their hops."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

SIZE, RADIUS, MARGIN = 560, 7, 46
STRONGEST = 6.0  # width of the edge with the greatest influence
FOR, AGAINST = "#1f6fb4", "#c8442c"  # colours of influences above and below 0


def picture(vertices: pd.DataFrame, edges: pd.DataFrame, middle: int | str) -> str:
    """Return a drawing as SVG.

    Args:
        vertices: Columns `id`, `hops` and `influence`.
        edges: Columns `src`, `dst` and `influence`.
        middle: The id of the vertex in the middle.
    """
    places = _places(vertices, edges, middle)
    strongest = max([abs(value) for value in edges["influence"]], default=0.0) or 1.0
    body = []
    for src, dst, value in edges[["src", "dst", "influence"]].itertuples(index=False):
        (x, y), (to_x, to_y) = places[src], places[dst]
        width = max(0.4, STRONGEST * abs(value) / strongest)
        said = escape(f"{src} -> {dst}: {value:+.4g}")
        body.append(
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{_colour(value)}" '
            f'stroke-width="{width:.2f}" stroke-opacity="0.7"><title>{said}</title></line>'
        )
    shown = vertices[vertices["id"].isin(list(places))]
    for name, hops, value in shown[["id", "hops", "influence"]].itertuples(index=False):
        x, y = places[name]
        radius = RADIUS + 3 * (name == middle)
        said = escape(f"{name}: {value:+.4g}, {hops} hops")
        body.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{_colour(value)}"><title>{said}</title></circle>'
            f'<text x="{x:.1f}" y="{y - radius - 3:.1f}" text-anchor="middle">{escape(str(name)[:12])}</text>'
        )
    style = f'font-family="sans-serif" font-size="10" fill="#555" viewBox="0 0 {SIZE} {SIZE}" width="{SIZE}" height="{SIZE}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {style}>{"".join(body)}</svg>'


def _colour(value: float) -> str:
    return FOR if value >= 0 else AGAINST


def _places(vertices: pd.DataFrame, edges: pd.DataFrame, middle: int | str) -> dict[int | str, tuple[float, float]]:
    """Return the place of each vertex that an edge has: on a ring for its hops around the vertex in the middle."""
    ends = {middle, *edges["src"], *edges["dst"]}
    rings: dict[int, list[int | str]] = {}
    for name, hops in vertices[["id", "hops"]].itertuples(index=False):
        if name in ends:
            rings.setdefault(int(hops), []).append(name)
    step = (SIZE / 2 - MARGIN) / max(1, *rings)
    places = {}
    for hops, names in rings.items():
        for number, name in enumerate(names):
            angle = 2 * math.pi * (number + 0.5 * (hops % 2)) / len(names)
            places[name] = (SIZE / 2 + hops * step * math.cos(angle), SIZE / 2 + hops * step * math.sin(angle))
    return places
