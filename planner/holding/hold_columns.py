"""Choose the columns of a pass that stay in memory between its steps, where there is not room for all of them.

ROC (MLSys 2020, algorithm 1) chooses by a dynamic program over the sets of steps that have run and the columns that
are in memory after them. The recurrence as it is printed never keeps a column, because nothing is in memory after the
last step; `literal_cost` is that recurrence. Here a column that a step reads may have been in memory before the step
even if it is not afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from planner.holding.memory_use import Uses

MOST_PLACES = 16 * 4096
"""The most pairs of a set of steps and a set of columns that are looked at: the largest that the paper has seen. Beyond
that, columns are kept by their next use."""

Columns = frozenset[str]
NOTHING: Columns = frozenset()


@dataclass(frozen=True)
class Holding:
    """The columns in memory between the steps of a pass. All others lie in files, part by part in memory where needed."""

    order: tuple[int, ...]  # the numbers of the steps, in the order in which they run
    kept: tuple[Columns, ...]  # the columns in memory after each step, in that order
    reads: tuple[Columns, ...]  # the columns that each step reads from files
    loads: tuple[Columns, ...]  # those of them that are loaded before the step, and stay in memory after it
    stores: tuple[
        Columns, ...
    ]  # the columns that each step writes to files as it makes them, or that are moved there after it
    read_bytes: int
    stored_bytes: int

    @property
    def moved_bytes(self) -> int:
        """The bytes that go to files or come from them."""
        return self.read_bytes + self.stored_bytes


def hold_columns(uses: Uses, capacity: int) -> Holding | None:
    """Return the holding that reads the fewest bytes from files; None if some step does not fit in the capacity.

    Args:
        uses: The steps. If their order is not fixed, the best order is chosen as well.
        capacity: The bytes of memory for columns and for what steps have in hand.
    """
    try:
        kept = _Program(uses, capacity).plan()
    except _TooManyError:
        return min(
            (found for hold in (hold_by_next_use, hold_recent) if (found := hold(uses, capacity)) is not None),
            key=lambda found: found.read_bytes,
            default=None,
        )
    return None if kept is None else holding_of(uses, *kept)


def least_moved(uses: Uses, capacity: int) -> Holding | None:
    """Return the holding that moves the fewest bytes to and from files; None if some step does not fit.

    It is one of three, that of `hold_columns`, `hold_by_next_use` or `hold_recent`. The first has the fewest bytes read,
    but may store more: a column that leaves memory for a short time has to be written to a file.
    """
    ways = (hold(uses, capacity) for hold in (hold_columns, hold_by_next_use, hold_recent))
    return min((found for found in ways if found is not None), key=lambda found: found.moved_bytes, default=None)


class _TooManyError(Exception):
    """There are more sets than may be looked at."""


class _Program:
    """The dynamic program, from the last step to the first."""

    def __init__(self, uses: Uses, capacity: int) -> None:
        self._uses, self._capacity = uses, capacity
        self._best: dict[tuple[int, Columns], tuple[float, int, Columns]] = {(0, NOTHING): (0, -1, NOTHING)}

    def plan(self) -> tuple[tuple[int, ...], list[Columns]] | None:
        """Return the order of the steps, and the columns in memory after each; None if no step order fits.

        Raises:
            _TooManyError: If there are more sets than may be looked at.
        """
        done, kept = self._uses.every, NOTHING
        if self.cost(done, kept) == float("inf"):
            return None
        found: list[tuple[int, Columns]] = []
        while done:
            _, last, before = self._best[done, kept]
            found.append((last, kept))
            done, kept = done ^ 1 << last, before
        return tuple(last for last, _ in found[::-1]), [columns for _, columns in found[::-1]]

    def cost(self, done: int, kept: Columns) -> float:
        """Return the fewest bytes that are read to run a set of steps and to have some columns in memory after them."""
        place = done, kept
        if place not in self._best:
            if not done:
                return float("inf")  # nothing is in memory before the first step
            if len(self._best) >= MOST_PLACES:
                raise _TooManyError
            self._best[place] = float("inf"), -1, NOTHING
            ways = ((*self._last(done, last, before), last, before) for last, before in self._ways(done, kept))
            cost, _, last, before = min(ways, key=lambda way: way[:3], default=(float("inf"), 0, -1, NOTHING))
            self._best[place] = cost, last, before
        return self._best[place][0]

    def _last(self, done: int, last: int, before: Columns) -> tuple[float, int]:
        """Return the bytes if a step is the last of a set. Of ways that read as much, that with fewest bytes in memory counts."""
        read = self._uses.size(self._uses.uses[last].reads - before)
        return self.cost(done ^ 1 << last, before) + read, self._uses.size(before)

    def _ways(self, done: int, kept: Columns) -> Iterator[tuple[int, Columns]]:
        """Yield the steps that may be the last, each with the columns that may be in memory before it."""
        uses = self._uses
        for last in uses.last_of(done):
            use, active = uses.uses[last], uses.active(done ^ 1 << last)
            must = kept - use.reads - use.makes
            if must <= active and uses.needed(last, kept) <= self._capacity:
                others = sorted(active & use.reads)
                for before in (
                    must.union(some) for count in range(len(others) + 1) for some in combinations(others, count)
                ):
                    if uses.needed(last, kept | before) <= self._capacity:
                        yield last, before


def hold_by_next_use(uses: Uses, capacity: int) -> Holding | None:
    """Keep the columns that are read next, in the given order of the steps; None if some step does not fit."""
    return _greedy(uses, capacity, lambda name, place, _: _next_use(uses, name, place))


def hold_recent(uses: Uses, capacity: int) -> Holding | None:
    """Keep the columns that were read or made last (LRU), in the given order of the steps; None if some step does not fit."""
    return _greedy(uses, capacity, lambda name, place, last: -last[name])


def hold_nothing(uses: Uses) -> Holding:
    """Keep no column: every step reads what it needs from files."""
    return holding_of(uses, tuple(range(len(uses.uses))), [NOTHING] * len(uses.uses))


def _next_use(uses: Uses, name: str, place: int) -> int:
    later = (number for number in range(place + 1, len(uses.uses)) if name in uses.uses[number].reads)
    return next(later, len(uses.uses))


def _greedy(uses: Uses, capacity: int, rank: Callable[[str, int, dict[str, int]], int]) -> Holding | None:
    """Keep after each step the columns of least rank that fit there and at the next step."""
    kept: list[Columns] = []
    before, done, last = NOTHING, 0, dict[str, int]()
    for place, use in enumerate(uses.uses):
        if uses.needed(place, before) > capacity:
            return None
        done |= 1 << place
        last |= dict.fromkeys(use.reads | use.makes, place)
        after = NOTHING
        there = (before | use.reads | use.makes) & uses.active(done)
        for name in sorted(there, key=lambda name: (rank(name, place, last), name)):
            more = after | {name}
            fits_next = place + 1 == len(uses.uses) or uses.needed(place + 1, more) <= capacity
            if fits_next and uses.needed(place, before | more) <= capacity:
                after = more
        kept.append(after)
        before = after
    return holding_of(uses, tuple(range(len(uses.uses))), kept)


def holding_of(uses: Uses, order: Sequence[int], kept: Sequence[Columns]) -> Holding:
    """Return a holding with what it reads and stores.

    A column is stored once, when it first leaves memory before its last reader. One that was there before the first
    step has a file already.
    """
    reads: list[Columns] = []
    loads: list[Columns] = []
    stores: list[Columns] = []
    filed, made, before, done = set[str](), set[str](), NOTHING, 0
    for number, after in zip(order, kept, strict=True):
        use, done = uses.uses[number], done | 1 << number
        made |= use.makes
        reads.append(use.reads - before)
        loads.append(reads[-1] & after)
        left = ((before | use.makes) - after) & uses.active(done) & made
        stores.append(frozenset(left - filed))
        filed |= left
        before = after
    read = sum(uses.size(columns) for columns in reads)
    stored = sum(uses.size(columns) for columns in stores)
    return Holding(tuple(order), tuple(kept), tuple(reads), tuple(loads), tuple(stores), read, stored)


def literal_cost(uses: Uses, capacity: int) -> float:
    """Return the bytes that ROC's algorithm 1 finds as it is printed: those that are read if no column is ever kept.

    In the paper, the columns before a step are those after it without what the step makes. After the last step there
    are none, so there are none before it either, and so on to the first.
    """
    best: dict[tuple[int, Columns], float] = {}

    def cost(done: int, kept: Columns) -> float:
        if not done:
            return float(uses.size(kept))
        if (done, kept) not in best:
            found = float("inf")
            for last in uses.last_of(done):
                use = uses.uses[last]
                before = (kept - use.makes) & uses.active(done ^ 1 << last)
                if uses.size(kept | use.reads | use.makes) <= capacity:
                    found = min(found, cost(done ^ 1 << last, before) + uses.size(use.reads - before))
            best[done, kept] = found
        return best[done, kept]

    return cost(uses.every, NOTHING)
