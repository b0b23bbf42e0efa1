"""Parallel coordinates: a picture with an axis for each setting and for the score, and a line for each trial."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from lotan.tuning.scales import Scale, scale_of
from lotan.tuning.trial_settings import short

if TYPE_CHECKING:
    from lotan.tuning.result import Trial, Tuned

WIDTH, TOP, HEIGHT, BOTTOM = 1100, 44, 300, 22  # the picture's width; the heights above, of and below the axes
SIDE = 80  # space for labels, left and right of the outer axes
SPREAD = 9.0  # lines of trials with the same value are spread up and down by this much, to be distinguished
LEAST_APART = 130  # pixels between two axes on a small screen


def coordinates(tuned: Tuned, shares: Mapping[int, float | None]) -> str:
    """Return the picture as SVG.

    Args:
        tuned: the search's result.
        shares: by trial number, from 0 for the worst score to 1 for the best; None without a score.
    """
    names = [*(short(path) for path in tuned.varied), f"val {tuned.monitor}"]
    columns = [[trial.settings.plain().get(path) for trial in tuned.trials] for path in tuned.varied]
    values = [*columns, [trial.value for trial in tuned.trials]]
    scales = [scale_of(column, numbers=place == len(columns)) for place, column in enumerate(values)]
    across = [_across(place, len(names)) for place in range(len(names))]
    lines = _lines(tuned.trials, values, scales, across, shares)
    axes = "".join(_axis(*one) for one in zip(range(len(names)), names, scales, across, strict=True))
    label = "Parallel coordinates: one line a model, from its settings to its score"
    return (
        f'<svg class="coordinates" viewBox="0 0 {WIDTH} {TOP + HEIGHT + BOTTOM}" role="group" aria-label="{label}" '
        f'style="min-width: {2 * SIDE + LEAST_APART * (len(names) - 1)}px">{lines}{axes}</svg>'
    )


def _across(place: int, count: int) -> float:
    return WIDTH / 2 if count == 1 else SIDE + place * (WIDTH - 2 * SIDE) / (count - 1)


def _down(share: float) -> float:
    return TOP + (1 - share) * HEIGHT


def _lines(
    trials: Sequence[Trial],
    values: Sequence[Sequence[Any]],
    scales: Sequence[Scale],
    across: Sequence[float],
    shares: Mapping[int, float | None],
) -> str:
    """Draw the lines, the worst trial first, so that the best are on top. Lines with the same value are spread."""
    heights = [
        _spread([_down(scale.place(value)) for value in column]) for scale, column in zip(scales, values, strict=True)
    ]
    true = [[_down(scale.place(value)) for value in column] for scale, column in zip(scales, values, strict=True)]
    drawn = []
    for place, trial in reversed(list(enumerate(trials))):
        points = " ".join(f"{x:.1f},{column[place]:.1f}" for x, column in zip(across, heights, strict=True))
        at = " ".join(f"{column[place]:.1f}" for column in true)
        share = shares[trial.number]
        colour = ' class="none"' if share is None else f' style="--share: {share:.3f}"'
        drawn.append(f'<polyline data-trial="{trial.number}" data-at="{at}" points="{points}"{colour}></polyline>')
    return f'<g class="lines">{"".join(drawn)}</g>'


def _spread(heights: Sequence[float]) -> list[float]:
    """Return the heights with equal ones moved apart by a few pixels, in their order."""
    alike: dict[float, list[int]] = defaultdict(list)
    for place, height in enumerate(heights):
        alike[height].append(place)
    found = list(heights)
    for height, places in alike.items():
        reach = SPREAD * min(1.0, (len(places) - 1) / 6)
        for order, place in enumerate(places):
            found[place] = height + (reach * (2 * order / (len(places) - 1) - 1) if len(places) > 1 else 0.0)
    return found


def _axis(place: int, name: str, scale: Scale, x: float) -> str:
    ticks = "".join(
        f'<line x1="{x - 5:.1f}" x2="{x:.1f}" y1="{_down(at):.1f}" y2="{_down(at):.1f}"></line>'
        f'<text class="tick" x="{x - 9:.1f}" y="{_down(at) + 4:.1f}">{escape(label)}</text>'
        for label, at in scale.ticks
    )
    told = "|".join(f"{_down(at):.1f}={label}" for label, at in scale.ticks)
    return (
        f'<g class="axis" data-axis="{place}" data-name="{escape(name)}" data-kind="{scale.kind}" data-x="{x:.1f}" '
        f'data-low="{scale.low!r}" data-high="{scale.high!r}" data-top="{TOP}" data-bottom="{TOP + HEIGHT}" '
        f'data-ticks="{escape(told)}"><text class="name" x="{x:.1f}" y="22">{escape(name)}</text>'
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{TOP + HEIGHT}"></line>{ticks}</g>'
    )
