"""Mini-batches of links: their ends and negatives are the targets, around which edges are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lotan.batches.loader import BatchLoader
from lotan.batches.sampler import Sample
from lotan.batches.schedule import Batches
from lotan.engines.local.loaded_graph import LoadedGraph
from lotan.links.examples import LinkGraph
from lotan.links.pairs import Negatives, Pairs
from lotan.settings.config import TrainerConfig
from lotan.settings.regimes import MiniBatch
from lotan.settings.tasks import LinkPrediction, excludes_targets
from lotan.stages.randomness import Randomness
from planner.physical import Plan


class LinkBatches(Batches):
    """The batches of links of one run on the local engine, or of several that share the links, negatives and edges of each.

    Args:
        linked: The graph and its links.
        plans: The plan of a batch for each model. All read as many hops.
        config: The settings of a run, whose regime is MiniBatch and whose task is a link task.
        epochs: The last epoch for which batches are prepared.
        both: True to draw out-edges too.
    """

    def __init__(
        self,
        linked: LinkGraph,
        plans: Sequence[Plan],
        config: TrainerConfig,
        epochs: int,
        both: bool,
    ) -> None:
        regime, task, chunk_rows = config.regime, config.task, config.chunk_rows
        assert isinstance(regime, MiniBatch)
        assert isinstance(task, LinkPrediction)
        self.negatives = Negatives(linked.links, task)
        self._linked, self._exclude = linked, excludes_targets(task)
        self._pairs: dict[int, Pairs] = {}  # by the id of the batch's graph, from its preparation until it trains
        numbers, keys = np.arange(len(self.negatives.training)), linked.keys_of_training
        super().__init__(linked.graph, plans[0], regime, epochs, chunk_rows, numbers, keys, both)
        self.plans = tuple(plans)
        self._loaders = [self._loader, *(BatchLoader(linked.graph, plan, chunk_rows) for plan in plans[1:])]
        self._end *= len(plans)  # a batch is loaded for one model after the other
        self._last: tuple[int, Sample, Pairs] | None = None  # the batch that was drawn last, which other models share

    def of_epoch(self, epoch: int, drawn_as: int | None = None, first: int = 0) -> Iterator[LoadedGraph]:
        """Yield the batches of an epoch in order, each once for every model. They have the draws of their epoch."""
        models, begin = len(self.plans), epoch * self.count
        numbers = range(models * (begin + first), models * (begin + self.count))
        yield from self._with_rows(self._take(number) for number in numbers)

    def pairs_of(self, graph: LoadedGraph) -> Pairs:
        """Return the pairs of a batch, whose graph `of_epoch` has yielded. They are asked for once."""
        return self._pairs.pop(id(graph))

    def _prepare(self, number: int, drawn_as: int = 0) -> LoadedGraph:
        number, model = divmod(number, len(self.plans))
        if self._last is None or self._last[0] != number:
            self._last = number, *self._drawn_with_pairs(*divmod(number, self.count))
        _, sample, pairs = self._last
        loaded = self._loaded(sample, self._loaders[model])
        self._pairs[id(loaded)] = pairs
        return loaded

    def _drawn_with_pairs(self, epoch: int, batch: int) -> tuple[Sample, Pairs]:
        chosen = self._targets(epoch)[batch]
        pairs = self.negatives.pairs(chosen, epoch, batch)
        rows = pairs.ends

        def draw(of: Randomness) -> Sample:
            without = self._linked.edges(chosen) if self._exclude and self._fanouts else None
            return self._sampler.sample(rows, self._fanouts, of, without)

        return self._drawn(epoch, batch, draw), pairs.among(rows)
