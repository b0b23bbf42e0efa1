"""Learning curves: pictures of a metric, or of the loss, of every trial by epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lotan.tuning.scales import round_numbers

if TYPE_CHECKING:
    from lotan.tuning.result import Trial, Tuned

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 540, 300, 56, 30, 12
POINTS = 200  # the most points of a line
CLIPPED = 0.98  # this share of all values is in the picture; the few greatest would press the others together

Points = list[tuple[int, float]]
Read = Callable[[Mapping[str, Any]], float | None]


def curves(tuned: Tuned, shares: Mapping[int, float | None]) -> list[tuple[str, str]]:
    """Return titles and pictures, as SVG. The arguments are those of `lotan.tuning.coordinates.coordinates`."""
    monitor = tuned.monitor

    def validation(entry: Mapping[str, Any]) -> float | None:
        found: float | None = entry.get("metrics", {}).get("val", {}).get(monitor)
        return found

    return [
        (f"val {monitor}", _picture(f"val {monitor}", tuned.trials, validation, shares)),
        ("training loss", _picture("training loss", tuned.trials, lambda entry: entry["loss"], shares)),
    ]


def _picture(title: str, trials: Sequence[Trial], read: Read, shares: Mapping[int, float | None]) -> str:
    found = {trial.number: _points(trial, read) for trial in trials}
    values = sorted(value for points in found.values() for _, value in points)
    if not values:
        return ""
    low, high = values[0], values[-1]
    if title == "training loss":
        high = values[math.ceil(CLIPPED * (len(values) - 1))]
    if low == high:
        low, high = low - 0.5, high + 0.5
    epochs = max(epoch for points in found.values() for epoch, _ in points)
    clip = "clip-" + title.replace(" ", "-").replace("_", "-")

    def x(epoch: float) -> float:
        return LEFT + (epoch - 1) / max(1, epochs - 1) * (WIDTH - LEFT - 14)

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    lines = []
    for trial in reversed(trials):
        points = " ".join(f"{x(epoch):.1f},{y(value):.1f}" for epoch, value in found[trial.number])
        share = shares[trial.number]
        colour = ' class="none"' if share is None else f' style="--share: {share:.3f}"'
        lines.append(f'<polyline data-trial="{trial.number}" points="{points}"{colour}></polyline>')
    frame = f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - 14}" height="{HEIGHT - TOP - BOTTOM}"'
    return (
        f'<svg class="curves" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title} by epoch, one line a model">'
        f'<clipPath id="{clip}">{frame}></rect></clipPath>{frame} class="frame"></rect>'
        f'{_ticks(low, high, epochs, x, y)}<g class="lines" clip-path="url(#{clip})">{"".join(lines)}</g></svg>'
    )


def _points(trial: Trial, read: Read) -> Points:
    found = [(entry["epoch"], read(entry)) for entry in trial.history]
    known = [(epoch, value) for epoch, value in found if value is not None and math.isfinite(value)]
    every = max(1, math.ceil(len(known) / POINTS))
    return [*known[:-1:every], *known[-1:]]


def _ticks(low: float, high: float, epochs: int, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    left = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 14}" y1="{y(mark):.1f}" y2="{y(mark):.1f}"></line>'
        f'<text class="tick" x="{LEFT - 6}" y="{y(mark) + 4:.1f}">{mark:.3g}</text>'
        for mark in round_numbers(low, high)
    )
    numbers = sorted({1, *(int(number) for number in round_numbers(1, max(2, epochs)) if number % 1 == 0)})
    below = "".join(
        f'<text class="epoch" x="{x(number):.1f}" y="{HEIGHT - BOTTOM + 17}">{number}</text>' for number in numbers
    )
    return left + below
