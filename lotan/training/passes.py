"""The passes of a plan over a graph, for one model or for a batch of models. A lost pass is run again."""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import replace

from lotan.batches.schedule import TrainingBatches
from lotan.engines.base import PASS_ATTEMPTS, Engine, Outcome, Pass, run
from lotan.errors import PassLostError
from lotan.settings.regimes import MiniBatch
from lotan.training.early_stopping import elbow
from lotan.training.learner import Learner
from planner.batch import Batch
from planner.loss import LossSpec
from planner.physical import Plan
from planner.spec import SPLITS
from planner.steps.step import Step

log = logging.getLogger(__name__)


class Passes:
    """Runs the passes of a plan for one learner.

    An epoch has one training pass over the whole graph, or one for each mini-batch.

    Args:
        engine: The engine, with the graph and the plan's stages loaded.
        plan: The plan of the learner's model.
        learners: A list with the one learner.
        moved: Bytes that the engine had moved before, for other learners. They are not counted for this one.
        batches: The mini-batches of the run; None: a training pass goes over the whole graph.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        learners: Sequence[Learner],
        moved: Mapping[str, int] | None = None,
        batches: TrainingBatches | None = None,
    ) -> None:
        self._engine, self.plan, self.learners, self._moved = engine, plan, learners, moved or {}
        self.batches = batches
        self.prepared = False  # True once the columns were computed again, for this plan alone

    @property
    def engine(self) -> Engine:
        """The engine that the passes run on."""
        return self._engine

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the user on how the passes were opened."""
        return () if self.batches is None else self.batches.notes

    def train(self) -> Generator[Sequence[Outcome], None, None]:
        """Run the training passes that are left of the next epoch. The learners take a step after each.

        Yields:
            The results of a pass, one for each learner, in order.
        """
        if self.batches is None:
            yield self._train_on_all()
            return
        state, batches = self.learners[0].state, self.batches
        epoch, first = state.epoch + 1, state.part.batches
        loss = next(stage.loss for stage in batches.plan.stages if stage.loss is not None)
        outcomes = batches.outcomes(epoch, lambda number: self._pass(epoch, number), self._drawn_as(epoch), first)
        for outcome in outcomes:
            of_learners = zip(self.learners, self._outcomes(outcome), strict=True)
            yield [
                replace(mean_of_batch(each, loss, learner.job.train.buffers), rows=outcome.rows)
                for learner, each in of_learners
            ]

    def _drawn_as(self, epoch: int) -> int:
        """Return the epoch whose draws an epoch of mini-batches has: its own, or the first one until the elbow."""
        learner = self.learners[0]
        regime, state = learner.config.regime, learner.state
        fixed = isinstance(regime, MiniBatch) and regime.is_fixed
        return 1 if fixed and elbow(state.history, state.stopping.monitor) is None else epoch

    def _train_on_all(self) -> Sequence[Outcome]:
        """Run a training pass over the whole graph. It also evaluates learners that owe metrics."""
        owing = frozenset(number for number, learner in enumerate(self.learners) if learner.owes_metrics)
        late = [learner for learner in self.learners if learner.owes_metrics and not learner.job.plan.reuses_evaluation]
        # they were resumed from a run whose plan reused evaluation
        evaluated = dict(zip(late, self.evaluate(late), strict=True)) if late else {}
        outcomes = self._run(self._training(owing), self.learners[0].state.epoch + 1)
        return [
            _mean_of_hidden(
                replace(outcome, evaluation=evaluated[learner].evaluation) if learner in evaluated else outcome, learner
            )
            for learner, outcome in zip(self.learners, outcomes, strict=True)
        ]

    def evaluate(self, which: Sequence[Learner]) -> Sequence[Outcome]:
        """Run an evaluation pass for some of the learners, and return their results in order."""
        assert list(which) == list(self.learners)
        return self._run(self.plan.evaluate, self.learners[0].state.epoch)

    def end(self, which: Sequence[Learner]) -> None:
        """Do what is left after the last epoch of some learners, while the engine is still open."""

    def bytes_moved(self) -> dict[str, int]:
        """Return the bytes that these passes and their preparation have moved, see `lotan.engines.base.Engine.bytes_moved`."""
        of_batches = {} if self.batches is None else self.batches.bytes_moved()
        moved = self._engine.bytes_moved().items()
        return {name: count - self._moved.get(name, 0) + of_batches.get(name, 0) for name, count in moved}

    def figures(self) -> dict[str, float] | None:
        """Return what was prepared for mini-batches, as plain data for the report; None: a full batch."""
        return None if self.batches is None else self.batches.figures()

    def close(self) -> None:
        """Free the mini-batches, before the engine is closed. This may be called twice."""
        if self.batches is not None:
            self.batches.close()

    def _training(self, owing: frozenset[int]) -> tuple[Step, ...]:
        return self.plan.training(bool(owing))

    def _pass(self, epoch: int, batch: int = 0) -> Pass:
        (one,) = self.learners
        return Pass(epoch, one.weights, one.config.seed, batch=batch)

    def _outcomes(self, outcome: Outcome) -> Sequence[Outcome]:
        return [outcome]

    def _run(self, steps: tuple[Step, ...], epoch: int, keep: Sequence[str] = ()) -> Sequence[Outcome]:
        """Run the steps. If the pass is lost, run it again from its first step: the weights are still those before it.

        Columns in `keep` are in the outcome, and the caller releases them.
        """
        for attempt in range(1, PASS_ATTEMPTS + 1):
            try:
                if attempt > 1:
                    self._engine.prepare(self.plan)  # columns that were computed once may be lost as well
                    self.prepared = True
                return self._outcomes(run(self._engine, self.plan, steps, self._pass(epoch), keep))
            except PassLostError as error:
                if attempt == PASS_ATTEMPTS:
                    raise
                log.warning("epoch %d runs again from the weights before it: %s", epoch, error)
        raise AssertionError("the last attempt returns or raises")


class BatchPasses(Passes):
    """Runs the passes of a batch, for all its models at once.

    Args:
        engine: The engine, with the graph and the batch's stages loaded.
        batch: The plan of all models, in their order.
        learners: The learners of the models, in the same order, all after the same epoch.
        batches: The mini-batches that all models train on; None: a training pass goes over the whole graph.
    """

    def __init__(
        self, engine: Engine, batch: Batch, learners: Sequence[Learner], batches: TrainingBatches | None = None
    ) -> None:
        super().__init__(engine, batch.plan, learners, batches=batches)
        self._batch = batch

    def evaluate(self, which: Sequence[Learner]) -> Sequence[Outcome]:
        """Run an evaluation pass for some of the learners. Models stacked with them are evaluated too."""
        numbers = [self.learners.index(learner) for learner in which]
        outcomes = self._run(self._batch.evaluate(frozenset(numbers)), which[0].state.epoch)
        return [outcomes[number] for number in numbers]

    def _training(self, owing: frozenset[int]) -> tuple[Step, ...]:
        return self._batch.train(owing)

    def _pass(self, epoch: int, batch: int = 0) -> Pass:
        weights = [learner.weights for learner in self.learners]
        return Pass.of_batch(epoch, weights, [learner.config.seed for learner in self.learners], batch)

    def _outcomes(self, outcome: Outcome) -> Sequence[Outcome]:
        return outcome.by_model(len(self.learners))


def _mean_of_hidden(outcome: Outcome, learner: Learner) -> Outcome:
    """Return the outcome of a pass with the gradients of the mean over the vertices whose labels the model did not see."""
    loss = learner.job.loss
    return outcome if loss.shown is None else mean_of_batch(outcome, loss, learner.job.train.buffers)


def mean_of_batch(outcome: Outcome, loss: LossSpec, buffers: Collection[str] = ()) -> Outcome:
    """Return the outcome of a mini-batch with the gradients of the mean over its own targets.

    The plan divides the loss by what the terms of a batch are expected to add up to. A last batch has fewer targets, and
    those of other batches may have other weights.

    Args:
        outcome: The outcome, whose statistics have the sum of the weights of the training vertices' terms.
        loss: The loss of the plan.
        buffers: The names of running statistics, whose sums over the rows of the batch are among the gradients.
    """
    assert outcome.statistics is not None  # a training pass always has them
    weight = float(outcome.statistics[SPLITS.index("train"), 1])
    if weight in (0.0, loss.normalizer):  # without weight, all gradients are 0
        return outcome
    factor = loss.normalizer / weight
    found = {name: gradient if name in buffers else gradient * factor for name, gradient in outcome.gradients.items()}
    return replace(outcome, gradients=found)
