"""What stays in a worker's memory: what an epoch pays for the rest, by the worker's own `SavedRuns`, is the least there is.

Small epochs are compared with every way to place their chunks, large ones with policies that know less. Where chunks are of
several sizes, the last one that does not fit whole may cost what it is worth: see `one_chunk`.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lotan.stages.chunk import Saved, Terms
from lotan.stages.spill_file import SpillFile
from lotan.worker.saved_runs import SavedRuns
from messenger.jobs import ChunkKey
from planner import Options
from planner.keeping import kept_bytes, seconds_again, spill_seconds
from planner.kernels import run_by_autograd
from planner.rules.keep_or_recompute import choose_overflow
from planner.spec import Spec
from tests.planner.engines import ON_BLOCKS
from tests.planner.specs import STATISTICS, attention, gcn, jumping, planned

pytestmark = pytest.mark.thorough


@dataclass(frozen=True)
class Run:
    """A chunk's forward run, and what its backward pays."""

    key: ChunkKey
    bytes: int
    again: float  # seconds, where nothing was kept of it
    file: float | None  # seconds, where that lies in a file; None: no file takes it

    @property
    def terms(self) -> Terms:
        """By the planner."""
        overflow, seconds = choose_overflow(self.again, self.file)
        return Terms(overflow == "file", seconds / self.bytes)

    @property
    def places(self) -> dict[str, float]:
        """Where it may be at the turn, and what backward then pays."""
        places = {"memory": 0.0, "nowhere": self.again}
        return places if self.file is None else places | {"file": self.file}

    @property
    def elsewhere(self) -> float:
        """The least that it costs outside of memory."""
        return min(seconds for place, seconds in self.places.items() if place != "memory")


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


def runs_of(stage: int, count: int, size: int, again: float, file: float | None) -> list[Run]:
    """A stage's, which are alike."""
    keys = (ChunkKey("run", 1, str(stage), "forward", 0, chunk, 0, 1) for chunk in range(count))
    return [Run(key, size, again, file) for key in keys]


SECONDS = st.floats(0.1, 10)


@st.composite
def stages(draw: st.DrawFn, size: st.SearchStrategy[int]) -> list[list[Run]]:
    """Of an epoch, in the order in which they run forward: together at most seven chunks."""
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4).filter(lambda counts: sum(counts) <= 7))
    return [
        runs_of(number, count, draw(size), draw(SECONDS), draw(st.none() | SECONDS))
        for number, count in enumerate(counts)
    ]


def chunks(epoch: Sequence[Sequence[Run]]) -> list[Run]:
    return [run for stage in epoch for run in stage]


def paid(runs: Sequence[Run], budget: int) -> float:
    """Seconds of an epoch beyond one that keeps all: a worker's memory, filled forward and emptied backward."""
    held, saved = SavedRuns(budget, SpillFile()), {run.key: Stowed() for run in runs}
    for run in runs:
        if held.takes(run.terms):
            held.put(run.key, saved[run.key], run.bytes, run.terms)
    at_turn = [saved[run.key].place if held.has(run.key) else "nowhere" for run in runs]
    assert sum(run.bytes for run, place in zip(runs, at_turn, strict=True) if place == "memory") <= budget
    for run, place in reversed(list(zip(runs, at_turn, strict=True))):
        assert held.take(run.key) is (None if place == "nowhere" else saved[run.key])
    return sum(run.places[place] for run, place in zip(runs, at_turn, strict=True))


def brute_force(runs: Sequence[Run], budget: int) -> float:
    """The least, of every place for every chunk."""
    least = float("inf")
    for places in product(*(run.places for run in runs)):
        if sum(run.bytes for run, place in zip(runs, places, strict=True) if place == "memory") <= budget:
            least = min(least, sum(run.places[place] for run, place in zip(runs, places, strict=True)))
    return least


def one_chunk(runs: Sequence[Run], budget: int) -> float:
    """What a policy that drops whole chunks as they come may pay more than the least: the largest, at the border's price.

    A run leaves only for one that is worth more a byte, or finds nothing in memory that is worth less. So of what is worth at
    least w, memory holds all, or is full of it but for less than the largest chunk, at every w: from what would fill it to
    the last byte, that many bytes are missing at the most, each worth no more than what no longer fits.
    """
    largest = max(run.bytes for run in runs)
    worths = {run.terms.worth for run in runs}
    short = [w for w in worths if sum(run.bytes for run in runs if run.terms.worth >= w) > budget - largest]
    return largest * max(short, default=0.0)


def without(kept: Collection[Run], runs: Sequence[Run]) -> float:
    """What is paid for all others."""
    return sum(run.elsewhere for run in runs if run not in kept)


def in_order(runs: Sequence[Run], budget: int) -> float:
    """Keeps all that fits as it comes."""
    kept = set()
    for run in runs:
        if run.bytes <= budget:
            budget -= run.bytes
            kept.add(run)
    return without(kept, runs)


def least_recent_first(runs: Sequence[Run], budget: int) -> float:
    """Keeps the last ones, which backward reads first."""
    kept: list[Run] = []
    for run in runs:
        if run.bytes <= budget:
            kept.append(run)
        while sum(one.bytes for one in kept) > budget:
            kept.pop(0)
    return without(kept, runs)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(stages(size=st.just(7)), st.integers(0, 50))
def test_chunks_of_one_size_cost_what_brute_force_finds(epoch: list[list[Run]], budget: int) -> None:
    runs = chunks(epoch)
    assert paid(runs, budget) == pytest.approx(brute_force(runs, budget))


@settings(deadline=None, derandomize=True, max_examples=200)
@given(stages(size=st.integers(1, 20)), st.data())
def test_where_chunks_fill_memory_to_the_last_byte_it_is_the_least_whatever_their_sizes(
    epoch: list[list[Run]], data: st.DataObject
) -> None:
    runs = chunks(epoch)
    last = data.draw(st.sampled_from(epoch))
    alike = [run for run in runs if run.terms.worth == last[0].terms.worth]
    count = len(alike) if {run.bytes for run in alike} != {last[0].bytes} else data.draw(st.integers(0, len(alike)))
    dearer = [run for run in runs if run.terms.worth > last[0].terms.worth]
    budget = sum(run.bytes for run in (*dearer, *alike[:count]))
    assert paid(runs, budget) == pytest.approx(brute_force(runs, budget))


@settings(deadline=None, derandomize=True, max_examples=300)
@given(stages(size=st.integers(1, 20)), st.data())
def test_else_one_chunk_is_all_that_it_may_cost_more(epoch: list[list[Run]], data: st.DataObject) -> None:
    runs = chunks(epoch)
    budget = data.draw(st.integers(0, sum(run.bytes for run in runs)))
    least = brute_force(runs, budget)
    assert least - 1e-9 <= paid(runs, budget) <= least + one_chunk(runs, budget) + 1e-9


@pytest.mark.parametrize("model", [gcn(layers=4), attention(dropout=True), jumping()], ids=["gcn", "gat", "jumping"])
def test_stages_of_real_plans_cost_what_brute_force_finds(model: Spec) -> None:
    check_stages(model)


def check_stages(model: Spec) -> None:
    """Of a plan for workers."""
    plan = planned(model, options=Options(pricing=ON_BLOCKS)).plan
    found = []
    for number, stage in enumerate(one for one in plan.stages if one.worth):
        size, rows = int(kept_bytes(stage, STATISTICS)), 10
        file = None if run_by_autograd(stage) else rows * spill_seconds(size)
        found.append(runs_of(number, 2, rows * size, rows * seconds_again(stage, STATISTICS), file))
        assert found[-1][0].terms == Terms(stage.overflow == "file", pytest.approx(stage.worth, rel=0.01))
    runs = chunks(found)
    for budget in range(0, sum(run.bytes for run in runs) + 1, min(run.bytes for run in runs) // 2):
        least = brute_force(runs, budget)
        assert least <= paid(runs, budget) * (1 + 1e-9) <= least + one_chunk(runs, budget) + 1e-12


def drawn(seed: int, sizes: tuple[int, ...]) -> list[Run]:
    """Eight stages of twenty chunks."""
    draw = random.Random(seed)
    each = ((draw.choice(sizes), draw.uniform(0.1, 10), draw.choice([None, draw.uniform(0.1, 10)])) for _ in range(8))
    return [run for number, (size, again, file) in enumerate(each) for run in runs_of(number, 20, size, again, file)]


@pytest.mark.parametrize("seed", range(20))
def test_chunks_of_one_size_are_never_better_kept_in_order_or_by_last_use(seed: int) -> None:
    runs = drawn(seed, sizes=(10,))
    for budget in range(0, 1700, 95):
        others = in_order(runs, budget), least_recent_first(runs, budget)
        assert paid(runs, budget) <= min(others) + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_chunks_of_any_size_are_not_either_by_more_than_one_of_them(seed: int) -> None:
    runs = drawn(seed, sizes=(3, 10, 40, 100))
    for budget in (100, 500, 2000, 5000):
        others = in_order(runs, budget), least_recent_first(runs, budget)
        assert paid(runs, budget) <= min(others) + one_chunk(runs, budget) + 1e-9


def test_no_order_of_arrival_is_far_from_the_best() -> None:
    """Kept in order, dear chunks that come last are paid for; by last use, those that come first."""
    cheap, dear = runs_of(0, 10, 10, again=1.0, file=None), runs_of(1, 10, 10, again=5.0, file=None)
    assert [paid(runs, 100) for runs in ([*cheap, *dear], [*dear, *cheap])] == [10, 10]
    assert in_order([*cheap, *dear], 100) == least_recent_first([*dear, *cheap], 100) == 50


def keys(count: int) -> list[ChunkKey]:
    return [run.key for run in runs_of(0, count, 1, again=1.0, file=None)]


def test_what_makes_room_goes_to_the_file_where_the_plan_says_so(tmp_path: Path) -> None:
    held = SavedRuns(10, SpillFile(str(tmp_path)))
    cheap, again, dear = keys(3)
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
    small, large = keys(2)
    held.put(small, Saved(), 5, Terms(spills=False, worth=1.0))
    held.put(large, Saved(), 11, Terms(spills=False, worth=2.0))
    assert held.has(small)
    assert not held.has(large)


def test_a_second_attempt_takes_the_place_of_the_first() -> None:
    held = SavedRuns(10)
    (key,) = keys(1)
    for _ in range(3):
        held.put(key, Saved(), 6, Terms(spills=False, worth=1.0))
        assert held.has(key)
    assert held.take(key) is not None
    assert held.take(key) is None
