"""The epochs of one model, or of several together: run the plan's passes, step, evaluate, remember."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from lotan.training.learner import Learner
from lotan.training.passes import Passes

Report = Callable[[Learner], None]


@contextmanager
def nothing_caught(learner: Learner) -> Iterator[None]:
    """What ends one ends all."""
    yield


Guard = Callable[[Learner], AbstractContextManager[None]]


def run_epoch(passes: Passes, told: Report, guard: Guard = nothing_caught) -> None:
    """One more epoch for all: a transaction of each model, done when its checkpoint is.

    Args:
        passes: over the graph, for learners that have epochs left.
        told: called when a learner has the figures of an epoch.
        guard: around what concerns one learner alone; what it swallows ends the epoch for that one.
    """
    started = time.perf_counter()
    outcomes = passes.train()
    seconds = time.perf_counter() - started
    stepped = []
    for learner, outcome in zip(passes.learners, outcomes, strict=True):
        with guard(learner):
            if learner.owes_metrics:
                learner.settle(outcome)
                told(learner)
                if learner.exhausted:
                    continue
            learner.step(outcome, seconds)
            stepped.append(learner)
    evaluated = [learner for learner in stepped if learner.wants_evaluation]
    improved = evaluate(passes, evaluated, guard) if evaluated else {}
    for learner in stepped:
        if learner in evaluated and learner not in improved:
            continue  # it has ended
        learner.keep(improved.get(learner, False))
        if learner in evaluated or not learner.owes_metrics:
            told(learner)


def evaluate(passes: Passes, which: Sequence[Learner], guard: Guard = nothing_caught) -> dict[Learner, bool]:
    """The metrics of some learners' weights as they are; whether they are their best so far."""
    started = time.perf_counter()
    outcomes = passes.evaluate(which)
    seconds = time.perf_counter() - started
    improved = {}
    for learner, outcome in zip(which, outcomes, strict=True):
        with guard(learner):
            improved[learner] = learner.remember(outcome.evaluation, seconds)
    return improved
