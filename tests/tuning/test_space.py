"""Combinations and draws: all of them, each once, complete, the same for the same seed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lotan.errors import ConfigurationError
from lotan.tuning.axes import Range
from lotan.tuning.grid_file import read_grid
from tests.tuning.graphs import MIXED


def test_combinations_are_all_there_are_and_each_once():
    space = read_grid({"model": {"hidden": [4, 8, 4], "dropout": [0.0, 0.5]}, "optimizer": {"lr": [0.1, 0.01]}})
    trials, notes = space.combinations()
    found = [(one.values["model.hidden"], one.values["model.dropout"], one.values["optimizer.lr"]) for one in trials]
    assert found == list(itertools.product((4, 8), (0.0, 0.5), (0.1, 0.01)))
    assert space.notes == ("model.hidden has 3 values, of which 2 differ",)
    assert notes == ()


def test_values_may_be_numpys_or_a_range():
    given = {"seed": range(2), "model": {"hidden": np.array([4, 8])}, "optimizer": {"lr": [np.float64(0.5), 0.5]}}
    space = read_grid(given)
    trials, _ = space.combinations()
    found = [(one.values["seed"], one.values["model.hidden"], one.values["optimizer.lr"]) for one in trials]
    assert found == [(seed, hidden, 0.5) for hidden in (4, 8) for seed in (0, 1)] or found == list(
        itertools.product((0, 1), (4, 8), (0.5,))
    )
    assert {type(value) for one in found for value in one} == {int, float}
    assert space.notes == ("optimizer.lr has 2 values, of which 1 differ",)


def test_settings_that_play_no_part_make_no_other_model():
    trials, notes = read_grid(MIXED).combinations()
    gcn = [one.values for one in trials if one.values["model.kind"] == "gcn"]
    gat = [one.values for one in trials if one.values["model.kind"] == "gat"]
    assert (len(gcn), len(gat)) == (2, 4)
    assert all("model.heads" not in one for one in gcn)
    assert all(("optimizer.momentum" in one) == (one["optimizer.name"] == "sgd") for one in gcn + gat)
    assert notes == ("2 of 8 combinations are the same model as another, and not trained again",)


def test_defaults_are_those_of_lotan_train():
    (one,), _ = read_grid({"seed": [3]}).combinations()
    assert one.values == {
        "model.kind": "gcn",
        "model.hidden": 64,
        "model.layers": 2,
        "model.dropout": 0.5,
        "optimizer.name": "adam",
        "optimizer.lr": 0.01,
        "optimizer.weight_decay": 5e-4,
        "seed": 3,
        "epochs": 200,
    }


def test_options_fill_in_what_the_grid_leaves_open_and_contradict_nothing():
    space = read_grid({"seed": [3], "epochs": [5, 6]})
    trials, _ = space.with_defaults(seed=7, epochs=None, patience=4).combinations()
    assert [(one.values["seed"], one.values["epochs"], one.values["patience"]) for one in trials] == [
        (3, 5, 4),
        (3, 6, 4),
    ]
    with pytest.raises(ConfigurationError, match="grid sets epochs, and so does an option"):
        space.with_defaults(epochs=9)


def test_ranges_are_drawn_from_and_no_grid():
    space = read_grid(
        {"model": {"hidden": {"low": 2, "high": 4}}, "optimizer": {"lr": {"low": 1e-4, "high": 1, "log": True}}}
    )
    with pytest.raises(ConfigurationError, match="hidden is a range, and a grid wants a list"):
        space.combinations()
    trials, notes = space.drawn(400, seed=1)
    rates = [one.values["optimizer.lr"] for one in trials]
    assert notes == ()
    assert {one.values["model.hidden"] for one in trials} == {2, 3, 4}
    assert all(1e-4 <= rate <= 1 for rate in rates)
    below = sum(rate < 1e-2 for rate in rates) / len(rates)  # the middle, on a scale of logarithms
    assert math.isclose(below, 0.5, abs_tol=0.1)
    assert space.drawn(400, seed=1) == (trials, notes)
    assert space.drawn(400, seed=2)[0] != trials


def test_a_logarithm_of_whole_numbers_stays_within_its_ends():
    range_ = Range(2, 64, log=True, whole=True)
    found = {range_.at(step / 997) for step in range(997)}
    assert (min(found), max(found)) == (2, 64)
    assert all(isinstance(one, int) for one in found)


def test_draws_differ_and_end_where_there_are_no_more():
    space = read_grid({"model": {"hidden": [4, 8]}, "seed": [0, 1, 2]})
    trials, notes = space.drawn(20, seed=0)
    assert len(set(trials)) == len(trials) == 6
    assert notes == ("of 20 trials that were asked for, the grid has no more than 6 that differ",)


def test_far_too_many_combinations_are_a_slip():
    many = list(range(1, 400))
    with pytest.raises(ConfigurationError, match="159,201 combinations"):
        read_grid({"seed": many, "model": {"hidden": many}}).combinations()
