"""Reasons against the blocks engine, in words."""

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
    """Return the reason why the rows engine must run this, and a way to use blocks; None if nothing is in the way.

    Args:
        config: The settings, some of which only rows can follow.
        spark: The session that would run it; None: the active session, or else one of our own.
    """
    if TRAITS.needs_rgb and not config.rgb:
        return "they always sum gradients before gradients cross partitions (rgb, --no-rgb)"
    if config.propagate != "join":
        return f"they have a propagation of their own, but {config.propagate!r} was asked for (propagate, --propagate)"
    try:
        session = spark or active_session()
        if session is None:
            require_jar()  # sessions of our own have the jar, if it exists
        else:
            facade(session)
    except EngineError as error:
        return str(error)
    return None
