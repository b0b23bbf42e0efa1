"""Mini-batches of links: their ends and negatives are the targets, around which edges are drawn."""

from __future__ import annotations

import numpy as np

from lotan.batches.sampler import Sample
from lotan.batches.schedule import Batches
from lotan.engines.local.loaded_graph import LoadedGraph
from lotan.graph.row_keys import edge_keys
from lotan.links.examples import LinkGraph
from lotan.links.pairs import Negatives, Pairs
from lotan.settings.regimes import MiniBatch
from lotan.settings.tasks import LinkPrediction
from lotan.stages.randomness import Randomness
from planner.physical import Plan

FULL_BATCH_LINKS = 1024
"""The links that share their negatives in full batch."""


class LinkBatches(Batches):
    """The batches of links of a run on the local engine.

    Args:
        linked: The graph and its links.
        plan: The plan of a batch.
        regime: The sampling of batches.
        task: The task.
        exclude: True to leave the batch's own links out of its messages.
        epochs: The last epoch for which batches are prepared.
        chunk_rows: The number of vertices that a stage processes at a time; None: a number that suits the batch.
    """

    def __init__(
        self,
        linked: LinkGraph,
        plan: Plan,
        regime: MiniBatch,
        task: LinkPrediction,
        exclude: bool,
        epochs: int,
        chunk_rows: int | None = None,
    ) -> None:
        self.negatives = Negatives(linked.links, task)
        self._linked, self._exclude = linked, exclude
        training, keys = self.negatives.training, linked.graph.arrays().keys
        self._of_links = edge_keys(keys[training.src], keys[training.dst], training.numbers)
        self._pairs: dict[int, Pairs] = {}  # by the id of the batch's graph, from its preparation until it trains
        super().__init__(linked.graph, plan, regime, epochs, chunk_rows, np.arange(len(training)), self._of_links)

    def pairs_of(self, graph: LoadedGraph) -> Pairs:
        """Return the pairs of a batch, whose graph `of_epoch` has yielded. They are asked for once."""
        return self._pairs.pop(id(graph))

    def _prepare(self, number: int) -> LoadedGraph:
        epoch, batch = divmod(number, self.count)
        chosen = self._targets(epoch)[batch]
        pairs = self.negatives.pairs(chosen, epoch, batch)
        rows = pairs.ends
        placed = pairs.among(rows)

        def draw(of: Randomness) -> Sample:
            without = self._linked.edges(chosen) if self._exclude and self._fanouts else None
            return self._sampler.sample(rows, self._fanouts, of, without)

        loaded = self._drawn_and_loaded(epoch, batch, draw)
        self._pairs[id(loaded)] = placed
        return loaded
