"""The passes of a link task: a step of the optimizer for each batch of links, and ranks of those of validation and test."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lotan.batches.links import FULL_BATCH_LINKS, LinkBatches
from lotan.engines.base import Outcome, run
from lotan.engines.local import LocalEngine
from lotan.errors import DivergedError
from lotan.links.decoders import PREFIX
from lotan.links.pairs import Negatives, Pairs, Scored, score
from lotan.links.ranks import metrics_of
from lotan.planning.job import Job
from lotan.settings.tasks import LinkPrediction
from lotan.stages.metrics import metrics, statistics_of_links, statistics_of_pairs
from lotan.training.learner import Learner
from lotan.training.passes import Passes
from planner.lower import OUTPUT


class LinkPasses(Passes):
    """Runs the passes of one learner that learns to score links.

    Args:
        engine: The local engine, with the graph and the plan's stages loaded.
        learner: The learner, whose job is a link task.
        task: The task.
        batches: The mini-batches of links; None: a training pass goes over the whole graph.
    """

    def __init__(
        self, engine: LocalEngine, learner: Learner, task: LinkPrediction, batches: LinkBatches | None = None
    ) -> None:
        super().__init__(engine, learner.job.plan, [learner])
        assert learner.job.linked is not None
        assert learner.job.decoder is not None
        self._local, self._task, self.batches = engine, task, batches
        self._links, self._decoder = learner.job.linked.links, learner.job.decoder
        self._negatives = Negatives(self._links, task) if batches is None else batches.negatives

    def train(self) -> Generator[Sequence[Outcome], None, None]:
        """Run the training passes of the next epoch, and yield the result of each."""
        (learner,), batches = self.learners, self.batches
        epoch = learner.state.epoch + 1
        if batches is None:
            yield [self._step(self._local, learner.job, self._of_epoch(epoch), len(self._negatives.training), epoch)]
            return
        assert isinstance(batches, LinkBatches)
        for number, graph in enumerate(batches.of_epoch(epoch)):
            batches.engine.turn_to(graph)
            pairs = batches.pairs_of(graph)
            yield [self._step(batches.engine, learner.job, [pairs], len(pairs.src), epoch, number)]

    def _of_epoch(self, epoch: int) -> Iterator[Pairs]:
        """Yield the training links with their negatives, which are drawn anew for each run of links."""
        count = len(self._negatives.training)
        for number, start in enumerate(range(0, count, FULL_BATCH_LINKS)):
            yield self._negatives.pairs(np.arange(start, min(count, start + FULL_BATCH_LINKS)), epoch, number)

    def _step(
        self,
        engine: LocalEngine,
        job: Job,
        pairs: Iterator[Pairs] | list[Pairs],
        links: int,
        epoch: int,
        number: int = 0,
    ) -> Outcome:
        """Run a training pass in which the given pairs are scored."""
        found: list[Scored] = []

        def scoring(rows: Tensor) -> Tensor:
            placed = rows if engine is not self._local else engine.rows_of(rows)
            found.append(score(self._decoder, placed, pairs, links, self._task.loss))
            gradient = found[0].rows
            return gradient if engine is not self._local else engine.placed(gradient)

        engine.scoring = scoring
        plan = job.plan if job.batch is None else job.batch.plan
        outcome = run(engine, plan, plan.train, self._pass(epoch, number))
        of_decoder = {f"{PREFIX}{name}": gradient for name, gradient in found[0].decoder.items()}
        return replace(
            outcome,
            gradients={**outcome.gradients, **of_decoder},
            statistics=statistics_of_pairs(found[0].loss, found[0].terms),
        )

    def evaluate(self, which: Sequence[Learner]) -> Sequence[Outcome]:
        """Rank the links of validation among all vertices."""
        return [Outcome(evaluation=self._metrics("val"))]

    def end(self) -> None:
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
        rows, is_training = self._rows(), self._decoder.training
        self._decoder.eval()  # a decoder of the user's own may have dropout
        try:
            found = metrics_of(self._decoder, rows, links, self._links, self._task.seed)
        finally:
            self._decoder.train(is_training)
        return statistics_of_links(split, len(links), found)

    def _rows(self) -> Tensor:
        """Return the model's output for all vertices, in the graph's order. [vertices, width]."""
        engine, (learner,) = self._local, self.learners
        a_pass = self._pass(learner.state.epoch)
        handle = run(engine, self.plan, self.plan.evaluate, a_pass, keep=(OUTPUT,)).columns[OUTPUT]
        rows = engine.rows_of(handle)
        if not bool(torch.isfinite(rows).all()):
            raise DivergedError(
                f"epoch {learner.state.epoch}: the model's rows hold numbers that are not finite. Training diverged: lower the "
                "learning rate"
            )
        return rows
