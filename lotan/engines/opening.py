"""Starts an engine with the processes that it needs, and brings the graph to the place where the engine reads it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lotan.engines.base import Engine
from lotan.engines.choice import ENGINES, check_connect, fits_in_memory
from lotan.hosts.local_folder import remove_stale
from planner.chunks import CHUNK_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lotan.graph.graph import Graph
    from lotan.hosts.session import Session
    from lotan.memory.limit import MemoryLimit
    from lotan.settings.config import TrainerConfig
    from planner.footprint import Footprint

SPARK_ARGUMENTS = frozenset(("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"))
"""Environment variables with which a session may have jars that we do not know of."""


ROOM_TO_KEEP = 3
"""How many times a run's estimated memory must be free, so that it may keep what it frees: it has then taken up to twice as
much."""


def open_engine(needs: Footprint, graph: Graph, config: TrainerConfig) -> Engine:
    """Start an engine. Closing it stops all that was started. Engines are imported here, since local needs no Spark.

    Folders that killed runs have left among the temporary files are removed first.

    Args:
        needs: The footprint, which names the engine.
        graph: The graph to be loaded.
        config: The settings of the run.

    Raises:
        EngineError: If columns are to lie in files, and the disk has too little room for them or is in memory.
    """
    remove_stale(Path(tempfile.gettempdir()))
    if not ENGINES[needs.engine].in_process:
        return _open_on_spark(needs, graph, config)
    from lotan.engines.local.engine import LocalEngine
    from lotan.memory.free import free_memory
    from lotan.memory.limit import MemoryLimit
    from lotan.memory.mapped import check_room
    from planner.holding.budget import Budget

    limit, whole = MemoryLimit.of(config).bytes, needs.in_memory or needs.least
    if on_disk := needs.spills(limit):
        check_room(needs.on_disk)
    spare = None if limit is None else max(0, limit - whole)
    keeps_freed = limit is None and ROOM_TO_KEEP * needs.peak <= free_memory()
    budget = None  # batches and scores take memory that no plan of columns knows
    if limit is not None and on_disk and needs.alone:
        budget = Budget(limit, MemoryLimit.of(config).layout(ENGINES[needs.engine], None))
    return LocalEngine(config.chunk_rows, spare=spare, on_disk=on_disk, keeps_freed=keeps_freed, budget=budget)


def check_engine(config: TrainerConfig, graph: Graph | None = None) -> None:
    """Check that a Router and a jar that are sure to be used are there, before Spark is started or the graph is read.

    Args:
        config: The settings of the run.
        graph: The graph; None: not known yet.

    Raises:
        ConfigurationError: If the engine does not run in the session of the graph.
        MessengerError: If the Router does not answer, or refuses.
        EngineError: If blocks were asked for, and the jar is missing or of another version. If the Python of the executors
            of a session that somebody else has started lacks this package.
    """
    check_connect(config.engine, graph)
    check_named_router(config.engine, config.router, config.keys)
    check_jar(config.engine, graph)
    check_python(config.engine, graph)


def check_named_router(engine: str, router: str | None, keys: str | Path | None) -> None:
    """Check that a Router that was named and may be used answers, before anything that takes longer.

    Raises:
        MessengerError: If it does not answer, or refuses.
    """
    if router is not None and engine != "local":
        from lotan.hosts.session import check_router

        check_router(router, keys)


def check_jar(engine: str, graph: Graph | None = None) -> None:
    """Check that blocks, if they were asked for, have their jar, before Spark is started or the graph is read.

    Args:
        engine: The engine of the settings.
        graph: The graph, whose Spark session counts if it is in Spark; otherwise the active session, or one to be started.

    Raises:
        EngineError: If the session has no jar of ours or the jar of another version, or if no jar is there to start one with.
    """
    if engine != "blocks":
        return
    from lotan.engines.blocks.facade import facade
    from lotan.hosts.jar import require_jar, spark_defaults
    from lotan.hosts.spark_session import active_session

    spark = graph.tables()[0].sparkSession if graph is not None and graph.origin == "spark" else active_session()
    if spark is not None:
        facade(spark)
    elif SPARK_ARGUMENTS.isdisjoint(os.environ) and not any("spark.jars" in line for line in spark_defaults()):
        require_jar()  # nothing else can give a session of our own the jar


def check_python(engine: str, graph: Graph | None = None) -> None:
    """Check the Python of Spark's executors, if an engine on Spark was asked for and the graph's session is known.

    Raises:
        EngineError: If it lacks this package, or has it in another version.
    """
    if engine in ("blocks", "rows") and graph is not None and graph.origin == "spark":
        _check_session(graph.tables()[0].sparkSession)


def _check_session(spark: SparkSession) -> None:
    from lotan.hosts.executors import check_executors
    from lotan.hosts.spark_session import has_own_python

    if not has_own_python(spark):
        check_executors(spark)


def _open_on_spark(needs: Footprint, graph: Graph, config: TrainerConfig) -> Engine:
    """Start Spark, then a Router with workers, then the engine. If one of them fails, those before it are stopped."""
    from lotan.hosts.session import Session
    from lotan.hosts.spark_session import SparkSettings, open_spark
    from lotan.memory.limit import MemoryLimit, heap_notes

    opened, limit = ExitStack(), MemoryLimit.of(config)
    try:
        check_room_on_spark(needs, limit)
        if graph.origin == "spark":
            spark = graph.tables()[0].sparkSession
        else:
            spark = opened.enter_context(closing(open_spark(SparkSettings(config.master, limit.heap(needs))))).session
            heap_notes(limit, spark)  # under spark-submit, the JVM has been started before
        if needs.engine == "blocks":
            from lotan.engines.blocks.facade import facade

            facade(spark)  # raises an error if the jar is missing, before workers are started
        _check_session(spark)
        session = opened.enter_context(Session(limit.session(config)))
        if needs.engine == "rows":
            return _rows(spark, session, config, opened)
        return _blocks(spark, session, config, needs, opened)
    except BaseException:
        opened.close()
        raise


def check_room_on_spark(needs: Footprint | None, limit: MemoryLimit) -> None:
    """Check that Spark's local disk has room for a run, whether a session runs already or one will be started.

    The disks of executors on other hosts cannot be seen from here, and are not checked.

    Args:
        needs: The footprint of what will run; None: not known.
        limit: The memory limit. Without one, a session of ours is expected to hold all columns in memory.

    Raises:
        EngineError: If a folder has too little room, or is in memory under a limit.
    """
    from lotan.hosts.spark_session import active_session, has_own_python, local_folders
    from lotan.memory.mapped import check_room

    session = active_session()
    ours = session is None or has_own_python(session)
    if needs is None or not limit.one_jvm or (ours and limit.bytes is None):
        return
    room = limit.storage(ENGINES[needs.engine], needs)
    if room is not None and needs.on_disk > room:
        setting, folders = local_folders(session)
        check_room(needs.on_disk, folders, setting, limited=limit.bytes is not None)


def _rows(spark: SparkSession, session: Session, config: TrainerConfig, opened: ExitStack) -> Engine:
    from lotan.engines.rows.engine import RowsEngine, RowsSettings

    assert session.link is not None  # a session has a link from its start to its end
    settings = RowsSettings(
        config.partitions,
        config.chunk_rows or CHUNK_ROWS,
        propagate=config.propagate,
        messenger=session.settings.messenger,
    )
    return RowsEngine(spark, session.link, session.endpoint, settings, on_close=[opened])


def _blocks(
    spark: SparkSession, session: Session, config: TrainerConfig, needs: Footprint, opened: ExitStack
) -> Engine:
    from lotan.engines.blocks.engine import BlocksEngine
    from lotan.engines.blocks.settings import BlocksSettings

    assert session.link is not None  # a session has a link from its start to its end
    settings = BlocksSettings(
        config.partitions,
        config.chunk_rows or CHUNK_ROWS,
        at_least=needs.partitions or 1,
        in_turn=needs.in_turn,
        messenger=session.settings.messenger,
    )
    return BlocksEngine(spark, session.link, session.endpoint, settings, on_close=[opened])


@contextmanager
def placed(graph: Graph, config: TrainerConfig, needs: Footprint | None) -> Iterator[Graph]:
    """Yield the graph at the place where the engine reads it: on Spark, files are opened by Spark, and may exceed this process.

    Args:
        graph: Any graph; only a graph in files changes its place.
        config: The settings. With engine "auto", Spark opens files only if they do not fit in this process's memory or
            the limit. If no Spark session is active, its master is used.
        needs: The footprint of what will be run, which sizes the heap of a new session; None: not known.
    """
    from lotan.memory.limit import MemoryLimit
    from lotan.memory.mapped import check_room

    limit, engine = MemoryLimit.of(config), config.engine
    fits = graph.origin != "files" or engine == "local"
    if fits or (engine == "auto" and fits_in_memory(graph.estimate(), limit.bytes)):
        spills = (
            needs is not None
            and ENGINES[needs.engine].in_process
            and needs.spills(limit.bytes)
            and graph.reads_in_parts
        )
        stored = config.regime.is_stored
        if needs is not None and spills:
            check_room(needs.on_disk)
        if spills or (stored and graph.reads_in_parts):
            graph = graph.in_files()
        yield graph
        return
    from lotan.hosts.spark_session import SparkSettings, open_spark

    check_room_on_spark(needs, limit)
    with closing(open_spark(SparkSettings(config.master, limit.heap(needs)))) as opened:
        yield graph.on_spark(opened.session)
