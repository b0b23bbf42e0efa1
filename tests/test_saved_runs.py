"""What stays in a worker's memory: as much as can be spared of what backward would pay."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pytest

from lotan.saved_runs import SavedRuns
from lotan.spill_file import SpillFile
from lotan.stages import Saved, Terms
from messenger.jobs import ChunkKey


@dataclass(frozen=True)
class Run:
    key: ChunkKey
    bytes: int
    worth: float

    @property
    def seconds(self) -> float:
        """What it spares."""
        return self.bytes * self.worth


class Stowed(Saved):
    """Says where it is."""

    def __init__(self) -> None:
        self.place = "memory"

    def stow(self, file: SpillFile) -> bool:
        self.place = "file"
        return True

    def fetch(self, file: SpillFile) -> None:
        self.place = "memory again" if self.place == "file" else self.place

    def drop(self, file: SpillFile) -> None:
        self.place = "nowhere"


def drawn(seed: int, stages: int, chunks: int, sizes: tuple[int, ...]) -> list[Run]:
    """The forward runs of an epoch, a stage after the other; a stage's are alike."""
    draw = random.Random(seed)
    runs = []
    for stage in range(stages):
        size, worth = draw.choice(sizes), draw.random()
        keys = [ChunkKey("run", 1, str(stage), "forward", 0, chunk, 0, 1) for chunk in range(chunks)]
        runs += [Run(key, size, worth) for key in keys]
    return runs


def spared(runs: list[Run], budget: int) -> float:
    """Seconds, by what is in memory once all have run forward."""
    held = SavedRuns(budget)
    for run in runs:
        terms = Terms(spills=False, worth=run.worth)
        if held.takes(terms):
            held.put(run.key, Saved(), run.bytes, terms)
    kept = [run for run in runs if held.has(run.key)]
    assert sum(run.bytes for run in kept) <= budget
    return sum(run.seconds for run in kept)


def in_order(runs: list[Run], budget: int) -> float:
    """All that fits as it comes."""
    found = 0.0
    for run in runs:
        if run.bytes <= budget:
            budget -= run.bytes
            found += run.seconds
    return found


def least_recent_first(runs: list[Run], budget: int) -> float:
    held: list[Run] = []
    for run in runs:
        held.append(run)
        while sum(one.bytes for one in held) > budget:
            held.pop(0)
    return sum(run.seconds for run in held)


def brute_force(runs: list[Run], budget: int) -> float:
    picks = (pick for count in range(len(runs) + 1) for pick in combinations(runs, count))
    return max(sum(run.seconds for run in pick) for pick in picks if sum(run.bytes for run in pick) <= budget)


@pytest.mark.parametrize("seed", range(20))
def test_chunks_of_one_size_are_kept_as_brute_force_would(seed: int) -> None:
    runs = drawn(seed, stages=4, chunks=3, sizes=(7,))
    for budget in (0, 6, 7, 20, 50, 83, 84):
        assert spared(runs, budget) == pytest.approx(brute_force(runs, budget))


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_arrival_does_better_by_more_than_one_chunk(seed: int) -> None:
    runs = drawn(seed, stages=8, chunks=20, sizes=(3, 10, 40, 100))
    largest = max(run.seconds for run in runs)
    for budget in (500, 2000, 5000):
        others = in_order(runs, budget), least_recent_first(runs, budget)
        assert spared(runs, budget) >= max(others) - largest


def test_what_makes_room_goes_to_the_file_where_the_plan_says_so(tmp_path: Path) -> None:
    held = SavedRuns(10, SpillFile(str(tmp_path)))
    (cheap, again, dear) = (run.key for run in drawn(0, stages=3, chunks=1, sizes=(5,)))
    to_file, to_nowhere = Stowed(), Stowed()
    held.put(cheap, to_file, 5, Terms(spills=True, worth=1.0))
    held.put(again, to_nowhere, 5, Terms(spills=False, worth=2.0))
    assert held.takes(Terms(spills=False, worth=3.0))
    assert not held.takes(Terms(spills=False, worth=1.0))  # nothing in memory is worth less
    held.put(dear, Stowed(), 10, Terms(spills=False, worth=3.0))
    assert (to_file.place, to_nowhere.place) == ("file", "nowhere")
    assert held.has(cheap)
    assert not held.has(again)
    assert held.take(cheap) is to_file
    assert to_file.place == "memory again"


def test_what_is_too_large_for_all_memory_drives_nothing_out() -> None:
    held = SavedRuns(10)
    small, large = (run.key for run in drawn(0, stages=2, chunks=1, sizes=(5,)))
    held.put(small, Saved(), 5, Terms(spills=False, worth=1.0))
    held.put(large, Saved(), 11, Terms(spills=False, worth=2.0))
    assert held.has(small)
    assert not held.has(large)


def test_a_second_attempt_takes_the_place_of_the_first() -> None:
    held = SavedRuns(10)
    ((key),) = (run.key for run in drawn(0, stages=1, chunks=1, sizes=(5,)))
    for _ in range(3):
        held.put(key, Saved(), 6, Terms(spills=False, worth=1.0))
        assert held.has(key)
    assert held.take(key) is not None
    assert held.take(key) is None
