"""Columns in memory and orders of steps, against brute force over all orders and all sets of columns."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations, permutations

import pytest

from planner.holding import hold_columns as module
from planner.holding.hold_columns import (
    hold_by_next_use,
    hold_columns,
    hold_nothing,
    hold_recent,
    least_moved,
    literal_cost,
)
from planner.holding.memory_use import MemoryUse, Uses
from planner.holding.order_steps import order_steps, peak_of

INFINITE = float("inf")


def drawn(seed: int, steps: int, fixed: bool, streamed: bool) -> tuple[Uses, int]:
    """Random steps on some inputs and on what others make, and a capacity between too little and enough."""
    of = random.Random(seed)
    names, uses = [f"input{number}" for number in range(of.randint(1, 3))], []
    for number in range(steps):
        reads = frozenset(of.sample(names, min(len(names), of.randint(1, 3))))
        makes = frozenset([f"c{number}"] if of.random() < 0.8 else [])
        whole = (reads | makes) if not streamed else frozenset(name for name in reads if of.random() < 0.3)
        uses.append(MemoryUse(reads, makes, whole, of.randint(0, 3)))
        names += makes
    sizes = {name: of.randint(1, 9) for name in names}
    found = Uses(uses, sizes, fixed)
    least = max(found.needed(number, ()) for number in range(steps))
    return found, least + of.randint(-1, 12)


def orders(uses: Uses, fixed: bool) -> list[tuple[int, ...]]:
    made = {name: number for number, use in enumerate(uses.uses) for name in use.makes}
    valid = []
    for order in permutations(range(len(uses.uses))):
        place = {number: at for at, number in enumerate(order)}
        if all(
            place[made[name]] < place[number]
            for number, use in enumerate(uses.uses)
            for name in use.reads
            if name in made
        ):
            valid.append(order)
    return [tuple(range(len(uses.uses)))] if fixed else valid


def brute_force(uses: Uses, capacity: int, order: tuple[int, ...]) -> float:
    """The fewest bytes that are read if the steps run in an order: every set of columns is tried after every step."""

    def best(at: int, before: frozenset[str]) -> float:
        if at == len(order):
            return 0.0
        use, found = uses.uses[order[at]], INFINITE
        later = {name for number in order[at + 1 :] for name in uses.uses[number].reads}
        there = sorted((before | use.reads | use.makes) & later)
        for count in range(len(there) + 1):
            for some in combinations(there, count):
                held = before | set(some) | use.whole
                if sum(uses.sizes[name] for name in held) + use.in_hand <= capacity:
                    read = sum(uses.sizes[name] for name in use.reads - before)
                    found = min(found, read + best(at + 1, frozenset(some)))
        return found

    return best(0, frozenset())


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "in parts"])
@pytest.mark.parametrize("fixed", [False, True], ids=["any order", "given order"])
def test_no_way_to_hold_columns_reads_less(fixed: bool, streamed: bool) -> None:
    fewer = 0
    for seed in range(60 if fixed else 20):
        uses, capacity = drawn(seed, 4 + seed % 2 + fixed, fixed, streamed)
        found = hold_columns(uses, capacity)
        expected = min(brute_force(uses, capacity, order) for order in orders(uses, fixed))
        assert (INFINITE if found is None else found.read_bytes) == expected
        recent = hold_recent(uses, capacity)
        if recent is not None:
            assert found is not None
            assert found.read_bytes <= recent.read_bytes <= hold_nothing(uses).read_bytes
            fewer += found.read_bytes < recent.read_bytes
    assert fewer > 0


@pytest.mark.parametrize("hold", [hold_columns, hold_by_next_use, hold_recent, least_moved])
def test_what_is_held_fits_and_all_that_is_read_was_stored(hold) -> None:
    for seed in range(60):
        uses, capacity = drawn(seed, 12, True, streamed=seed % 2 == 0)
        found = hold(uses, capacity)
        if found is None:
            continue
        filed = {name for name in uses.sizes if name.startswith("input")}
        before: frozenset[str] = frozenset()
        for number, kept, reads, loads, stores in zip(
            found.order, found.kept, found.reads, found.loads, found.stores, strict=True
        ):
            assert uses.needed(number, before | kept) <= capacity
            assert kept <= before | uses.uses[number].reads | uses.uses[number].makes
            assert reads == uses.uses[number].reads - before
            assert reads <= filed
            assert loads == reads & kept
            filed |= stores
            before = kept
        assert found.moved_bytes == found.read_bytes + sum(map(uses.size, found.stores))
        least = least_moved(uses, capacity)
        assert least is not None
        assert least.moved_bytes <= found.moved_bytes


def test_more_memory_never_reads_more_and_enough_reads_each_input_once() -> None:
    uses, capacity = drawn(5, 8, True, streamed=False)
    found = [hold_columns(uses, capacity + more) for more in range(0, 60, 3)]
    read = [INFINITE if one is None else one.read_bytes for one in found]
    assert read == sorted(read, reverse=True)
    inputs = {name for use in uses.uses for name in use.reads if name.startswith("input")}
    assert read[-1] == uses.size(inputs)


def test_the_recurrence_as_printed_never_keeps_a_column() -> None:
    differ = 0
    for seed in range(40):
        uses, capacity = drawn(seed, 5, False, streamed=False)
        found = hold_columns(uses, capacity)
        if found is not None:
            assert literal_cost(uses, capacity) == hold_nothing(uses).read_bytes
            differ += found.read_bytes < literal_cost(uses, capacity)
    assert differ > 20


def test_beyond_the_bound_columns_are_kept_by_their_next_use_and_no_worse_than_recent_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    best, near, some = 0, 0, 0
    for seed in range(40):
        uses, capacity = drawn(seed, 10, True, streamed=seed % 2 == 0)
        exact = hold_columns(uses, capacity)
        with monkeypatch.context() as patch:
            patch.setattr(module, "MOST_PLACES", 3)
            greedy = hold_columns(uses, capacity)
        assert (exact is None) == (greedy is None)
        if greedy is not None:
            recent = hold_recent(uses, capacity)
            assert recent is None or greedy.read_bytes <= recent.read_bytes
            assert exact.read_bytes <= greedy.read_bytes
            best, near, some = best + exact.read_bytes, near + greedy.read_bytes, some + 1
    assert some > 20
    assert best < near < 1.2 * best


def toy_gin() -> Uses:
    """Table 3 of the paper: gather, linear and ReLU, linear, gradient of the loss, and the three back."""
    steps = ["g h0>a", "a w1>b", "b w2>h1", "h1>dh1", "dh1 b w2>db", "db a w1>da", "da g>dh0"]
    pairs = [[side.split() for side in step.split(">")] for step in steps]
    names = {name for reads, makes in pairs for name in (*reads, *makes)}
    return Uses([MemoryUse.of(*pair) for pair in pairs], dict.fromkeys(names, 1), fixed=False)


def test_active_columns_are_those_of_the_papers_table() -> None:
    uses = toy_gin()
    states = uses.states(100)
    assert states == [(1 << count) - 1 for count in range(8)]
    rows = [" ".join(sorted(uses.active(done))) for done in states[1:]]
    assert rows == ["a g", "a b g w1", "a b g h1 w1 w2", "a b dh1 g w1 w2", "a db g w1", "da g", ""]


@pytest.mark.parametrize("seed", range(40))
def test_no_valid_order_has_a_lower_peak(seed: int) -> None:
    uses, _ = drawn(seed, 5, False, streamed=False)
    found = order_steps(uses)
    valid = orders(uses, fixed=False)
    assert found in valid
    assert peak_of(uses, found) == min(peak_of(uses, order) for order in valid)


def test_steps_whose_results_are_summed_stay_in_their_order() -> None:
    a, b, c, last = MemoryUse.of([], "a"), MemoryUse.of([], "b"), MemoryUse.of("a", "c"), MemoryUse.of("bc", [])
    sizes, summed = {"a": 4, "b": 4, "c": 1}, frozenset(["weight"])
    assert order_steps(Uses([a, b, c, last], sizes, fixed=False)) == (0, 2, 1, 3)
    tied = [a, replace(b, keyed=summed), replace(c, keyed=summed), last]
    assert order_steps(Uses(tied, sizes, fixed=False)) == (0, 1, 2, 3)
