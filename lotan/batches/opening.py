"""Opens the mini-batches of a run, on the engine that the run has."""

from __future__ import annotations

from lotan.batches.schedule import Batches, TrainingBatches
from lotan.engines.base import Engine
from lotan.engines.local.engine import LocalEngine
from lotan.graph.graph import Graph
from lotan.settings.config import TrainerConfig
from lotan.settings.regimes import MiniBatch
from lotan.tables.pipeline import RowPipeline
from planner.physical import Plan
from planner.spec import SPLITS


def open_batches(
    engine: Engine,
    graph: Graph,
    plan: Plan,
    config: TrainerConfig,
    both: bool,
    epochs: int | None = None,
    rows: RowPipeline | None = None,
) -> TrainingBatches:
    """Return the mini-batches of a run whose regime is MiniBatch. Whoever opens them closes them, before the engine.

    Args:
        engine: The engine, with the graph loaded.
        graph: The graph.
        plan: The plan of a batch.
        config: The settings of the run.
        both: True if batches have out-edges too.
        epochs: The last epoch for which batches are prepared; None: that of the settings.
        rows: The pipeline of learned rows that lie in tables, if they do.

    Raises:
        ConfigurationError: If the engine cannot train on mini-batches.
    """
    regime = config.regime
    assert isinstance(regime, MiniBatch)
    if isinstance(engine, LocalEngine):
        last, in_files = epochs or config.epochs, engine.in_files
        here = Batches(graph, plan, regime, last, config.chunk_rows, both=both, in_files=in_files)
        here.rows = rows
        return here
    from lotan.batches.on_spark import SparkBatches  # imported here, because the local engine needs no Spark
    from lotan.engines.blocks.engine import BlocksEngine

    assert isinstance(engine, BlocksEngine)  # the settings refuse others
    examples = graph.labels.labelled[SPLITS.index("train")]
    in_spark = SparkBatches(engine, graph, plan, regime, examples, config.chunk_rows, both=both)
    in_spark.rows = rows
    return in_spark
