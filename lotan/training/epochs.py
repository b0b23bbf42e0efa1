"""The epochs of one model or of several together: run the plan's passes, take a step, evaluate, record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager

from lotan.engines.base import Outcome
from lotan.training.learner import Learner
from lotan.training.passes import Passes

Report = Callable[[Learner], None]


@contextmanager
def nothing_caught(learner: Learner) -> Iterator[None]:
    """Let every error pass, so that the failure of one learner ends all."""
    yield


Guard = Callable[[Learner], AbstractContextManager[None]]


def run_epoch(passes: Passes, told: Report, guard: Guard = nothing_caught) -> None:
    """Run one more epoch for all learners. For each learner the epoch is complete once its checkpoint is written.

    Args:
        passes: The passes over the graph, for learners that have epochs left.
        told: A function that is called with a learner once the figures of an epoch are known.
        guard: A context around the work for a single learner. If it swallows an error, the epoch ends for this learner only.
    """
    stepped = _train(passes, told, guard)
    evaluated = [learner for learner in stepped if learner.wants_evaluation]
    improved = evaluate(passes, evaluated, guard) if evaluated else {}
    for learner in stepped:
        if learner in evaluated and learner not in improved:
            continue  # its evaluation has failed, and the guard has ended it
        learner.keep(improved.get(learner, False))
        if learner in evaluated or not learner.owes_metrics:
            told(learner)


def _train(passes: Passes, told: Report, guard: Guard) -> list[Learner]:
    """Run the training passes of an epoch, with a step after each, and return the learners that have taken all steps."""
    going = list(passes.learners)
    with closing(passes.train()) as steps:
        started = time.perf_counter()
        for outcomes in steps:
            seconds = time.perf_counter() - started
            for learner, outcome in zip(passes.learners, outcomes, strict=True):
                if learner in going and not _step(learner, outcome, seconds, told, guard):
                    going.remove(learner)
            started = time.perf_counter()
    ended = []
    for learner in going:
        with guard(learner):
            learner.end_epoch()
            ended.append(learner)
    return ended


def _step(learner: Learner, outcome: Outcome, seconds: float, told: Report, guard: Guard) -> bool:
    """Record the metrics that a learner owes, and take its step. Return False if its epoch ends here."""
    with guard(learner):
        if learner.owes_metrics:
            learner.settle(outcome)
            told(learner)
            if learner.exhausted:
                return False
        learner.step(outcome, seconds)
        return True
    return False


def evaluate(passes: Passes, which: Sequence[Learner], guard: Guard = nothing_caught) -> dict[Learner, bool]:
    """Compute the metrics of some learners' current weights.

    Args:
        passes: The passes over the graph.
        which: The learners to evaluate.
        guard: A context around the work for a single learner.

    Returns:
        For each learner that the guard has not ended, True if its weights are the best so far.
    """
    started = time.perf_counter()
    outcomes = passes.evaluate(which)
    seconds = time.perf_counter() - started
    improved = {}
    for learner, outcome in zip(which, outcomes, strict=True):
        with guard(learner):
            improved[learner] = learner.remember(outcome.evaluation, seconds)
    return improved
