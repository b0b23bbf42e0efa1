"""Mini-batches of links on blocks: the driver chooses links and negatives, and Spark draws the edges around their ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lotan.batches.examples import batches_of_epoch
from lotan.batches.on_spark import SparkBatches
from lotan.batches.spark_frames import EpochFrames
from lotan.engines.base import Pass
from lotan.engines.blocks.engine import BlocksEngine
from lotan.graph.arrays import Positions
from lotan.links.examples import LinkGraph
from lotan.links.pairs import Negatives
from lotan.links.wire import encode_pairs
from lotan.settings.config import TrainerConfig
from lotan.settings.regimes import MiniBatch
from lotan.settings.tasks import ALL, LinkPrediction, excludes_targets
from lotan.stages.draws import Randomness
from planner.physical import Plan


class SparkLinkBatches(SparkBatches):
    """The batches of links of a run on the blocks engine.

    The links are arrays of this process: see `lotan.links.on_spark`. Their ends and negatives are the targets of a batch.
    They go to Spark once an epoch, which brings the features and the edges, and the pairs of a batch go to its worker.

    Args:
        engine: The engine, with the graph of messages loaded.
        linked: The graph and its links.
        plan: The plan of a batch, see `SparkBatches`.
        config: The settings of a run, whose regime is MiniBatch and whose task is a link task.
        scorer: The decoder and its settings as data, with which workers score pairs: see `lotan.links.wire.encode_scorer`.
        both: True if batches have out-edges too.

    Raises:
        ConfigurationError: If this Spark cannot place rows by number.
    """

    def __init__(
        self,
        engine: BlocksEngine,
        linked: LinkGraph,
        plan: Plan,
        config: TrainerConfig,
        scorer: dict[str, Any],
        both: bool = False,
    ) -> None:
        regime, task = config.regime, config.task
        assert isinstance(regime, MiniBatch)
        assert isinstance(task, LinkPrediction)
        self._linked, self._task = linked, task
        self._negatives = Negatives(linked.links, task)
        self._of_epoch: tuple[int, list[Positions]] = (0, [])  # an epoch and the links of its batches
        examples = len(self._negatives.training)
        super().__init__(engine, linked.graph, plan, regime, examples, config.chunk_rows, scorer, both)

    def _frames(self, epoch: int) -> EpochFrames:
        frames = super()._frames(epoch)
        frames.targets = self._targets(epoch)
        if excludes_targets(self._task) and self._fanouts:
            frames.without = self._own_edges(epoch)
        return frames

    def _offered(self, batch: int, a_pass: Pass, rows: Positions | None) -> dict[str, np.ndarray]:
        pairs = self._negatives.pairs(self._links(a_pass.epoch)[batch], a_pass.epoch, batch)
        return super()._offered(batch, a_pass, rows) | encode_pairs(pairs.among(pairs.ends))

    def _links(self, epoch: int) -> list[Positions]:
        """Return the training links of each batch of an epoch."""
        if self._of_epoch[0] != epoch:
            of = Randomness(self._regime.seed, epoch)
            numbers, keys = np.arange(len(self._negatives.training)), self._linked.keys_of_training
            self._of_epoch = epoch, batches_of_epoch(numbers, keys, self._regime.batch_size, of)
        return self._of_epoch[1]

    def _targets(self, epoch: int) -> DataFrame:
        """Return the ends of the links of all batches, and their negatives: batch, id."""
        if self._task.negatives == ALL:
            numbers = self._session.range(self.count).select(F.col("id").cast("int").alias("batch"))
            return numbers.crossJoin(self._graph.vertices.select("id"))
        found = [self._negatives.pairs(chosen, epoch, batch).ends for batch, chosen in enumerate(self._links(epoch))]
        return self._frame({"batch": _numbers(found), "id": self._linked.ids[np.concatenate(found)]})

    def _own_edges(self, epoch: int) -> DataFrame:
        """Return the links of all batches as edges, and their reverses where they may have been added."""
        linked, chosen = self._linked, self._links(epoch)
        training, rows = self._negatives.training, np.concatenate(chosen)
        src, dst = linked.ids[training.src[rows]], linked.ids[training.dst[rows]]
        types = {} if linked.types is None else {"edge_type": linked.types[rows]}
        numbers = _numbers(chosen)
        if training.both_ways:
            src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
            types = {name: np.tile(one, 2) for name, one in types.items()}
            numbers = np.tile(numbers, 2)
        return self._frame({"batch": numbers, "src": src, "dst": dst, **types})

    def _frame(self, columns: dict[str, np.ndarray]) -> DataFrame:
        wide = {name: one.astype(np.int64) if one.dtype.kind in "iu" else one for name, one in columns.items()}
        return self._session.createDataFrame(pa.table(wide | {"batch": columns["batch"]}))


def _numbers(batches: list[Positions]) -> np.ndarray:
    """Return the number of its batch for each of the numbers of all batches, int32 [numbers]."""
    return np.repeat(np.arange(len(batches), dtype=np.int32), [len(one) for one in batches])
