"""Rule: of the ways to run a plan, the one that is estimated to take least, of those that memory has room for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from planner.physical import Plan
from planner.rules.hoist_invariant import hoist_invariant
from planner.rules.hold_sparse import pays_sparse
from planner.spec import Ability
from planner.statistics import Statistics

Found = TypeVar("Found")

LEAST_GAIN = 0.1
"""Of an epoch: what another plan has to spare. Estimates err by about as much, and the usual plan is the better known one."""


@dataclass(frozen=True)
class Candidate(Generic[Found]):
    """A way to run a plan: an engine, a number of partitions, or the plan that is made without a rule."""

    what: Found
    cost: float  # estimated seconds, or what these rise with
    fits: bool = True  # in memory


def choose_physical(candidates: Sequence[Candidate[Found]], least_gain: float = 0.0) -> Candidate[Found]:
    """The same numbers from any engine, layout, pass and set of rules: so the one runs that costs least and fits.

    The first candidate is the usual one: it stands unless it does not fit, or another spares more than `least_gain`.

    >>> choose_physical([Candidate("local", 20.0), Candidate("blocks", 9.0)], least_gain=15.0).what
    'local'
    >>> choose_physical([Candidate("usual", 1.0, fits=False), Candidate("4 partitions", 2.0), Candidate("8", 4.0)]).what
    '4 partitions'

    Args:
        candidates: at least one; where none fits, the first is what the caller will refuse.
        least_gain: in the unit of their costs.
    """
    first = candidates[0]
    best = min((one for one in candidates if one.fits), key=lambda one: one.cost, default=first)
    return best if best.fits and (not first.fits or first.cost - best.cost > least_gain) else first


def doubtful(plan: Plan, statistics: Statistics, abilities: Sequence[Ability], fits: bool) -> Iterator[str]:
    """The rules that fired and may cost an epoch more than they spare, so that the plan without one is worth making.

    A sum of sparse features that is held is no longer sparse: a linear map of it multiplies what is zero, too. And what is held
    takes memory.

    Args:
        plan: with the rules that fire.
        statistics: of the graph.
        abilities: of the engine.
        fits: whether memory has room for the plan.
    """
    if hoist_invariant.__name__ not in plan.fired:
        return
    if ("sparse_rows" in abilities and pays_sparse(statistics)) or not fits:
        yield hoist_invariant.__name__


def why_without(usual: Candidate[Found], found: Candidate[Found]) -> str:
    """What speaks for the plan without a rule, in words, and how to have the usual one."""
    reason = f"an epoch is estimated to take {1 - found.cost / usual.cost:.0%} less without it"
    if not usual.fits:
        reason = "what it holds does not fit in the memory limit"
    return f"{reason}; --disable {choose_physical.__name__} has it all the same"
