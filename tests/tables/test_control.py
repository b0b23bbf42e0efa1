"""Optimistic asynchrony control: whatever the order of reads and writes, the rows of a serial run, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from lotan.tables.control import Control, FinishedUpdates
from messenger.row_table import NEVER, RowTable

ROWS, BATCHES, OF_BATCH, WIDTH = 12, 30, 4, 2  # few rows, so that batches in flight often share some
STATE = slice(1, 2)  # a row is a value and the state of an optimizer for it, as of Adagrad


def step(batch: int, rows: np.ndarray) -> np.ndarray:
    """Return the rows after the step of a batch: each depends on all, and the order of steps matters."""
    value, state = rows[:, :1], rows[:, STATE]
    gradient = np.float32(np.sin(batch + 1)) * value.sum() + value
    state = state + gradient * gradient
    return np.concatenate([value - gradient / np.sqrt(state + np.float32(1e-3)), state], axis=1)


@dataclass
class InFlight:
    """A batch that has begun to read, or whose update is being written."""

    batch: int
    number: int
    left: list[int]  # positions of rows that are not read, or not written, so far
    rows: np.ndarray
    timestamps: np.ndarray = field(default_factory=lambda: np.full(OF_BATCH, NEVER, dtype=np.int64))
    timestamp: int = NEVER


@dataclass
class Replay:
    """The end of a simulation beside the serial run of its order of computation."""

    rows: np.ndarray
    serial: np.ndarray
    cached_most: int
    cached_at_end: int

    @property
    def is_equal(self) -> bool:
        return self.rows.tobytes() == self.serial.tobytes()


def simulate(
    seed: int, repairs: bool = True, batches: int = BATCHES, rows: int = ROWS, value_alone: bool = False
) -> Replay:
    """Run batches in which single reads and writes of rows, and computations, happen in a random order.

    Args:
        seed: of the batches and of the order.
        repairs: False for plain asynchrony.
        batches: their number.
        rows: of the table.
        value_alone: True to cache a value without the optimizer's state, as the source has it.
    """
    random = np.random.default_rng(seed)
    places = [np.sort(random.choice(rows, OF_BATCH, replace=False)) for _ in range(batches)]
    start = random.normal(size=(rows, WIDTH)).astype(np.float32) ** 2
    table, control, serial = RowTable(rows, WIDTH), Control(repairs), start.copy()
    table.fill(0, start)
    reading: list[InFlight] = []
    writing: list[InFlight] = []
    limit = int(random.integers(2, 9))  # batches in flight at one time
    begun = done = 0
    while done < batches:
        ready = [one for one in reading if not one.left]
        moves = ["begin"] * (begun < batches and len(reading) + len(writing) < limit)
        moves += ["read"] * any(one.left for one in reading) + ["compute"] * bool(ready) + ["write"] * bool(writing)
        move = moves[random.integers(len(moves))]
        if move == "begin":
            order = random.permutation(OF_BATCH).tolist()
            reading.append(InFlight(begun, control.begin(), order, np.zeros((OF_BATCH, WIDTH), dtype=np.float32)))
            begun += 1
        elif move == "read":
            one = [one for one in reading if one.left][0 if random.random() < 0.5 else -1]
            at = one.left.pop()
            found, stamp = table.read(places[one.batch][at : at + 1])
            one.rows[at], one.timestamps[at] = found[0], stamp[0]
        elif move == "compute":
            one = ready[random.integers(len(ready))]  # the order of computation is that of no other stage
            reading.remove(one)
            mine = places[one.batch]
            read = one.rows.copy()
            control.repair(one.number, mine, one.rows, one.timestamps)
            if value_alone:
                one.rows[:, STATE] = read[:, STATE]
            one.rows = step(one.batch, one.rows)
            one.timestamp = control.computed(one.number, mine, one.rows)
            one.left = random.permutation(OF_BATCH).tolist()
            serial[mine] = step(one.batch, serial[mine])
            writing.append(one)
        else:
            one = writing[random.integers(len(writing))]
            at = one.left.pop()
            table.update(places[one.batch][at : at + 1], one.rows[at : at + 1], one.timestamp)
            if not one.left:
                control.written(one.timestamp)
                writing.remove(one)
                done += 1
    return Replay(table.rows, serial, control.figures.cached_most, control.cached)


def test_500_interleavings_end_as_the_serial_run() -> None:
    assert all(simulate(seed).is_equal for seed in range(500))


def test_plain_asynchrony_fails_nearly_all() -> None:
    assert sum(simulate(seed, repairs=False).is_equal for seed in range(100)) <= 2


def test_a_value_cached_without_the_state_of_its_optimizer_is_not_enough() -> None:
    """The source caches values alone."""
    assert sum(simulate(seed, value_alone=True).is_equal for seed in range(50)) <= 2


def test_eviction_bounds_the_cache() -> None:
    found = simulate(0, batches=300, rows=400)
    assert found.is_equal
    assert found.cached_most < 150  # of 1,200 rows that batches have written
    assert found.cached_at_end < 50


def test_updates_are_finished_in_any_order() -> None:
    finished, seen = FinishedUpdates(), []
    for timestamp in (0, 1, 2, 5, 6, 3, 4):
        finished.add(timestamp)
        seen.append(finished.all_up_to)
    assert seen == [0, 1, 2, 2, 2, 3, 6]


def places(letters: str) -> np.ndarray:
    return np.array(["abcdefgh".index(letter) for letter in letters])


@pytest.mark.parametrize(("repairs", "updates_of_a"), [(True, 2), (False, 1)], ids=["optimistic", "plain"])
@pytest.mark.parametrize("second_first", [False, True], ids=["in order", "the second is written first"])
def test_the_example_of_the_source(repairs: bool, updates_of_a: int, second_first: bool) -> None:
    """Batches of {a, c, f} and {a, b, h} read together. Plain asynchrony loses an update of a."""
    table, control = RowTable(8, 1), Control(repairs)
    batches = [places("acf"), places("abh")]
    numbers = [control.begin() for _ in batches]
    read = [table.read(each) for each in batches]
    sent = []
    for number, each, (rows, stamps) in zip(numbers, batches, read, strict=True):
        control.repair(number, each, rows, stamps)
        sent.append((each, rows + 1, control.computed(number, each, rows + 1)))
    for each, rows, timestamp in reversed(sent) if second_first else sent:
        table.update(each, rows, timestamp)
        control.written(timestamp)
    assert table.rows[:, 0].tolist() == [updates_of_a, 1, 1, 0, 0, 1, 0, 1]
    assert table.timestamps.tolist() == [1, 1, 0, -1, -1, 0, -1, 1]
    assert control.figures.repaired == (1 if repairs else 0)


def test_an_older_update_that_comes_late_changes_nothing() -> None:
    """New rows are sent, and not gradients to add, of which every one would be needed: the source has both forms."""
    table = RowTable(1, 1)
    for timestamp, row in ((1, 2.0), (0, 1.0), (1, 3.0)):
        table.update(np.array([0]), np.full((1, 1), row, dtype=np.float32), timestamp)
    assert table.rows.item() == 2


def test_a_batch_that_fails_holds_up_no_eviction() -> None:
    control, row = Control(), np.zeros((1, 1), dtype=np.float32)
    lost = control.begin()
    for _ in range(5):
        number = control.begin()
        control.repair(number, places("a"), row.copy(), np.array([NEVER]))
        control.written(control.computed(number, places("a"), row))
    assert control.cached == 5  # the lost batch may still need each
    control.abandon(lost)
    number = control.begin()
    control.repair(number, places("a"), row.copy(), np.array([4]))
    assert control.cached == 0
