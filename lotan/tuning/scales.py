"""From a value to its place on an axis of a picture, with the ticks beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lotan.tuning.trial_settings import shown

ORDINAL = 6  # so many different numbers are set at equal distances; more, at places of a scale
LOG_RATIO = 20.0  # of the greatest to the least number of a scale, from which it is one of logarithms
MISSING = "none"
TICKS = 5


@dataclass(frozen=True)
class Scale:
    """An axis of length 1, from its end (0) to its top (1)."""

    ticks: tuple[tuple[str, float], ...]  # label and place
    places: dict[Any, float]  # of every value on it
    low: float = 0.0  # of an axis of numbers, at 0
    high: float = 0.0  # and at 1
    kind: str = "ordinal"  # or "linear", "log"

    def place(self, value: Any) -> float:
        """Where a value lies."""
        return self.places[value]


def scale_of(values: Sequence[Any], numbers: bool = False) -> Scale:
    """The axis for some values; None is a value that is not there, and lies below the others.

    Args:
        values: of all trials.
        numbers: whether they are measured: on a linear scale, however few they are.
    """
    known = [value for value in dict.fromkeys(values) if value is not None]
    numeric = bool(known) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
    if numeric and (numbers or len(known) > ORDINAL):
        low, high = float(min(known)), float(max(known))
        log = not numbers and low > 0 and high / low >= LOG_RATIO and _spread_by_ratio(known, low, high)
        return _continuous(known, None in values, log)
    ordered = sorted(known) if numeric else known
    return _ordinal([*[None] * (None in values), *ordered])


def _spread_by_ratio(known: Sequence[float], low: float, high: float) -> bool:
    """Whether a quarter of the numbers lie below the middle of a scale of logarithms: of evenly drawn ones, few do."""
    middle = math.sqrt(low * high)
    return 4 * sum(value <= middle for value in known) >= len(known)


def _ordinal(values: Sequence[Any]) -> Scale:
    step = 1 / (len(values) - 1) if len(values) > 1 else 0.0
    places = {value: place * step if step else 0.5 for place, value in enumerate(values)}
    return Scale(tuple((_label(value), place) for value, place in places.items()), places)


def _continuous(known: Sequence[float], some_missing: bool, log: bool) -> Scale:
    low, high = float(min(known)), float(max(known))
    if low == high:
        low, high = low - 0.5, high + 0.5
    bottom = 0.12 if some_missing else 0.0  # room for those that have none

    def share(value: float) -> float:
        part = math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)
        return bottom + (1 - bottom) * part

    steps = [place / (TICKS - 1) for place in range(TICKS)]
    marks = [low * (high / low) ** step for step in steps] if log else round_numbers(low, high)
    ticks = [(f"{mark:.3g}", share(mark)) for mark in marks]
    places: dict[Any, float] = {value: share(value) for value in known}
    if some_missing:
        ticks, places = [(MISSING, 0.0), *ticks], {None: 0.0, **places}
    return Scale(tuple(ticks), places, low, high, "log" if log else "linear")


def round_numbers(low: float, high: float) -> list[float]:
    """Some numbers with few digits from low to high, at equal distances.

    >>> round_numbers(0.013, 0.973), round_numbers(0, 200)
    ([0.2, 0.4, 0.6, 0.8], [0.0, 50.0, 100.0, 150.0, 200.0])
    """
    wide = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(wide))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= wide * (1 - 1e-9))
    digits = max(0, -math.floor(math.log10(step)))
    return [
        round(place * step, digits) for place in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


def _label(value: Any) -> str:
    text = MISSING if value is None else shown(value)
    return text if len(text) <= 18 else text[:16] + "..."
