"""The passes of a link task: a step of the optimizer for each batch of links, and ranks of those of validation and test."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lotan.batches.links import LinkBatches
from lotan.engines.base import Engine, Outcome, run
from lotan.engines.local.engine import LocalEngine
from lotan.engines.local.loaded_graph import LoadedGraph
from lotan.errors import DivergedError
from lotan.links.examples import Links
from lotan.links.pairs import Negatives, Pairs, Scored, score
from lotan.links.ranks import metrics_of
from lotan.links.training_pass import train_on_pairs
from lotan.settings.tasks import LinkPrediction
from lotan.stages.metrics import metrics, statistics_of_links, statistics_of_pairs
from lotan.training.learner import Learner
from lotan.training.passes import Passes
from planner.lower import OUTPUT
from planner.physical import Plan

Evaluate = Callable[[Sequence[Learner]], Sequence[Outcome]]
"""A function that evaluates learners, and returns their results in order."""


class RankedPasses(Passes):
    """The passes of one learner that learns to score links, whatever engine ranks those of validation and test.

    Args:
        engine: The engine, with the graph and the plan's stages loaded.
        learner: The learner, whose job is a link task.
        task: The task.
        plan: The plan that the engine has loaded.
    """

    def __init__(self, engine: Engine, learner: Learner, task: LinkPrediction, plan: Plan) -> None:
        super().__init__(engine, plan, [learner])
        assert learner.job.linked is not None
        assert learner.job.decoder is not None
        self._task, self._links, self._decoder = task, learner.job.linked.links, learner.job.decoder
        self._scores = learner.job.scores

    def evaluate(self, which: Sequence[Learner]) -> Sequence[Outcome]:
        """Rank the links of validation among all vertices."""
        return [Outcome(evaluation=self._metrics("val"))]

    def end(self, which: Sequence[Learner]) -> None:
        """Add the metrics of the split "test", of the best weights, to those of the best epoch."""
        (learner,) = self.learners
        learner.restore_best()
        found = metrics(learner.job.loss, self._metrics("test"))
        learner.state.history[learner.state.stopping.best_epoch - 1]["metrics"] |= found
        learner.go_on()

    def _metrics(self, split: str) -> np.ndarray:
        links = self._links.of(split)
        if not len(links):
            return statistics_of_links(split, 0, {})
        is_training = self._decoder.training
        self._decoder.eval()  # a decoder of the user's own may have dropout
        try:
            found = self._ranked(links)
        finally:
            self._decoder.train(is_training)
        return statistics_of_links(split, len(links), found)

    @abstractmethod
    def _ranked(self, links: Links) -> Mapping[str, float]:
        """Return the metrics of some links, among all vertices."""

    def _check_finite(self, rows: Tensor) -> None:
        """Check rows that the model has made.

        Raises:
            DivergedError: If a number is not finite.
        """
        if not bool(torch.isfinite(rows).all()):
            raise DivergedError(
                f"epoch {self.learners[0].state.epoch}: the model's rows hold numbers that are not finite. Training diverged: "
                "lower the learning rate"
            )


def evaluated_alone(evaluate: Evaluate, which: Sequence[Learner]) -> Sequence[Outcome]:
    """Return the evaluation of one learner of several. The metrics of one that has diverged are NaN."""
    try:
        return evaluate(which)
    except DivergedError:  # the learner says so when it remembers the metrics
        return [Outcome(evaluation=statistics_of_pairs(math.nan, 1))]


class LinkPasses(RankedPasses):
    """Runs the passes of one learner that learns to score links, on the local engine.

    Args:
        engine: The local engine, with the graph and the plan's stages loaded.
        learner: The learner, whose job is a link task.
        task: The task.
        batches: The mini-batches of links; None: a training pass goes over the whole graph.
        plan: The plan that the engine has loaded; None: that of the learner's job.
        negatives: The draws of negatives, if other models share them; None: those of the batches, or new ones.
    """

    def __init__(
        self,
        engine: LocalEngine,
        learner: Learner,
        task: LinkPrediction,
        batches: LinkBatches | None = None,
        plan: Plan | None = None,
        negatives: Negatives | None = None,
    ) -> None:
        super().__init__(engine, learner, task, plan or learner.job.plan)
        self._local, self.batches = engine, batches
        shared = negatives or (None if batches is None else batches.negatives)
        self._negatives = Negatives(self._links, task) if shared is None else shared

    def train(self) -> Generator[Sequence[Outcome], None, None]:
        """Run the training passes that are left of the next epoch, and yield the result of each."""
        (learner,), batches = self.learners, self.batches
        epoch, first = learner.state.epoch + 1, learner.state.part.batches
        if batches is None:
            yield [self.on_all(epoch)]
            return
        assert isinstance(batches, LinkBatches)
        for number, graph in enumerate(batches.of_epoch(epoch, first=first), first):
            yield [self.on_batch(batches, graph, epoch, number)]

    def on_all(self, epoch: int) -> Outcome:
        """Run a training pass over the whole graph, in which all training links are scored."""
        pairs = self._negatives.of_epoch(epoch)
        return self._step(self._local, self.plan, pairs, len(self._negatives.training), epoch)

    def on_batch(self, batches: LinkBatches, graph: LoadedGraph, epoch: int, number: int, model: int = 0) -> Outcome:
        """Run a training pass over a batch.

        Args:
            batches: The batches.
            graph: The batch, which `batches` has yielded.
            epoch: The number of the epoch, from 1.
            number: The number of the batch in the epoch.
            model: The number of the model among those that share the batches.
        """
        batches.engine.turn_to(graph)
        pairs = batches.pairs_of(graph)
        found = self._step(batches.engine, batches.plans[model], [pairs], len(pairs.src), epoch, number)
        return replace(found, rows=graph.chunks.rows)

    def _step(
        self,
        engine: LocalEngine,
        plan: Plan,
        pairs: Iterator[Pairs] | list[Pairs],
        links: int,
        epoch: int,
        number: int = 0,
    ) -> Outcome:
        """Run a training pass in which the given pairs are scored."""

        def scored(rows: Tensor) -> Scored:
            placed = rows if engine is not self._local else engine.rows_of(rows)
            found = score(self._decoder, placed, pairs, links, self._task.loss, self._scores)
            return found if engine is not self._local else replace(found, rows=engine.placed(found.rows))

        return train_on_pairs(engine, lambda: run(engine, plan, plan.train, self._pass(epoch, number)), scored)

    def _ranked(self, links: Links) -> Mapping[str, float]:
        return metrics_of(self._decoder, self._rows(), links, self._links, self._task.seed, self._scores)

    def _rows(self) -> Tensor:
        """Return the model's output for all vertices, in the graph's order. [vertices, width]."""
        engine, (learner,) = self._local, self.learners
        a_pass = self._pass(learner.state.epoch)
        handle = run(engine, self.plan, self.plan.evaluate, a_pass, keep=(OUTPUT,)).columns[OUTPUT]
        rows = engine.rows_of(handle)
        self._check_finite(rows)
        return rows


class LinkPassesOfModels(Passes):
    """Runs the passes of several learners on the same links, in step. They share negatives and sampled edges.

    Args:
        ready: A function that returns the local engine, ready for a learner's plan, which it also returns.
        learners: The learners, all after the same epoch, whose tasks draw the same negatives.
        tasks: Their tasks, in the same order.
        batches: The mini-batches of links that they share; None: a training pass goes over the whole graph.
    """

    def __init__(
        self,
        ready: Callable[[Learner], tuple[LocalEngine, Plan]],
        learners: Sequence[Learner],
        tasks: Sequence[LinkPrediction],
        batches: LinkBatches | None = None,
    ) -> None:
        first = learners[0].job.linked
        assert first is not None
        self._ready, self._batches = ready, batches
        negatives = Negatives(first.links, tasks[0]) if batches is None else batches.negatives
        self._each: dict[Learner, LinkPasses] = {}
        for learner, task in zip(learners, tasks, strict=True):
            engine, plan = ready(learner)
            self._each[learner] = LinkPasses(engine, learner, task, batches, plan, negatives)
        super().__init__(engine, plan, learners, batches=batches)

    def train(self) -> Generator[Sequence[Outcome], None, None]:
        """Run the training passes of the next epoch, and yield the results of all learners for each batch."""
        state, batches = self.learners[0].state, self._batches
        epoch, first = state.epoch + 1, state.part.batches
        if batches is None:
            yield [self._passes(learner).on_all(epoch) for learner in self.learners]
            return
        graphs = batches.of_epoch(epoch, first=first)
        for number in range(first, batches.count):
            yield [
                self._each[learner].on_batch(batches, next(graphs), epoch, number, model)
                for model, learner in enumerate(self.learners)
            ]

    def evaluate(self, which: Sequence[Learner]) -> Sequence[Outcome]:
        """Rank the links of validation, for one learner after the other. The metrics of one that has diverged are NaN."""
        found: list[Outcome] = []
        for learner in which:
            found += evaluated_alone(self._passes(learner).evaluate, [learner])
        return found

    def end(self, which: Sequence[Learner]) -> None:
        """Add the metrics of the split "test" to those of each learner's best epoch."""
        for learner in which:
            self._passes(learner).end([learner])

    def _passes(self, learner: Learner) -> LinkPasses:
        """Return the passes of a learner, for whose plan the engine is made ready."""
        self._ready(learner)
        return self._each[learner]
