"""The axes of pictures: the places of values on them, and their ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lotan.tuning.trial_settings import shown

ORDINAL = 6  # up to so many different numbers are placed at equal distances; more are placed on a scale
LOG_RATIO = 20.0  # a scale may be logarithmic if its greatest number is at least so many times its least
MISSING = "none"
TICKS = 5


@dataclass(frozen=True)
class Scale:
    """An axis of length 1, from its lower end (0) to its upper end (1)."""

    ticks: tuple[tuple[str, float], ...]  # label and place of each tick
    places: dict[Any, float]  # place of each value
    low: float = 0.0  # the number at 0, if the axis has numbers
    high: float = 0.0  # the number at 1
    kind: str = "ordinal"  # "ordinal", "linear" or "log"

    def place(self, value: Any) -> float:
        """Return the place of a value."""
        return self.places[value]


def scale_of(values: Sequence[Any], numbers: bool = False) -> Scale:
    """Return the axis for some values. None stands for a missing value, which is placed below the others.

    Args:
        values: the values of all trials.
        numbers: if True, the values are measured, and are placed on a linear scale however few they are
            (default: False).
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
    """Return True if a quarter of the numbers are below the middle of a logarithmic scale.

    Few of the numbers that were drawn evenly from a linear scale are below it.
    """
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
    bottom = 0.12 if some_missing else 0.0  # space for missing values

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
    """Return some numbers with few digits from low to high, at equal distances.

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
