"""A memory limit as settings of what is started, and as a preflight of what is planned."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from lotan.byte_sizes import byte_count
from lotan.errors import ConfigurationError
from lotan.free_memory import free_memory
from lotan.session import SessionSettings
from messenger.settings import Settings
from planner.choices.choose_physical import Candidate, choose_physical
from planner.explain import size
from planner.footprint import Footprint, footprint
from planner.layout import Layout
from planner.physical import Plan
from planner.shares import JVM_BYTES, MIB, Crew, Shares, divide, fixed_bytes
from planner.statistics import Statistics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lotan.settings import TrainerConfig
    from lotan.spark_session import Heap

FREE_SHARE = 0.6  # of the memory now free, for a heap: workers and Spark's files want theirs too
SPARK_DEFAULT_HEAP = 1 << 30  # bytes
MORE_PARTITIONS = (2, 4, 8, 16, 32)
"""Times as many as Spark runs tasks at once. Tasks then have less in hand; more than fit the limit never cost less."""


@dataclass(frozen=True)
class MemoryLimit:
    """What the limit and the settings beside it come to on this host."""

    bytes: int | None  # None: no limit
    crew: Crew  # of blocks; on rows, Spark's tasks have Python processes beside
    saved: int | None  # bytes for each worker, where they were given
    chunk_rows: int | None = None  # vertices a stage runs on at a time, where they were given

    @classmethod
    def of(cls, config: TrainerConfig) -> MemoryLimit:
        """As configured."""
        limit = None if config.memory_limit is None else byte_count("memory_limit", config.memory_limit)
        saved = None if config.worker_memory is None else byte_count("worker_memory", config.worker_memory, 0)
        workers = config.workers or (0 if config.router is not None else os.cpu_count() or 1)
        return cls(limit, Crew(workers, _tasks(config.master)), saved, config.chunk_rows)

    @property
    def shares(self) -> Shares | None:
        """The limit divided; None without one."""
        return None if self.bytes is None else divide(self.bytes, self.crew, self.saved)

    def needs(self, engine: str, plan: Plan, statistics: Statistics, partitions: int | None) -> Footprint:
        """What an engine is estimated to need for a plan of its own.

        Blocks that were asked for in no number are as many as Spark runs tasks at once, or the fewest that fit the limit.
        """
        layout = self.layout(engine, partitions)
        usual = footprint(engine, plan, statistics, layout)
        if self.bytes is None or usual.least <= self.bytes or partitions is not None or engine != "blocks":
            return usual
        candidates = [Candidate(usual, cost=1.0, fits=False)]
        for times in MORE_PARTITIONS:  # and as many waves of tasks
            count = times * layout.crew.tasks
            found = footprint(engine, plan, statistics, replace(layout, partitions=count))
            candidates.append(Candidate(replace(found, partitions=count), times, found.least <= self.bytes))
        chosen = choose_physical(candidates)
        return chosen.what if chosen.fits else min((one.what for one in candidates), key=lambda one: one.least)

    def layout(self, engine: str, partitions: int | None) -> Layout:
        """How an engine would spread a job."""
        crew = replace(self.crew, spark_python=engine == "rows")
        cores = torch.get_num_threads() if engine == "local" else os.cpu_count() or 1
        return Layout(crew, partitions or crew.tasks, self.saved, cores, self.chunk_rows)

    def peak(self, needs: Footprint) -> int:
        """Bytes that a job comes to: within the limit, if there is one."""
        return needs.peak if self.bytes is None else min(needs.peak, self.bytes)

    def described(self, needs: Footprint) -> str:
        """For explain, and a run's first line."""
        estimate = f"{size(needs.peak)} estimated for the {needs.engine} engine, all processes of this host together"
        if self.bytes is None:
            return estimate
        beyond = "; what exceeds it goes to the disk, or is computed again" if needs.peak > self.bytes else ""
        more = f" with {needs.partitions} partitions" if needs.partitions else ""
        return f"{estimate}; limit {size(self.bytes)}, which may be no less than {size(needs.least)}{more}{beyond}"

    def heap(self, needs: Footprint | None) -> Heap | None:
        """Of a Spark session of our own; None: Spark's own default.

        Args:
            needs: what will be run there, as far as that is known.
        """
        from lotan.spark_session import Heap  # here, for whoever trains on the local engine needs no Spark

        if self.shares is not None:
            return Heap(self.shares.heap, capped=True)
        wanted = min(0 if needs is None else needs.heap, int(FREE_SHARE * free_memory()))
        return Heap(wanted) if wanted > SPARK_DEFAULT_HEAP else None

    def messenger(self) -> Settings:
        """Of both sides of the messenger."""
        shares = self.shares
        return Settings() if shares is None else Settings(kept_bytes=shares.kept, shared_bytes=shares.shared)

    def session(self, config: TrainerConfig) -> SessionSettings:
        """Of the Router and the workers."""
        plain = SessionSettings(
            config.workers, config.router, config.keys, capped=self.bytes is not None, messenger=self.messenger()
        )
        saved = self.saved if self.shares is None else self.shares.saved
        return plain if saved is None else replace(plain, worker_memory=saved)


def check_fits(limit: MemoryLimit, engine: str, found: Mapping[str, Footprint]) -> None:
    """Refuse an engine that needs more than the limit.

    Args:
        limit: see there.
        engine: chosen.
        found: of every engine that was considered, that one among them.

    Raises:
        ConfigurationError: with each engine's numbers, and the least limit that would do.
    """
    if limit.bytes is None or found[engine].least <= limit.bytes:
        return
    each = ", ".join(f"{one.engine} {size(one.least)}" for one in found.values())
    others = [one for one in found.values() if one.least <= limit.bytes]
    best = min(found.values(), key=lambda one: one.least)
    if others:
        mend = f"take engine {others[0].engine!r}, or give {_text(found[engine].least)}"
    else:
        would_do = (f"{_text(one.least)} ({one.engine})" for one in dict.fromkeys([found[engine], best]))
        mend = f"the least that would do is {', '.join(would_do)}"
    least, given = found[engine].least, size(limit.bytes)
    if limit.bytes % MIB == 0:
        given = f"{_text(limit.bytes)} ({given})"
    raise ConfigurationError(
        f"memory_limit is {given}, and engine {engine!r} needs at least "
        f"{_text(least)} ({size(least)}) here (estimated, of all processes: {each}); {mend}"
        + ("" if engine == "local" else ", or give fewer workers")
    )


def _text(count: int) -> str:
    """Bytes as the setting takes them, rounded up.

    >>> _text(1), _text(3 << 30)
    ('1m', '3072m')
    """
    return f"{-(-count // MIB)}m"


def heap_notes(limit: MemoryLimit, spark: SparkSession) -> tuple[str, ...]:
    """What a limit cannot do with a session that is there, unless it was started for this limit.

    Raises:
        ConfigurationError: that session's heap alone leaves too little.
    """
    if limit.bytes is None:
        return ()
    from lotan.spark_session import driver_heap  # here, as in `MemoryLimit.heap`

    heap = driver_heap(spark)
    ours = limit.heap(None)
    if ours is not None and heap <= ours.bytes:  # as a session of our own has it
        return ()
    beside = fixed_bytes(limit.crew) + limit.crew.workers * (limit.saved or 0)
    if heap + beside > limit.bytes:
        raise ConfigurationError(
            f"memory_limit is {size(limit.bytes)}, but the Spark session that is active has a heap of {size(heap)} "
            f"(spark.driver.memory), and everything else takes {size(beside)}: start it with "
            f"{_text(max(MIB, limit.bytes - beside))} or less, give a limit of {_text(heap + beside)}, or fewer workers"
        )
    return (
        f"memory_limit: the heap of the active Spark session stays as it was started, {size(heap)}, and what its JVM takes "
        f"beside it, about {size(JVM_BYTES)}, has no cap",
    )


def _tasks(master: str | None) -> int:
    """Tasks that Spark runs at once on this host; on a cluster, as many as here are cores."""
    named = re.match(r"local\[(\d+)", master or "")
    return int(named[1]) if named else 1 if master == "local" else os.cpu_count() or 1
