"""One setting of a grid with its possible values: a list, or a range from which values are drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lotan.arguments import described
from lotan.errors import ConfigurationError
from lotan.tuning.keys import Key, exact, flag, real

_BOUNDS = ("low", "high")


@dataclass(frozen=True)
class Range:
    """The numbers from low to high, inclusive."""

    low: float
    high: float
    log: bool = False  # if True, logarithms are drawn evenly instead of numbers
    whole: bool = False  # if True, only whole numbers are drawn

    def at(self, share: float) -> float:
        """Return the number at a share of the way from low to high. `share` is at least 0 and less than 1."""
        if self.whole and not self.log:
            return int(self.low) + math.floor(share * (int(self.high) - int(self.low) + 1))
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        found = low + share * (high - low)
        found = min(self.high, max(self.low, math.exp(found) if self.log else found))
        return round(found) if self.whole else found


@dataclass(frozen=True)
class Axis:
    """The values of a setting, after they were checked."""

    key: Key
    values: tuple[Any, ...] = ()
    range: Range | None = None  # a range in place of the values

    def draw(self, generator: np.random.Generator) -> Any:
        """Draw one of the values. All have the same probability."""
        share = float(generator.random())
        return self.values[int(share * len(self.values))] if self.range is None else self.range.at(share)

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values, or the two ends of the range. They can be tried before anything is trained."""
        return self.values if self.range is None else (self.range.low, self.range.high)


def axis_of(key: Key, given: Any, source: str) -> tuple[Axis, tuple[str, ...]]:
    """Check the values that a grid gives a setting.

    Args:
        key: the setting.
        given: a value, a list, range or array of values, or a table of low, high and, optionally, log.
        source: the grid's name, for the texts of errors.

    Returns:
        The axis, and remarks on it.

    Raises:
        ConfigurationError: a value has a wrong type or is beyond its limits, a list is empty, or a range is wrong.
    """
    if isinstance(given, Mapping):
        return Axis(key, range=_range_of(key, given, source)), ()
    several = [_plain(value) for value in _values_of(given)]
    if not several:
        raise ConfigurationError(f"{source}: {key.path} = [] has no values; give at least one, or leave it out")
    values = [_checked(key, value, source) for value in several]
    distinct = tuple({exact(value): value for value in values}.values())
    if len(distinct) == len(values):
        return Axis(key, distinct), ()
    return Axis(key, distinct), (f"{key.path} has {len(values)} values, of which {len(distinct)} differ",)


def _values_of(given: Any) -> list[Any]:
    """Return the values of a list, a range or an array; a single value stands alone."""
    if isinstance(given, np.ndarray):
        return list(given.reshape(-1))
    return list(given) if isinstance(given, list | tuple | range) else [given]


def _plain(value: Any) -> Any:
    """Return a scalar of numpy as Python's own, so that equal values are one value."""
    return value.item() if isinstance(value, np.generic) else value


def _checked(key: Key, value: Any, source: str) -> Any:
    try:
        return key.check(value)
    except ValueError:
        raise ConfigurationError(f"{source}: {key.path} = {described(value)}; expected {key.expected}") from None


def _range_of(key: Key, given: Mapping[str, Any], source: str) -> Range:
    def refused(why: str) -> ConfigurationError:
        form = "{ low = 0.0001, high = 0.1, log = true }"
        return ConfigurationError(f"{source}: {key.path} = {described(dict(given))} {why}; a range is written {form}")

    if key.spans is None:
        raise ConfigurationError(f"{source}: {key.path} is no number, so has no range; list its values")
    unknown = [name for name in given if name not in (*_BOUNDS, "log")]
    missing = [name for name in _BOUNDS if name not in given]
    if unknown or missing:
        raise refused(f"has {unknown[0]!r}" if unknown else f"lacks {missing[0]!r}")
    low, high = (_checked(key, _plain(given[name]), source) for name in _BOUNDS)
    try:
        log = flag(given.get("log", False))
    except ValueError:
        raise refused(f"has log = {described(given['log'])}, which is neither true nor false") from None
    if not real(low) < real(high):
        raise refused("has no low below its high")
    if log and low <= 0:
        raise refused("has a logarithm, and its low is not above 0")
    return Range(low, high, log, whole=key.spans is int)
