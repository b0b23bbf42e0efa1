"""The HTML page of a comparison: its table, and curves by training seconds and by epoch. It needs no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from lotan.tuning.scales import round_numbers

if TYPE_CHECKING:
    from lotan.tuning.compare import Compared

TITLE = "One model, several ways"
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 540, 300, 56, 30, 12
DASHES = ("", "7 4", "2 4", "9 3 2 3")
"""Lines differ in dashes too, for readers who do not see their colours."""

Line = Sequence[tuple[float, float]]


def page(compared: Compared) -> str:
    """Return the page as a whole document."""
    style = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    head = f"val {compared.monitor} of at least" if compared.sign > 0 else f"val {compared.monitor} of at most"
    return "\n".join([
        "<!doctype html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">', f"<title>Lotan: {TITLE}</title>",
        f"<style>\n{style}</style>", "</head>", "<body>",
        f"<header><h1>{TITLE}</h1><dl><div><dt>target</dt><dd>{escape(head)} {compared.target:.4f}</dd></div></dl></header>",
        "<main>", _table(compared), _curves(compared), "</main>", "</body>", "</html>",
    ])  # fmt: skip


def _table(compared: Compared) -> str:
    from lotan.tuning.compare import HEADS, shown

    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in HEADS)
    rows = []
    for place, row in enumerate(compared.rows()):
        first, *rest = (escape(shown(value)) for value in row.values())
        cells = "".join(f"<td>{cell}</td>" for cell in rest)
        rows.append(f'<tr><th scope="row">{_key(place, len(compared.ways))}{first}</th>{cells}</tr>')
    body = "\n".join(rows)
    return (
        '<section><h2>Seconds and epochs to the target</h2><div class="scroll"><table>'
        f"<thead><tr>{names}</tr></thead>\n<tbody>{body}</tbody></table></div>"
        '<p class="hint">Seconds are those of training passes and steps, up to the first epoch that is as good as the target.'
        "</p></section>"
    )


def _curves(compared: Compared) -> str:
    by_seconds = [[(seconds, value) for _, seconds, value in way.points] for way in compared.ways]
    by_epoch = [[(float(epoch), value) for epoch, _, value in way.points] for way in compared.ways]
    figures = "".join(
        f"<figure><figcaption>{caption}</figcaption>{_picture(caption, lines, compared.target)}</figure>"
        for caption, lines in (
            (f"val {escape(compared.monitor)} by training seconds", by_seconds),
            (f"val {escape(compared.monitor)} by epoch", by_epoch),
        )
    )
    return f'<section><h2>Learning curves</h2><div class="pictures">{figures}</div></section>'


def _picture(caption: str, lines: Sequence[Line], target: float) -> str:
    """Return curves as SVG, with a line at the target."""
    values = [target, *(value for line in lines for _, value in line)]
    low, high, end = min(values), max(values), max((at for line in lines for at, _ in line), default=1.0)
    if low == high:
        low, high = low - 0.5, high + 0.5

    def x(at: float) -> float:
        return LEFT + at / (end or 1.0) * (WIDTH - LEFT - 14)

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    drawn = []
    for place, line in enumerate(lines):
        points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in line)
        drawn.append(f'<polyline points="{points}" {_stroke(place, len(lines))}></polyline>')
    goal = (
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 14}" y1="{y(target):.1f}" y2="{y(target):.1f}" '
        'stroke="var(--mark)"></line>'
    )
    frame = (
        f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - 14}" height="{HEIGHT - TOP - BOTTOM}" class="frame"></rect>'
    )
    return (
        f'<svg class="curves" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{caption}, one line a way">'
        f'{frame}{_ticks(low, high, end, x, y)}{goal}<g class="lines">{"".join(drawn)}</g></svg>'
    )


def _stroke(place: int, ways: int) -> str:
    dashes = DASHES[place % len(DASHES)]
    return f'style="--share: {place / max(1, ways - 1):.3f}"' + (f' stroke-dasharray="{dashes}"' if dashes else "")


def _key(place: int, ways: int) -> str:
    """Return the line that a way has in the pictures."""
    return (
        '<svg viewBox="0 0 40 10" style="display: inline-block; width: 40px; margin-right: 8px" aria-hidden="true">'
        f'<g class="lines"><polyline points="0,5 40,5" {_stroke(place, ways)}></polyline></g></svg>'
    )


def _ticks(low: float, high: float, end: float, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    left = "".join(
        f'<text class="tick" x="{LEFT - 6}" y="{y(mark) + 4:.1f}">{mark:.3g}</text>'
        for mark in round_numbers(low, high)
    )
    below = "".join(
        f'<text class="epoch" x="{x(mark):.1f}" y="{HEIGHT - BOTTOM + 17}">{mark:.3g}</text>'
        for mark in round_numbers(0.0, end or 1.0)
    )
    return left + below
