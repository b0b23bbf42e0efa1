"""Which of several ways to run a plan is taken: by cost, by what memory has room for, and never for a little."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import Options, Planned
from planner.choices.choose_physical import Candidate, choose_physical
from planner.degrees import Degrees
from planner.footprint import footprint
from planner.rules.hold_sparse import HOISTED
from planner.statistics import Profile, Statistics
from tests.planner.engines import LOCAL, able
from tests.planner.specs import gcn, planned

EVEN = Degrees.even(20_000, 200_000)
WIDE = Statistics(20_000, 200_000, 2_000, profile=Profile(EVEN, EVEN, density=0.01))
SPARSE = Options(pricing=able("sparse_rows"))


def wide_gcn(options: Options = SPARSE, statistics: Statistics = WIDE) -> Planned:
    return planned(
        gcn(features=2_000, hidden=64), gcn(training=False, features=2_000, hidden=64), options, statistics=statistics
    )


def test_the_usual_one_stands_for_a_small_gain():
    usual, other = Candidate("usual", 10.0), Candidate("other", 9.0)
    assert choose_physical([usual, other], least_gain=1.0) is usual
    assert choose_physical([usual, other], least_gain=0.9) is other
    assert choose_physical([usual, Candidate("dearer", 11.0)]) is usual


def test_what_does_not_fit_is_not_taken():
    usual, small = Candidate("usual", 1.0, fits=False), Candidate("small", 9.0)
    assert choose_physical([usual, Candidate("larger", 0.5, fits=False), small], least_gain=5.0) is small
    assert choose_physical([usual, Candidate("larger", 0.5, fits=False)]) is usual, "which the caller refuses"


def test_sparse_features_stay_sparse_where_a_held_sum_of_them_would_cost_more():
    found, kept = wide_gcn(), wide_gcn(replace(SPARSE, disabled=("choose_physical",)))
    assert found.choices == ("without hoist_invariant",)
    assert found.firings["hold_sparse"]
    assert not found.plan.hoisted
    assert kept.plan.hoisted
    assert not kept.firings["choose_physical"]
    assert HOISTED in [one.reason for one in kept.rewritten.declined if one.rule == "hold_sparse"]
    assert found.seconds < 0.5 * kept.seconds
    (reason,) = [one.reason for one in found.rewritten.declined if one.rule == "hoist_invariant"]
    assert reason.endswith("less without it; --disable choose_physical has it all the same")


@pytest.mark.parametrize(
    ("options", "statistics"),
    [
        (SPARSE, replace(WIDE, profile=Profile(EVEN, EVEN, density=1.0))),  # nothing to skip
        (Options(), WIDE),  # an engine whose stages are given all numbers
        (replace(SPARSE, disabled=("hoist_invariant",)), WIDE),  # nothing to choose
    ],
)
def test_must_not_fire(options, statistics):
    found = wide_gcn(options, statistics)
    assert not found.firings["choose_physical"]
    assert bool(found.plan.hoisted) == ("hoist_invariant" not in options.disabled)


def test_a_limit_that_has_no_room_for_what_is_held():
    """Of dense features, too: on local nothing of it can lie elsewhere."""
    dense = replace(WIDE, profile=Profile(EVEN, EVEN, density=1.0))
    held = wide_gcn(statistics=dense)
    least = footprint(LOCAL, held.plan, dense, held.options.pricing.layout).least
    assert wide_gcn(replace(SPARSE, memory_limit=least), dense).plan.hoisted
    found = wide_gcn(replace(SPARSE, memory_limit=least - 1), dense)
    assert not found.plan.hoisted
    assert "hoist_invariant" in {one.rule for one in found.rewritten.declined if "memory limit" in one.reason}


def test_the_choice_is_the_same_on_every_machine():
    """Last bits depend on the plan, and so must not depend on rates that were measured or on cores."""
    slow = replace(SPARSE.pricing.rates, edges=1.0, summed_numbers=1.0)
    other = replace(SPARSE, pricing=replace(SPARSE.pricing, measured=slow))
    assert wide_gcn(other).choices == wide_gcn().choices
