"""What keeps a run from the blocks engine, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lotan.engines.blocks.facade import facade
from lotan.engines.blocks.traits import TRAITS
from lotan.errors import EngineError
from lotan.hosts.jar import require_jar
from lotan.hosts.spark_session import active_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lotan.settings.config import TrainerConfig


def obstacle(config: TrainerConfig, spark: SparkSession | None) -> str | None:
    """Why the rows engine has to run this, and what would let the blocks engine do it; None where nothing stands in its way.

    Args:
        config: may ask for what only rows can.
        spark: the session that it would run in; None for the active one, else one of our own.
    """
    if TRAITS.needs_rgb and not config.rgb:
        return "they always sum gradients before these cross partitions (rgb, --no-rgb)"
    if config.propagate != "join":
        return f"they have their own way to propagate, and {config.propagate!r} was asked for (propagate, --propagate)"
    try:
        session = spark or active_session()
        if session is None:
            require_jar()  # sessions of our own have it then
        else:
            facade(session)
    except EngineError as error:
        return str(error)
    return None
