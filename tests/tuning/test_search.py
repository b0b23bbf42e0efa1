"""Searches as they are driven: rounds out, scores in; nothing is trained here."""

from __future__ import annotations

import sys

import pytest

from lotan.errors import ConfigurationError
from lotan.tuning.grid_file import read_grid
from lotan.tuning.optuna_search import optuna_search, require_optuna
from lotan.tuning.search import Round, Search, all_at_once, halving, rungs_of

SPACE = read_grid({"seed": list(range(30)), "model": {"hidden": [4]}})
TRIALS = SPACE.combinations()[0]


def driven(search: Search, score) -> list[Round]:
    """All rounds of a search whose trial `n` has the score `score(n, epoch)`."""
    rounds, count = [next(search)], 0
    while True:
        count += len(rounds[-1].new)
        try:
            rounds.append(search.send({number: score(number, rounds[-1].upto) for number in range(count)}))
        except StopIteration:
            return rounds


def test_a_grid_is_one_round():
    assert driven(all_at_once(TRIALS), lambda *_: 0.0) == [Round(new=TRIALS)]


def test_halving_keeps_the_best_third_at_each_rung():
    order = [(7 * number) % 27 for number in range(27)]  # the score of each
    rounds = driven(halving(TRIALS[:27], [8, 23, 67]), lambda number, _: order[number])
    ranked = sorted(range(27), key=lambda number: -order[number])
    assert [one.upto for one in rounds] == [8, 23, 67, None]
    assert [list(one.only) for one in rounds] == [sorted(ranked[:count]) for count in (27, 9, 3, 1)]
    assert sorted(rounds[1].stop) == sorted(ranked[9:])
    assert sorted(rounds[2].stop) == sorted(ranked[3:9])
    assert rounds[1].stop[ranked[-1]] == "after epoch 8 not among the best 9 of 27"
    assert [len(one.new) for one in rounds] == [27, 0, 0, 0]


def test_halving_takes_the_first_of_equals_and_no_diverged_one_before_another():
    scores = {0: float("-inf"), 1: 0.5, 2: 0.5, 3: 0.5}
    rounds = driven(halving(TRIALS[:4], [5], eta=2), lambda number, _: scores[number])
    assert list(rounds[1].only) == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((27, 200, 3, 1), [8, 23, 67]),
        ((27, 200, 3, 10), [11, 31, 71]),
        ((16, 12, 3, 1), [5]),
        ((1, 200, 3, 1), []),
        ((100, 3, 3, 1), []),
        ((8, 64, 2, 1), [8, 16, 32]),
    ],
)
def test_rungs(arguments, expected):
    assert rungs_of(*arguments) == expected


def test_optuna_asks_for_some_at_a_time_and_repeats_itself_for_the_same_scores():
    space = read_grid({"optimizer": {"lr": {"low": 1e-4, "high": 1.0, "log": True}}, "model": {"hidden": [4, 8]}})

    def rounds() -> list[Round]:
        return driven(optuna_search(space, 20, 6, seed=3), lambda number, _: -abs(number - 5.0))

    first = rounds()
    assert [len(one.new) for one in first] == [6, 6, 6, 2]
    assert first == rounds()
    assert list(first[1].only) == [6, 7, 8, 9, 10, 11]


def test_optuna_learns_from_the_scores():
    space = read_grid({"optimizer": {"lr": {"low": 1e-4, "high": 1.0, "log": True}}, "seed": 0})
    found = []

    def score(number: int, _: int | None) -> float:
        return -abs(found[number] - 0.5)

    search = optuna_search(space, 60, 5, seed=0)
    one = next(search)
    while True:
        found += [settings.values["optimizer.lr"] for settings in one.new]
        try:
            one = search.send({number: score(number, None) for number in range(len(found))})
        except StopIteration:
            break
    early, late = found[:10], found[-20:]
    assert sum(0.25 < rate < 0.9 for rate in late) / 20 > 2 * sum(0.25 < rate < 0.9 for rate in early) / 10


def test_what_optuna_suggests_again_is_not_trained_again():
    space = read_grid({"seed": [0, 1, 2]})
    rounds = driven(optuna_search(space, 12, 4, seed=0), lambda number, _: float(number))
    trained = [settings for one in rounds for settings in one.new]
    assert len(trained) == len(set(trained)) <= 3


def test_without_optuna_it_is_said_how_to_come_by_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'lotan\[optuna\]'"):
        require_optuna()
