"""Random numbers of an order. They depend on the seed and the epoch alone, in every version of Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")

_WORD = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio


class OrderDraws:
    """Draws numbers one after the other. Source: Steele et al., Fast splittable generators (OOPSLA 2014), SplitMix64.

    Args:
        seed: The seed, at least 0.
        epoch: The epoch.
    """

    def __init__(self, seed: int, epoch: int = 0) -> None:
        self._state = _mixed(_mixed(seed & _WORD) + epoch * _STEP)

    def below(self, count: int) -> int:
        """Return a number from 0 to `count` - 1.

        >>> 0 <= OrderDraws(0).below(3) < 3
        True
        """
        self._state = (self._state + _STEP) & _WORD
        return (_mixed(self._state) * count) >> 64

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """Return the items in a drawn order. All orders are equally likely (Fisher and Yates).

        >>> sorted(OrderDraws(0).shuffled([3, 1, 2]))
        [1, 2, 3]
        """
        found = list(items)
        for last in range(len(found) - 1, 0, -1):
            other = self.below(last + 1)
            found[last], found[other] = found[other], found[last]
        return found


def _mixed(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)
