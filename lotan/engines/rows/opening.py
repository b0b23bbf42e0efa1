"""From a training's settings to a rows engine that stands: Spark, Router and workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lotan.engines.rows.engine import RowsEngine, RowsSettings
from lotan.session import Session, SessionSettings
from lotan.spark_session import SparkSettings, open_spark

if TYPE_CHECKING:
    from lotan.settings import TrainerConfig


def open_rows(config: TrainerConfig) -> RowsEngine:
    """Start what is not there yet; closing the engine stops that, and leaves alone what was there.

    Raises:
        ConfigurationError: settings that do not go together.
        EngineError: Spark, the Router or the workers did not come up in time.
        MessengerError: the Router cannot be reached.
    """
    session = Session(SessionSettings(workers=config.workers, router=config.router, keys=config.keys))
    opened: list[object] = [session]  # workers load while Spark starts
    try:
        spark = open_spark(SparkSettings(master=config.master))
        opened.insert(0, spark)
        session.wait()
        assert session.link is not None
        settings = RowsSettings(partitions=config.partitions, chunk_rows=config.chunk_rows)
        return RowsEngine(spark.session, session.link, session.endpoint, settings, opened)
    except BaseException:
        for item in reversed(opened):
            item.close()  # type: ignore[attr-defined]
        raise
