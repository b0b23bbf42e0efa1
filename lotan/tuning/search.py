"""How trials are chosen: a search yields rounds of training, and is sent the scores that came of each.

A search is a generator without a clock or randomness of its own beyond a seed, so that the same scores lead to the same
rounds: that is what makes a search that was killed go on from its models' checkpoints as if nothing had happened.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

from lotan.tuning.trial_settings import Settings

ETA = 3  # of halving: one in so many goes on
LEAST_EPOCHS = 5  # before halving lets the first ones go

Scores = Mapping[int, float]
"""By trial number, greater is better; -inf for what has none, as a model that diverged."""


@dataclass(frozen=True)
class Round:
    """What to do next."""

    new: Sequence[Settings] = ()  # trials to add; they are numbered in the order in which they come, from 0
    only: Sequence[int] | None = None  # numbers to train; None: all
    upto: int | None = None  # epoch; None: each to its end
    stop: Mapping[int, str] = field(default_factory=dict)  # first, numbers that train no further, and why


Search = Generator[Round, Scores, None]


def all_at_once(trials: Sequence[Settings]) -> Search:
    """Every trial to its end: grid and random search."""
    yield Round(new=trials)


def halving(trials: Sequence[Settings], rungs: Sequence[int], eta: int = ETA) -> Search:
    """Successive halving: at each rung the best of `eta` trials go on, the others stop.

    Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization" (2016), with the rungs of
    Li et al., "A System for Massively Parallel Hyperparameter Tuning" (2020); whole rungs, so that nothing depends on timing.

    Args:
        trials: to begin with.
        rungs: epochs after which some are let go, ascending, see `rungs_of`.
        eta: one in so many goes on, rounded up.
    """
    alive: Sequence[int] = range(len(trials))
    new = trials
    stop: dict[int, str] = {}
    for rung in rungs:
        scores = yield Round(new=new, only=tuple(alive), upto=rung, stop=stop)
        kept = best(scores, alive, math.ceil(len(alive) / eta))
        stop = {one: _reason(rung, len(kept), len(alive)) for one in alive if one not in kept}
        new, alive = (), kept
    yield Round(new=new, only=tuple(alive), stop=stop)


def best(scores: Scores, among: Sequence[int], count: int) -> list[int]:
    """Numbers of the best, ascending; the first of equal ones."""
    return sorted(sorted(among, key=lambda one: (-scores.get(one, -math.inf), one))[:count])


def rungs_of(trials: int, epochs: int, eta: int, every: int, least: int = LEAST_EPOCHS) -> list[int]:
    """Epochs at which halving lets trials go: the last one has about `eta` left, and each has `eta` times the one before.

    Args:
        trials: to begin with.
        epochs: of the longest.
        eta: see `halving`.
        every: epochs between evaluations. A rung is the epoch after an evaluated one, whose metrics may be known only then:
            where nothing is random, the next epoch's pass evaluates.
        least: no rung is earlier.

    >>> rungs_of(27, 200, 3, every=1), rungs_of(9, 200, 3, every=10), rungs_of(2, 200, 3, every=1)
    ([8, 23, 67], [31, 71], [67])
    """
    steps = max(0, math.ceil(math.log(trials, eta) - 1e-9))
    found = [max(math.ceil(epochs / eta**step), least) for step in range(steps, 0, -1)]
    evaluated = (-(-(rung - 1) // every) * every + 1 for rung in found)
    return [rung for rung in dict.fromkeys(evaluated) if rung < epochs]


def _reason(rung: int, kept: int, alive: int) -> str:
    return f"after epoch {rung} not among the best {kept} of {alive}"
