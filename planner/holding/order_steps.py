"""Choose the order of a pass's steps in which the columns that exist together take the fewest bytes."""

from __future__ import annotations

from planner.holding.memory_use import Uses

MOST_STATES = 1 << 14
"""The most sets of steps that are looked at. A pass whose steps have more orders than that stays in the order that it has."""


def order_steps(uses: Uses) -> tuple[int, ...]:
    """Return the numbers of the steps in the order of least peak, which is the given one if none has a lower peak.

    A column exists from the step that makes it, or first reads it, to the last step that reads it. The peak of a set of
    steps is that of the best order of them: the last step is tried in each way.

    >>> from planner.holding.memory_use import MemoryUse
    >>> steps = [MemoryUse.of([], "a"), MemoryUse.of([], "b"), MemoryUse.of("a", "c"), MemoryUse.of("bc", [])]
    >>> order_steps(Uses(steps, {"a": 4, "b": 4, "c": 1}, fixed=False))
    (0, 2, 1, 3)
    """
    states = uses.states(MOST_STATES)
    given = tuple(range(len(uses.uses)))
    if states is None:
        return given
    best: dict[int, tuple[int, int]] = {0: (0, -1)}  # the least peak of a set of steps, and its last step
    for done in states[1:]:
        best[done] = min(
            (max(best[done ^ 1 << last][0], _alive(uses, done, last)), -last) for last in uses.last_of(done)
        )
    order, done = [], uses.every
    while done:
        order.append(-best[done][1])
        done ^= 1 << order[-1]
    found = tuple(order[::-1])
    return given if peak_of(uses, given) <= best[uses.every][0] else found


def peak_of(uses: Uses, order: tuple[int, ...]) -> int:
    """Return the most bytes of columns that exist together if the steps run in an order."""
    done, peak = 0, 0
    for number in order:
        done |= 1 << number
        peak = max(peak, _alive(uses, done, number))
    return peak


def _alive(uses: Uses, done: int, last: int) -> int:
    """Return the bytes of the columns that exist while the last step of a set runs."""
    use = uses.uses[last]
    return uses.size(uses.active(done ^ 1 << last) | use.reads | use.makes) + use.in_hand
