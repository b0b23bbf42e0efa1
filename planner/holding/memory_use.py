"""The steps of a pass as far as memory is concerned: the columns that each reads and makes, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class MemoryUse:
    """A step, as far as memory is concerned.

    A column that lies in a file is read or written part by part as the step runs. What of it is in memory at one time
    counts in `in_hand`, unless `whole` names the column.
    """

    reads: frozenset[str]  # columns that it reads
    makes: frozenset[str]  # columns that it makes
    whole: frozenset[str] = frozenset()  # those of both that have to be in memory as a whole while it runs
    in_hand: int = 0  # bytes that it needs besides columns that are in memory
    keyed: frozenset[str] = (
        frozenset()
    )  # steps with a common name here stay in their order, as their results are summed

    @classmethod
    def of(cls, reads: Iterable[str], makes: Iterable[str]) -> MemoryUse:
        """Return the use of a step that works in memory alone, as an operator does on a GPU."""
        read, made = frozenset(reads), frozenset(makes)
        return cls(read, made, read | made)


class Uses:
    """The uses of a pass, with the orders in which its steps may run.

    Sets of steps are numbers, in which the bit of each step that was run is set.

    Args:
        uses: The steps in the order in which they are given. Each column is made once, or it is there before.
        sizes: The bytes of each column.
        fixed: True if the steps run in the order in which they are given.
    """

    def __init__(self, uses: Sequence[MemoryUse], sizes: Mapping[str, int], fixed: bool = True) -> None:
        self.uses, self.sizes = tuple(uses), sizes
        made = {name: number for number, use in enumerate(uses) for name in use.makes}
        self._before: list[int] = []  # the steps that have to run before each step
        for number, use in enumerate(uses):
            earlier = {made[name] for name in use.reads if name in made}
            earlier |= {other for other in range(number) if uses[other].keyed & use.keyed}
            earlier |= {number - 1} if fixed and number else set()
            self._before.append(sum(1 << other for other in earlier))
        self._touched = [use.reads | use.makes for use in uses]

    @property
    def every(self) -> int:
        """The set of all steps."""
        return (1 << len(self.uses)) - 1

    def size(self, columns: Collection[str]) -> int:
        """Return the bytes of some columns together."""
        return sum(self.sizes[name] for name in columns)

    def last_of(self, done: int) -> list[int]:
        """Return the steps of a set that may run last: those that no other step of the set has to wait for."""
        numbers = [number for number in range(len(self.uses)) if done >> number & 1]
        needed = 0
        for number in numbers:
            needed |= self._before[number]
        return [number for number in numbers if not needed >> number & 1]

    def states(self, most: int) -> list[int] | None:
        """Return all sets of steps that some valid order runs first, smaller ones first; None if they are more than `most`."""
        found, newest = [0], {0}
        while newest:
            newest = {
                done | 1 << number
                for done in newest
                for number, before in enumerate(self._before)
                if not done >> number & 1 and before & done == before
            }
            found += sorted(newest)
            if len(found) > most:
                return None
        return found

    def active(self, done: int) -> frozenset[str]:
        """Return the columns that a set of steps has read or made, and that some other step reads.

        The paper's definition names only what was made. Its own table 3 has inputs as well.
        """
        if done not in self._active:
            touched: set[str] = set()
            read: set[str] = set()
            for number, use in enumerate(self.uses):
                if done >> number & 1:
                    touched |= self._touched[number]
                else:
                    read |= use.reads
            self._active[done] = frozenset(touched & read)
        return self._active[done]

    @cached_property
    def _active(self) -> dict[int, frozenset[str]]:
        return {}

    def needed(self, number: int, columns: Collection[str]) -> int:
        """Return the bytes that a step needs while some columns are in memory beside it."""
        use = self.uses[number]
        return self.size(use.whole.union(columns)) + use.in_hand
