"""The memory limit: it becomes settings of processes, and plans are checked against it before they run."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import torch

from lotan.errors import ConfigurationError
from lotan.hosts.session import SessionSettings
from lotan.memory.free import free_memory
from lotan.settings.byte_sizes import as_limit, byte_count
from messenger.kept_rows import INDEX_BYTES, LEAST_ROW_BYTES
from messenger.settings import Settings
from planner.explain.sizes import memory, size
from planner.footprint import Footprint, footprint, reads_in_turn
from planner.layout import Layout
from planner.physical import Plan
from planner.shares import JVM_BYTES, MIB, STORAGE_SHARE, Crew, Shares, divide, fixed_bytes, storage_bytes
from planner.statistics import Statistics
from planner.traits import EngineTraits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lotan.hosts.spark_session import Heap
    from lotan.settings.config import TrainerConfig

FREE_SHARE = 0.6  # share of the free memory for a Spark heap; workers and Spark's files need memory too
SPARK_DEFAULT_HEAP = 1 << 30  # bytes
SPARK_STORAGE_SHARE = 0.6  # Spark's own `spark.memory.fraction`
ROW_SHARE = 0.5  # of what a worker keeps, for rows of mini-batches at most; the rest is for the chunks of evaluation
MORE_PARTITIONS = (2, 4, 8, 16, 24, 32, 64, 128)
"""Numbers of partitions to try, in multiples of Spark's concurrent tasks. More partitions need less memory and more time."""

Advice = tuple[str, int]
"""A change of settings in words, and the least limit in bytes that would be accepted with it."""


@dataclass(frozen=True)
class MemoryLimit:
    """The memory limit and the settings that go with it, on this host."""

    bytes: int | None  # None: no limit
    crew: Crew  # the processes of the blocks engine; on rows, each Spark task has a Python process too
    saved: int | None  # bytes for each worker between forward and backward; None: not given
    chunk_rows: int | None = None  # vertices that a stage processes at a time; None: not given
    one_jvm: bool = True  # False if the master of Spark is a cluster
    rows: int | None = None  # bytes for each worker of rows of mini-batches, however they come; None: not given
    rows_in_spark: bool = False  # True if learned rows lie in Spark on blocks
    checkpoints: bool = False  # True if the run writes checkpoints

    @classmethod
    def of(cls, config: TrainerConfig, rows_in_spark: bool = False) -> MemoryLimit:
        """Return the limit of a configuration, for a run whose learned rows lie in Spark on blocks, or do not."""
        limit = None if config.memory_limit is None else byte_count("memory_limit", config.memory_limit)
        saved = None if config.worker_memory is None else byte_count("worker_memory", config.worker_memory, 0)
        workers = config.workers or (0 if config.router is not None else os.cpu_count() or 1)
        rows = None if config.worker_rows is None else byte_count("worker_rows", config.worker_rows, 0)
        crew, one_jvm = Crew(workers, _tasks(config.master)), _in_one_jvm(config.master)
        checkpoints = config.checkpoint_dir is not None
        return cls(limit, crew, saved, config.chunk_rows, one_jvm, rows, rows_in_spark, checkpoints)

    @property
    def shares(self) -> Shares | None:
        """The limit divided between the processes; None without a limit."""
        return None if self.bytes is None else divide(self.bytes, self.crew, self.saved)

    def needs(self, traits: EngineTraits, plan: Plan, statistics: Statistics, partitions: int | None) -> Footprint:
        """Return the estimated memory that an engine needs for a plan.

        On blocks, if no number of partitions is given, there are as many as Spark runs tasks at once. If these do not
        fit the limit, the smallest number that fits is taken. If none does, sums over edges read other partitions one
        at a time, and again the smallest number that fits is taken.
        """
        layout = self.layout(traits, partitions)
        usual = footprint(traits, plan, statistics, layout)
        if self.bytes is None or not traits.more_partitions_fit or usual.least <= self.bytes:
            return usual
        tried = [usual]
        counts = [partitions] if partitions is not None else [times * layout.crew.tasks for times in MORE_PARTITIONS]
        ways = (False, True) if self.one_jvm and reads_in_turn(plan) else (False,)
        for in_turn, count in product(ways, counts):  # more partitions run in as many more waves of tasks
            found = footprint(traits, plan, statistics, replace(layout, partitions=count, in_turn=in_turn))
            found = replace(found, partitions=None if partitions is not None else count)
            if found.least <= self.bytes:
                return found
            tried.append(found)
        return min(tried, key=lambda one: one.least)

    def layout(self, traits: EngineTraits, partitions: int | None) -> Layout:
        """Return how an engine would divide a job between processes and partitions."""
        crew = replace(self.crew, spark_python=traits.python_tasks)
        cores = torch.get_num_threads() if traits.in_process else os.cpu_count() or 1
        rows_there = self.rows_in_spark and "learned_rows" in traits.abilities and not traits.in_process
        of_rows = {"rows_in_spark": rows_there, "rows_in_checkpoints": rows_there and self.checkpoints}
        return Layout(crew, partitions or crew.tasks, self.saved, cores, self.chunk_rows, **of_rows)

    def peak(self, needs: Footprint) -> int:
        """Return the estimated peak bytes of a job, which is at most the limit."""
        return needs.peak if self.bytes is None else min(needs.peak, self.bytes)

    def described(self, needs: Footprint) -> str:
        """Return the estimate and the limit in words, for explain and a run's first line."""
        without = ", without a limit" if self.bytes is not None and needs.peak > self.bytes else ""
        estimate = f"{memory(needs.peak)} estimated for the {needs.engine} engine{without}, all processes of this host together"
        if self.bytes is None:
            return estimate
        beyond = "; what exceeds it goes to the disk, or is computed again" if needs.peak > self.bytes else ""
        if needs.in_memory is not None:  # it is known before
            files = f"; up to {size(needs.on_disk)} of columns and saved values lie in files"
            beyond = files if needs.spills(self.bytes) else ""
        more = f" with {needs.partitions} partitions" if needs.partitions else ""
        more += ", of which sums over edges read one at a time" if needs.in_turn else ""
        return f"{estimate}; limit {_given(self.bytes)}, and the least that would do is {as_limit(needs.least)}{more}{beyond}"

    def heap(self, needs: Footprint | None) -> Heap | None:
        """Return the heap of a Spark session of our own; None: Spark's own default.

        Args:
            needs: The footprint of the plan that will run there; None: not known.
        """
        from lotan.hosts.spark_session import Heap  # imported here, because the local engine needs no Spark

        if self.shares is not None:
            return Heap(self.shares.heap, capped=True)
        wanted = min(0 if needs is None else needs.heap, int(FREE_SHARE * free_memory()))
        return Heap(wanted) if wanted > SPARK_DEFAULT_HEAP else None

    def storage(self, traits: EngineTraits, needs: Footprint) -> int | None:
        """Return the bytes of columns for which Spark's heaps have room: those of the running session, or of one of ours.

        Args:
            traits: The traits of the engine.
            needs: The footprint of what will run there, which sizes the heap of a new session.

        Returns:
            The bytes; None if the engine is not on Spark, or if its executors are not known before they run.
        """
        if traits.in_process:
            return None
        if "pyspark" in sys.modules:
            from lotan.hosts.spark_session import active_session, storage_of  # here, as in `heap`

            session = active_session()
            if session is not None:
                return storage_of(session)
        if not self.one_jvm:
            return None
        heap = self.heap(needs)
        if heap is None:
            return storage_bytes(SPARK_DEFAULT_HEAP, SPARK_STORAGE_SHARE)
        return storage_bytes(heap.bytes, STORAGE_SHARE if heap.capped else SPARK_STORAGE_SHARE)

    def messenger(self) -> Settings:
        """Return the settings of both sides of the messenger.

        Raises:
            ConfigurationError: If the rows that workers are to keep exceed their shares of the limit.
        """
        shares, rows = self.shares, self.rows
        plain = Settings() if shares is None else Settings(kept_bytes=shares.kept, shared_bytes=shares.shared)
        kept = plain.kept_bytes
        if rows is None:
            return replace(plain, kept_row_bytes=int(kept * ROW_SHARE))
        if shares is not None and rows > kept:
            raise ConfigurationError(
                f"worker_rows is {_given(rows)}, but memory_limit leaves {memory(kept)} for what a worker keeps: give at most "
                f"{kept // MIB}m, a larger limit, or leave worker_rows out"
            )
        return replace(plain, kept_bytes=max(kept, rows), kept_row_bytes=rows, offer_shared_rows=rows > 0)

    def rows_kept(self, row: int, vertices: float, of_batch: float) -> int:
        """Return the bytes of the rows of mini-batches that all workers of this host together keep.

        Args:
            row: The bytes of a vertex's row.
            vertices: The number of vertices.
            of_batch: The number of vertices of a batch, whose rows are kept if they do not fit into shared memory.
        """
        settings = self.messenger()
        if row < LEAST_ROW_BYTES or not (settings.offer_shared_rows or row * of_batch > settings.shared_bytes):
            return 0
        return self.crew.workers * min(settings.kept_row_bytes, int(vertices * (row + INDEX_BYTES)))

    def session(self, config: TrainerConfig) -> SessionSettings:
        """Return the settings of the Router and the workers."""
        plain = SessionSettings(
            config.workers, config.router, config.keys, capped=self.bytes is not None, messenger=self.messenger()
        )
        saved = self.saved if self.shares is None else self.shares.saved
        return plain if saved is None else replace(plain, worker_memory=saved)


def _in_one_jvm(master: str | None) -> bool:
    """Return True if Spark runs in one JVM: by its master, or by that of the running session if none is named."""
    if master is None and "pyspark" in sys.modules:
        from lotan.hosts.spark_session import active_session  # here, because the local engine needs no Spark

        session = active_session()
        master = None if session is None else session.sparkContext.master
    return is_one_jvm(master or "local")


def is_one_jvm(master: str) -> bool:
    """Return True for a master with which Spark runs in one JVM.

    >>> [is_one_jvm(master) for master in ("local", "local[2]", "local-cluster[2,1,1024]", "spark://host:7077")]
    [True, True, False, False]
    """
    return re.match(r"local(\[|$)", master) is not None


def check_fits(
    limit: MemoryLimit,
    engine: str,
    found: Mapping[str, Footprint],
    advice: Callable[[], Sequence[Advice]] = tuple,
) -> None:
    """Refuse an engine that needs more than the limit.

    Args:
        limit: The memory limit.
        engine: The name of the chosen engine.
        found: The footprint on each engine that was considered, by engine name.
        advice: Returns changes of settings that would be accepted. It is called only if the engine is refused.

    Raises:
        ConfigurationError: If the engine does not fit. The message has each engine's needs, the smallest limit that is
            enough, and what would be accepted otherwise.
    """
    if limit.bytes is None or found[engine].least <= limit.bytes:
        return
    least = as_limit(found[engine].least)
    each = ", ".join(f"{one.engine} {as_limit(one.least)}" for one in found.values())
    of_all = f"estimated, of all processes: {each}" if len(found) > 1 else "estimated, of all processes together"
    mends = [f"give {least}"]
    for words, needed in advice():
        fits = needed <= limit.bytes
        mends.append(f"{words} ({as_limit(needed)} would do then)" if fits else f"{words} and give {as_limit(needed)}")
    unit = "; a number without a unit is bytes" if limit.bytes < MIB else ""
    raise ConfigurationError(
        f"memory_limit is {_given(limit.bytes)}, and engine {engine!r} needs at least {least} here ({of_all}): "
        f"{', or '.join(mends)}{unit}"
    )


def _given(count: int) -> str:
    """Return a limit in words, as it can be given if it is a whole number of mebibytes.

    >>> _given(512 << 20), _given(3_000_000_000), _given(3000)
    ('512m', '2.8 GiB', '3,000 bytes')
    """
    if count % MIB == 0:
        return as_limit(count)
    return memory(count) if count >= MIB else f"{count:,} bytes"


def heap_notes(limit: MemoryLimit, spark: SparkSession) -> tuple[str, ...]:
    """Return warnings about what the limit cannot change in an active session, unless the session was started for this limit.

    Raises:
        ConfigurationError: If the heap of that session leaves too little memory.
    """
    if limit.bytes is None:
        return ()
    from lotan.hosts.spark_session import driver_heap  # imported here, as in `MemoryLimit.heap`

    heap = driver_heap(spark)
    ours = limit.heap(None)
    if ours is not None and heap <= ours.bytes:  # a session of our own has such a heap
        return ()
    beside = fixed_bytes(limit.crew) + limit.crew.workers * (limit.saved or 0)
    if heap + beside > limit.bytes:
        raise ConfigurationError(
            f"memory_limit is {_given(limit.bytes)}, but the Spark session that is active has a heap of {memory(heap)} "
            f"(spark.driver.memory), and everything else takes {memory(beside)}: start it with "
            f"{as_limit(max(MIB, limit.bytes - beside))} or less, give a limit of {as_limit(heap + beside)}, or fewer workers"
        )
    return (
        f"memory_limit: the heap of the active Spark session stays as it was started, {memory(heap)}, and what its JVM takes "
        f"beside it, about {memory(JVM_BYTES)}, has no cap",
    )


def _tasks(master: str | None) -> int:
    """Return how many tasks Spark runs at once on this host; on a cluster, the number of this host's cores."""
    named = re.match(r"local\[(\d+)", master or "")
    return int(named[1]) if named else 1 if master == "local" else os.cpu_count() or 1
