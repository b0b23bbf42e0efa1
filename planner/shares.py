"""A memory limit divided among the processes of a job on one host, in one place.

The fixed parts are rounded up from small runs with the versions in constraints.txt, as `lotan.memory.watch` counts: torch's
libraries, 240 MB of pages that all of a job's Python processes map, are in the driver's part alone. The rest goes to Spark's
heap, to what workers keep, and to shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20

DRIVER_BYTES = 840 * MIB  # this process: 560 imported, 820 once a model is traced; Spark's client adds next to nothing
ROUTER_BYTES = 24 * MIB
WORKER_BYTES = 360 * MIB  # a DL worker beside the driver's libraries: 305 of its own, and the scratch of a chunk
JVM_BYTES = 500 * MIB  # Spark's JVM beside its heap: classes, compiled code, stacks, buffers
SPARK_PYTHON_BYTES = 190 * MIB  # a Python process of a Spark task, on rows: 130 on a small graph
MALLOC_ARENAS = "2"  # of glibc in a process with a limit; otherwise it has eight for each core, and returns none

HEAP_SHARE = 0.75  # of what the fixed parts leave
SHARED_SHARE = 0.05
LEAST_HEAP = 544 * MIB  # Spark refuses to start with less than 450, of which a part of the young generation is no use
LEAST_SHARED, MOST_SHARED = 32 * MIB, 64 * MIB  # of one task
STORAGE_SHARE = 0.25  # of the heap: columns that Spark may hold; beyond it they lie on the disk
RESERVED_HEAP = 300 * MIB  # Spark's own, before that share is taken


@dataclass(frozen=True)
class Crew:
    """The processes of a job on this host, beside the driver."""

    workers: int  # DL workers started here
    tasks: int  # that Spark runs at once
    spark_python: bool = False  # whether each task has a Python process


@dataclass(frozen=True)
class Shares:
    """Bytes for each."""

    heap: int  # of Spark's JVM
    saved: int  # of each worker, between forward and backward
    kept: int  # of each worker, of what is sent to it once
    shared: int  # of each task: shared memory


def fixed_bytes(crew: Crew) -> int:
    """What the processes take before they hold a row."""
    router = ROUTER_BYTES if crew.workers else 0
    python = crew.tasks * SPARK_PYTHON_BYTES if crew.spark_python else 0
    return DRIVER_BYTES + router + crew.workers * WORKER_BYTES + JVM_BYTES + python


def divide(limit: int, crew: Crew, saved: int | None = None) -> Shares:
    """A limit's shares. They may be less than anything can do with: see `least_limit`.

    Args:
        limit: bytes.
        crew: see there.
        saved: bytes for each worker that are settled already.
    """
    rest = limit - fixed_bytes(crew) - crew.workers * (saved or 0)
    shared = min(MOST_SHARED, max(LEAST_SHARED, int(rest * SHARED_SHARE) // max(1, crew.tasks)))
    heap = max(LEAST_HEAP, int(rest * HEAP_SHARE))
    of_workers = max(0, rest - heap - crew.tasks * shared) // max(1, crew.workers)
    return Shares(heap, of_workers // 2 if saved is None else saved, of_workers // (2 if saved is None else 1), shared)


def least_limit(heap: int, crew: Crew, saved: int | None = None) -> int:
    """The least limit of which that much heap is a share. Bytes."""
    rest = max(heap, LEAST_HEAP) / HEAP_SHARE
    return int(rest) + fixed_bytes(crew) + crew.workers * (saved or 0) + 1


def heap_for(in_hand: int) -> int:
    """The heap whose part beside Spark's storage has room for what tasks have in hand. Bytes."""
    return int((in_hand - STORAGE_SHARE * RESERVED_HEAP) / (1 - STORAGE_SHARE)) + 1
