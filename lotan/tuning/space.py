"""The space of a grid: its axes, the combinations of their values, and random draws from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lotan.errors import ConfigurationError
from lotan.tuning.axes import Axis
from lotan.tuning.keys import Key
from lotan.tuning.trial_settings import Settings, check_optimizer, settled

MOST = 100_000  # the most combinations of a grid; a larger number is taken for a typing error
AT_RANDOM = "(--search random --trials 20; in Python, search='random', trials=20)"
_FRUITLESS = 100  # after so many draws for each trial, a space is taken to have no more trials


@dataclass(frozen=True)
class Space:
    """A grid that was checked."""

    axes: tuple[Axis, ...]
    further: Mapping[str, Key] = field(default_factory=dict)  # keys of the parameters of users' own factories
    source: str = "grid"  # the grid's name, for the texts of errors
    notes: tuple[str, ...] = ()  # remarks on the grid
    defaults: Mapping[str, Any] = field(default_factory=dict)  # values of settings without an axis, by path
    links: bool = False  # True for a link task

    def with_defaults(self, **values: Any) -> Space:
        """Return the space with values for settings that the grid does not set. Values that are None are ignored.

        Raises:
            ConfigurationError: the grid sets such a setting itself. A seed is allowed, because the search needs one too.
        """
        given = {axis.key.path for axis in self.axes}
        twice = [name for name, value in values.items() if value is not None and name in given and name != "seed"]
        if twice:
            raise ConfigurationError(f"{self.source} sets {twice[0]}, and so does an option; leave one of them out")
        return replace(self, defaults={name: value for name, value in values.items() if value is not None})

    @property
    def ranges(self) -> list[str]:
        """The paths of the axes that are ranges."""
        return [axis.key.path for axis in self.axes if axis.range is not None]

    def settle(self, values: Mapping[str, Any]) -> Settings:
        """Return a trial's settings for a value on each axis."""
        return settled({**self.defaults, **values}, self.further, self.links)

    def combinations(self) -> tuple[list[Settings], tuple[str, ...]]:
        """Return every combination once, and remarks.

        Raises:
            ConfigurationError: an axis is a range, or there are too many combinations.
        """
        if self.ranges:
            raise ConfigurationError(
                f"{self.source}: {self.ranges[0]} is a range, and a grid wants a list of values; list some, or search "
                f"at random, by halving or with optuna, which draw from ranges {AT_RANDOM}"
            )
        size = math.prod(len(axis.values) for axis in self.axes)
        if size > MOST:
            raise ConfigurationError(
                f"{self.source} has {size:,} combinations, and at most {MOST:,} are taken; give fewer values, or draw "
                f"from them {AT_RANDOM}"
            )
        paths = [axis.key.path for axis in self.axes]
        several = itertools.product(*(axis.values for axis in self.axes))
        return merged([self.settle(dict(zip(paths, values, strict=True))) for values in several])

    def drawn(self, count: int, seed: int) -> tuple[list[Settings], tuple[str, ...]]:
        """Draw different trials at random.

        Args:
            count: the number of trials.
            seed: the seed of the draws.

        Returns:
            The trials, which are fewer if the space has no more, and remarks.
        """
        generator = np.random.default_rng(seed)
        found: dict[Settings, None] = {}
        for _ in range(count * _FRUITLESS):
            if len(found) == count:
                break
            found[self.settle({axis.key.path: axis.draw(generator) for axis in self.axes})] = None
        few = f"of {count} trials that were asked for, the grid has no more than {len(found)} that differ"
        return list(found), (few,) if len(found) < count else ()

    def samples(self) -> Iterable[Settings]:
        """Yield trials in which each value and each end of a range occurs. They can be tried before any training."""
        first = {axis.key.path: axis.ends[0] for axis in self.axes}
        for axis in self.axes:
            for value in axis.ends:
                yield self.settle({**first, axis.key.path: value})
        yield self.settle(first)

    def check_optimizers(self) -> None:
        """Make the optimizers, so that torch refuses wrong numbers before any training.

        Raises:
            ConfigurationError: torch refuses a number. The error names the settings.
        """
        for settings in dict.fromkeys(self.samples()):
            check_optimizer(settings)


def merged(trials: Sequence[Settings]) -> tuple[list[Settings], tuple[str, ...]]:
    """Return the trials that differ, in their order, and a remark on the number of equal ones."""
    distinct = list(dict.fromkeys(trials))
    same = len(trials) - len(distinct)
    if not same:
        return distinct, ()
    verb = "is" if same == 1 else "are"
    said = f"{same} of {len(trials)} combinations {verb} the same model as another, and not trained again"
    return distinct, (said,)
