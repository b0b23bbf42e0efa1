"""The passes of a plan over a graph, for one model or for a batch of them: run, and run again where a pass is lost."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lotan.engines.base import PASS_ATTEMPTS, Engine, Outcome, Pass, run
from lotan.errors import PassLostError
from lotan.training.learner import Learner
from planner.batch import Batch
from planner.physical import Plan, Step

log = logging.getLogger(__name__)


class Passes:
    """Runs a plan's passes for those that learn from it.

    Args:
        engine: has the graph loaded, and stages of the plan.
        plan: of one model.
        learners: that one.
        moved: bytes that the engine had moved before, for others.
    """

    def __init__(
        self, engine: Engine, plan: Plan, learners: Sequence[Learner], moved: Mapping[str, int] | None = None
    ) -> None:
        self._engine, self.plan, self.learners, self._moved = engine, plan, learners, moved or {}
        self.prepared = False  # again, for this plan alone

    def train(self) -> Sequence[Outcome]:
        """A pass of training for the epoch after the last, which evaluates those that owe metrics: what it came to for each."""
        owing = frozenset(number for number, learner in enumerate(self.learners) if learner.owes_metrics)
        late = [learner for learner in self.learners if learner.owes_metrics and not learner.job.plan.reuses_evaluation]
        evaluated = dict(zip(late, self.evaluate(late), strict=True)) if late else {}  # resumed from a plan that did
        outcomes = self._run(self._training(owing), self.learners[0].state.epoch + 1)
        return [
            replace(outcome, evaluation=evaluated[learner].evaluation) if learner in evaluated else outcome
            for learner, outcome in zip(self.learners, outcomes, strict=True)
        ]

    def evaluate(self, which: Sequence[Learner]) -> Sequence[Outcome]:
        """A pass of evaluation, for some."""
        assert list(which) == list(self.learners)
        return self._run(self.plan.evaluate, self.learners[0].state.epoch)

    def bytes_moved(self) -> dict[str, int]:
        """See `lotan.engines.base.Engine.bytes_moved`, of these passes and what went before them."""
        return {name: count - self._moved.get(name, 0) for name, count in self._engine.bytes_moved().items()}

    def _training(self, owing: frozenset[int]) -> tuple[Step, ...]:
        return self.plan.training(bool(owing))

    def _pass(self, epoch: int) -> Pass:
        (one,) = self.learners
        return Pass(epoch, one.weights, one.config.seed)

    def _outcomes(self, outcome: Outcome) -> Sequence[Outcome]:
        return [outcome]

    def _run(self, steps: tuple[Step, ...], epoch: int) -> Sequence[Outcome]:
        """Walk over the steps; if the walk is lost, from the beginning again: the weights are still those before it."""
        for attempt in range(1, PASS_ATTEMPTS + 1):
            try:
                if attempt > 1:
                    self._engine.prepare(self.plan)  # what it has computed once may be lost as well
                    self.prepared = True
                return self._outcomes(run(self._engine, self.plan, steps, self._pass(epoch)))
            except PassLostError as error:
                if attempt == PASS_ATTEMPTS:
                    raise
                log.warning("epoch %d runs again from the weights before it: %s", epoch, error)
        raise AssertionError("the last attempt returns or raises")


class BatchPasses(Passes):
    """Runs the passes of a batch, for all its models at once.

    Args:
        engine: see `Passes`.
        batch: of the models, in their order.
        learners: all after the same epoch.
    """

    def __init__(self, engine: Engine, batch: Batch, learners: Sequence[Learner]) -> None:
        super().__init__(engine, batch.plan, learners)
        self._batch = batch

    def evaluate(self, which: Sequence[Learner]) -> Sequence[Outcome]:
        """For some, and whoever is stacked with them."""
        numbers = [self.learners.index(learner) for learner in which]
        outcomes = self._run(self._batch.evaluate(frozenset(numbers)), which[0].state.epoch)
        return [outcomes[number] for number in numbers]

    def _training(self, owing: frozenset[int]) -> tuple[Step, ...]:
        return self._batch.train(owing)

    def _pass(self, epoch: int) -> Pass:
        weights = [learner.weights for learner in self.learners]
        return Pass.of_batch(epoch, weights, [learner.config.seed for learner in self.learners])

    def _outcomes(self, outcome: Outcome) -> Sequence[Outcome]:
        return outcome.by_model(len(self.learners))
