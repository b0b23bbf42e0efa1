"""Rates that are fitted are those that epochs were made of."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from lotan.exploring.calibration import (
    PROBES,
    Case,
    Observation,
    bounded_least_squares,
    epochs_of,
    fit,
    observation,
    opened,
)
from lotan.planning.prepare import prepare
from lotan.settings.config import TrainerConfig
from planner.rates import DEFAULT_RATES, Rates
from planner.work import Work


def test_planted_rates_are_found():
    random = np.random.default_rng(0)
    true = Rates(passes=2e-3, edges=5e-9, numbers=1e-10)
    works = [
        Work(passes=1, edges=float(10 ** random.uniform(4, 7)), numbers=float(10 ** random.uniform(5, 8)))
        for _ in range(20)
    ]
    seen = [Observation(work, 2e-3 + 5e-9 * work.edges + 1e-10 * work.numbers) for work in works]
    found = fit(seen, Rates(passes=1e-2, edges=1e-9, numbers=1e-9), pull=1e-9)
    for name in ("passes", "edges", "numbers"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=0.02)
    assert found.draws == 0


def test_what_no_epoch_has_stays_as_given():
    given = DEFAULT_RATES["local"]
    found = fit([Observation(Work(passes=1), 2 * given.passes)], given, pull=1e-3)
    assert found.passes == pytest.approx(2 * given.passes, rel=0.01)
    assert replace(found, passes=given.passes) == given


def test_bounded_least_squares_is_least():
    random = np.random.default_rng(1)
    rows, wanted = random.standard_normal((30, 4)), random.standard_normal(30)
    found = bounded_least_squares(rows, wanted, 0.0)
    assert (found >= 0).all()
    gradient = rows.T @ (rows @ found - wanted)  # none along what is above zero, and uphill along the rest
    assert np.abs(gradient[found > 0]).max(initial=0) < 1e-6
    assert gradient[found == 0].min(initial=0) > -1e-6


def test_an_epoch_is_observed_as_the_trainer_runs_it():
    case, config = Case(200, 800, 8, "gcn", 4, 2), TrainerConfig(engine="local")
    with opened("local", config) as engine, ExitStack() as stack:
        model = case.model()
        job = prepare(model, case.graph(), config, stack)
        before = {name: tensor.clone() for name, tensor in model.named_parameters()}
        seconds = epochs_of(engine, job, model, 2)
        seen = observation(job, seconds[-1])
    assert len(seconds) == 2
    assert all(math.isfinite(value) and value > 0 for value in seconds)
    assert any((tensor != before[name]).any() for name, tensor in model.named_parameters())
    assert seen.work.passes == 1
    assert seen.work.edges > 0


def test_probes_have_what_each_engine_is_to_be_measured_by():
    assert set(PROBES) == set(DEFAULT_RATES)
    assert all(case.edges <= 1_000_000 for cases in PROBES.values() for case in cases)
