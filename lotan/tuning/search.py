"""The searches, which choose trials. A search is a generator that yields rounds of training and is sent their scores.

A search has no clock and no randomness beyond a seed. The same scores therefore lead to the same rounds, and a search
that was killed goes on from its models' checkpoints as if nothing had happened.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

from lotan.tuning.trial_settings import Settings

ETA = 3  # at each rung of halving, one in so many trials goes on
LEAST_EPOCHS = 5  # no rung of halving is before this epoch

Scores = Mapping[int, float]
"""Scores by trial number. Greater is better, and -inf stands for no score, such as that of a model that diverged."""


@dataclass(frozen=True)
class Round:
    """One round of a search."""

    new: Sequence[Settings] = ()  # trials to add; trials are numbered from 0 in the order in which they are added
    only: Sequence[int] | None = None  # numbers of the trials to train; None for all
    upto: int | None = None  # epoch up to which they are trained; None to train each to its end
    stop: Mapping[int, str] = field(default_factory=dict)  # trials to stop before the round, with the reason


Search = Generator[Round, Scores, None]


def all_at_once(trials: Sequence[Settings]) -> Search:
    """Train every trial to its end, as grid search and random search do."""
    yield Round(new=trials)


def halving(trials: Sequence[Settings], rungs: Sequence[int], eta: int = ETA) -> Search:
    """Search by successive halving: at each rung, one in `eta` trials goes on and the others stop.

    The method is that of Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter
    Optimization" (2016). The rungs are those of Li et al., "A System for Massively Parallel Hyperparameter Tuning"
    (2020). All trials of a rung are compared together, so that nothing depends on timing.

    Args:
        trials: the trials at the beginning.
        rungs: the epochs after which trials stop, ascending, as `rungs_of` returns them.
        eta: one in so many trials goes on, rounded up (default: `ETA`).
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
    """Return the numbers of the `count` best trials, ascending. Among equal scores, the first are taken."""
    return sorted(sorted(among, key=lambda one: (-scores.get(one, -math.inf), one))[:count])


def rungs_of(trials: int, epochs: int, eta: int, every: int, least: int = LEAST_EPOCHS) -> list[int]:
    """Return the epochs of the rungs of `halving`.

    Each rung is at about `eta` times the epoch of the one before. After the last rung, about one trial is left.

    Args:
        trials: the number of trials at the beginning.
        epochs: the number of epochs of the longest trial.
        eta: at each rung, one in so many trials goes on.
        every: the number of epochs between evaluations. A rung is the epoch after an evaluation, because its metrics may
            be known only then: a plan without random numbers evaluates in the next epoch's pass.
        least: no rung is before this epoch (default: `LEAST_EPOCHS`).

    >>> rungs_of(27, 200, 3, every=1), rungs_of(9, 200, 3, every=10), rungs_of(2, 200, 3, every=1)
    ([8, 23, 67], [31, 71], [67])
    """
    steps = max(0, math.ceil(math.log(trials, eta) - 1e-9))
    found = [max(math.ceil(epochs / eta**step), least) for step in range(steps, 0, -1)]
    evaluated = (-(-(rung - 1) // every) * every + 1 for rung in found)
    return [rung for rung in dict.fromkeys(evaluated) if rung < epochs]


def _reason(rung: int, kept: int, alive: int) -> str:
    return f"after epoch {rung} not among the best {kept} of {alive}"
