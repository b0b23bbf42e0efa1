"""The passes of a link task on the blocks engine: batches in workers, and ranks among rows that come chunk by chunk."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

import numpy as np
import torch
from torch import Tensor

from lotan.batches.links_on_spark import SparkLinkBatches
from lotan.batches.schedule import TrainingBatches
from lotan.engines.base import Engine, Outcome
from lotan.engines.blocks.engine import BlocksEngine
from lotan.engines.blocks.rows_in_parts import RowsInParts
from lotan.graph.arrays import Ids
from lotan.links.examples import Known, Links
from lotan.links.memory import ranked_rows
from lotan.links.pairs import Negatives, Scored, score
from lotan.links.ranks import area_beside, other_pairs
from lotan.links.ranks_in_parts import Parts, RowsOf, gathered, known_in_parts, rank_in_parts
from lotan.links.training_pass import train_on_pairs
from lotan.links.wire import encode_scorer
from lotan.planning.job import Job
from lotan.settings.config import TrainerConfig
from lotan.settings.tasks import LinkPrediction
from lotan.tables.pipeline import RowPipeline
from lotan.training.learner import Learner
from lotan.training.link_passes import RankedPasses, evaluated_alone
from planner.lower import OUTPUT
from planner.physical import Plan


@contextmanager
def open_on_blocks(
    engine: Engine, learner: Learner, config: TrainerConfig, plan: Plan, rows: RowPipeline | None = None
) -> Iterator[BlocksLinkPasses]:
    """Open the passes of a link task on the blocks engine.

    Args:
        engine: The engine, with the graph and the plan's stages loaded.
        learner: The learner, whose job is a link task.
        config: The settings of the run.
        plan: The plan that the engine has loaded.
        rows: The pipeline of learned rows that lie in tables, if they do.
    """
    job, task = learner.job, config.task
    assert isinstance(task, LinkPrediction)
    if job.batch is None:
        yield BlocksLinkPasses(engine, learner, task, plan=plan)
        return
    with closing(batches_on_blocks(engine, job, config)) as batches:
        batches.rows = rows
        yield BlocksLinkPasses(engine, learner, task, batches, plan)


def batches_on_blocks(engine: Engine, job: Job, config: TrainerConfig) -> SparkLinkBatches:
    """Return the mini-batches of a link task on the blocks engine. Whoever opens them closes them, before the engine."""
    assert isinstance(engine, BlocksEngine)  # the settings refuse others
    assert isinstance(config.task, LinkPrediction)
    assert job.linked is not None
    assert job.batch is not None  # else there are no batches
    scorer = encode_scorer(config.task, job.loss.outputs, job.linked.links.relations, job.scores, job.own_decoder)
    return SparkLinkBatches(engine, job.linked, job.batch.plan, config, scorer, job.both)


class BlocksLinkPasses(RankedPasses):
    """Runs the passes of one learner that learns to score links.

    An evaluation computes the rows of all vertices on the engine, layer by layer. They come to this process in chunks, one
    at a time, and links are ranked among each. This process holds the rows of the ends of the ranked links beside it.

    Args:
        engine: The engine, with the graph and the plan's stages loaded.
        learner: The learner, whose job is a link task.
        task: The task.
        batches: The mini-batches of links; None: a training pass goes over the whole graph, and its output rows come here.
        plan: The plan that the engine has loaded; None: that of the learner's job.
    """

    def __init__(
        self,
        engine: Engine,
        learner: Learner,
        task: LinkPrediction,
        batches: TrainingBatches | None = None,
        plan: Plan | None = None,
    ) -> None:
        super().__init__(engine, learner, task, plan or learner.job.plan)
        assert isinstance(engine, BlocksEngine)  # the settings refuse others
        assert learner.job.linked is not None
        self._blocks, self.batches = engine, batches
        self._negatives = Negatives(self._links, task) if batches is None else None
        self._ids: Ids = learner.job.linked.ids
        chunk = ranked_rows(learner.job.loss.outputs)
        self._division = Parts(self._links.vertices, max(1, -(-self._links.vertices // chunk)))

    def train(self) -> Generator[Sequence[Outcome], None, None]:
        """Run the training passes that are left of the next epoch, and yield the result of each."""
        state, batches = self.learners[0].state, self.batches
        epoch, first = state.epoch + 1, state.part.batches
        if batches is None:
            yield [self._on_all(epoch)]
            return
        for outcome in batches.outcomes(epoch, lambda number: self._pass(epoch, number), first=first):
            yield [outcome]

    def _on_all(self, epoch: int) -> Outcome:
        """Run a training pass over the whole graph, whose output rows are scored in this process."""
        negatives = self._negatives
        assert negatives is not None  # without batches

        def scored(rows: Tensor) -> Scored:
            pairs, links = negatives.of_epoch(epoch), len(negatives.training)
            return score(self._decoder, rows, pairs, links, self._task.loss, self._scores)

        return train_on_pairs(self._blocks, lambda: self._run(self.plan.train, epoch)[0], scored)

    def _ranked(self, links: Links) -> Mapping[str, float]:
        engine, (learner,) = self._blocks, self.learners
        outcome = self._run(self.plan.evaluate, learner.state.epoch, keep=(OUTPUT,))[0]
        handle = outcome.columns[OUTPUT]
        try:
            with RowsInParts(engine, engine.read(handle), self._ids, self._division) as rows:
                return self._metrics_of(links, lambda part: self._checked(rows.of(part)))
        finally:
            engine.release(handle)

    def _checked(self, rows: np.ndarray) -> Tensor:
        found = torch.from_numpy(rows)
        self._check_finite(found)
        return found

    def _metrics_of(self, links: Links, rows_of: RowsOf) -> dict[str, float]:
        known = self._known(links)
        found = rank_in_parts(self._decoder, rows_of, links, known, self._division, self._scores).metrics()
        if links.relation is not None:
            return found
        pairs = other_pairs(self._links.destinations, len(links), links.vertices, self._task.seed)
        ends = np.unique(np.concatenate([links.src, links.dst, pairs.reshape(-1)]))
        rows = gathered(rows_of, ends, self._division)
        places = [np.searchsorted(ends, one) for one in (links.src, links.dst, pairs)]
        auc = area_beside(self._decoder, rows, (places[0], places[1]), places[2], self._scores)
        return found | {"auc": auc}

    def _known(self, links: Links) -> list[tuple[Known, Known]]:
        """Return the known answers of links in each chunk: the destinations of their sources, and the reverse."""
        every = self._links
        records = np.stack([every.src, every.dst, every.numbers], axis=1)
        if every.both_ways:
            records = np.concatenate([records, records[:, [1, 0, 2]]])
        both = []
        for column, given in enumerate((links.src, links.dst)):
            asked = np.unique(given * links.relations + links.numbers)
            some = records[np.isin(records[:, column] * links.relations + records[:, 2], asked)]
            both.append(known_in_parts(some, column, self._division, links.relations))
        return list(zip(*both, strict=True))


class BlocksLinkMember(BlocksLinkPasses):
    """Runs the passes of a member of a grid. If it diverges, it ends alone."""

    def evaluate(self, which: Sequence[Learner]) -> Sequence[Outcome]:
        """Rank the links of validation. The metrics of a model that has diverged are NaN."""
        return evaluated_alone(super().evaluate, which)

    def end(self, which: Sequence[Learner]) -> None:
        """Add the metrics of the split "test", unless the model has diverged."""
        if which:
            super().end(which)
