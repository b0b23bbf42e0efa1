"""All that a grid may become: its axes, the combinations of their values, and draws from them."""

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

MOST = 100_000  # combinations that a grid may have: beyond, a slip of the keyboard
AT_RANDOM = "(--search random --trials 20; in Python, search='random', trials=20)"
_FRUITLESS = 100  # draws for each trial wanted, after which a space is taken to be exhausted


@dataclass(frozen=True)
class Space:
    """A checked grid."""

    axes: tuple[Axis, ...]
    further: Mapping[str, Key] = field(default_factory=dict)  # keys of models of one's own
    source: str = "grid"  # where it is from, for errors
    notes: tuple[str, ...] = ()  # what to say of it
    defaults: Mapping[str, Any] = field(default_factory=dict)  # by path, of what has no axis

    def with_defaults(self, **values: Any) -> Space:
        """The same with what is given, and not None, for what the grid does not say.

        Raises:
            ConfigurationError: it says so itself; but a seed is for the search as well.
        """
        given = {axis.key.path for axis in self.axes}
        twice = [name for name, value in values.items() if value is not None and name in given and name != "seed"]
        if twice:
            raise ConfigurationError(f"{self.source} sets {twice[0]}, and so does an option; leave one of them out")
        return replace(self, defaults={name: value for name, value in values.items() if value is not None})

    @property
    def ranges(self) -> list[str]:
        """Paths of the axes that are ranges."""
        return [axis.key.path for axis in self.axes if axis.range is not None]

    def settle(self, values: Mapping[str, Any]) -> Settings:
        """A trial's settings of a value for each axis."""
        return settled({**self.defaults, **values}, self.further)

    def combinations(self) -> tuple[list[Settings], tuple[str, ...]]:
        """Every combination once, and remarks.

        Raises:
            ConfigurationError: an axis is a range, or there are too many.
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
        """So many different trials, and remarks; fewer where the space has no more.

        Args:
            count: how many.
            seed: of the draws.
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
        """Trials in which each value, and each end of a range, occurs: what can be tried before anything is trained."""
        first = {axis.key.path: axis.ends[0] for axis in self.axes}
        for axis in self.axes:
            for value in axis.ends:
                yield self.settle({**first, axis.key.path: value})
        yield self.settle(first)

    def check_optimizers(self) -> None:
        """Have torch refuse the numbers that it would.

        Raises:
            ConfigurationError: naming them.
        """
        for settings in dict.fromkeys(self.samples()):
            check_optimizer(settings)


def merged(trials: Sequence[Settings]) -> tuple[list[Settings], tuple[str, ...]]:
    """Those that differ, in their order, and a remark on those that do not."""
    distinct = list(dict.fromkeys(trials))
    same = len(trials) - len(distinct)
    if not same:
        return distinct, ()
    verb = "is" if same == 1 else "are"
    said = f"{same} of {len(trials)} combinations {verb} the same model as another, and not trained again"
    return distinct, (said,)
