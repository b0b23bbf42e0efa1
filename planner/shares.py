"""Divides a memory limit among the processes of a job on one host.

The fixed parts were measured in small runs, with the versions in constraints.txt, and rounded up. `lotan.memory.watch`
counted them. torch's libraries take 240 MB of pages that all Python processes of a job share, and only the driver's
part includes them. The rest of a limit goes to Spark's heap, to workers, and to shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20

DRIVER_BYTES = 840 * MIB  # this process: 560 imported, 820 with a traced model; Spark's client adds little
ROUTER_BYTES = 24 * MIB
FORK_SERVER_BYTES = 300 * MIB  # what workers are forked from, without shared libraries: 260 of its own
WORKER_BYTES = (
    80 * MIB
)  # a DL worker beside what it shares with that process: 20 of its own, and the scratch of a chunk
JVM_BYTES = 500 * MIB  # Spark's JVM without its heap: classes, compiled code, stacks, buffers
SPARK_PYTHON_BYTES = 190 * MIB  # Python process of a Spark task on rows: 130 on a small graph
MALLOC_ARENAS = "2"  # for glibc in a process with a limit; by default it has eight a core, and returns no memory

HEAP_SHARE = 0.75  # part of a limit that goes to the heap, after the fixed parts
SHARED_SHARE = 0.05
LEAST_HEAP = 544 * MIB  # Spark does not start with less than 450, and part of the young generation is unusable
LEAST_SHARED, MOST_SHARED = 32 * MIB, 64 * MIB  # for one task
STORAGE_SHARE = 0.25  # part of the heap for columns that Spark holds; further columns lie on the disk
RESERVED_HEAP = 300 * MIB  # bytes that Spark reserves before that share is taken


@dataclass(frozen=True)
class Crew:
    """The processes of a job on this host, without the driver."""

    workers: int  # DL workers that are started on this host
    tasks: int  # tasks that Spark runs at one time
    spark_python: bool = False  # True if each task has a Python process


@dataclass(frozen=True)
class Shares:
    """The parts of a memory limit, in bytes."""

    heap: int  # heap of Spark's JVM
    saved: int  # in each worker: values saved between forward and backward
    kept: int  # in each worker: tensors that are sent to it once
    shared: int  # shared memory of each task


def fixed_bytes(crew: Crew) -> int:
    """Return the bytes that the processes take before they hold a row."""
    shared = ROUTER_BYTES + FORK_SERVER_BYTES if crew.workers else 0
    python = crew.tasks * SPARK_PYTHON_BYTES if crew.spark_python else 0
    return DRIVER_BYTES + shared + crew.workers * WORKER_BYTES + JVM_BYTES + python


def divide(limit: int, crew: Crew, saved: int | None = None) -> Shares:
    """Divide a limit. The parts may be too small for any run: `least_limit` says how much is needed.

    Args:
        limit: The limit in bytes.
        crew: The processes of the job.
        saved: Bytes for saved values in each worker, if decided already.
    """
    rest = limit - fixed_bytes(crew) - crew.workers * (saved or 0)
    shared = min(MOST_SHARED, max(LEAST_SHARED, int(rest * SHARED_SHARE) // max(1, crew.tasks)))
    heap = max(LEAST_HEAP, int(rest * HEAP_SHARE))
    of_workers = max(0, rest - heap - crew.tasks * shared) // max(1, crew.workers)
    return Shares(heap, of_workers // 2 if saved is None else saved, of_workers // (2 if saved is None else 1), shared)


def least_limit(heap: int, crew: Crew, saved: int | None = None) -> int:
    """Return the least limit, in bytes, whose share for the heap is at least `heap`."""
    rest = max(heap, LEAST_HEAP) / HEAP_SHARE
    return int(rest) + fixed_bytes(crew) + crew.workers * (saved or 0) + 1


def storage_bytes(heap: int, share: float = STORAGE_SHARE) -> int:
    """Return the bytes of columns for which Spark's storage has room in a heap.

    >>> storage_bytes(544 * MIB) // MIB, storage_bytes(200 * MIB)
    (61, 0)
    """
    return max(0, int(share * (heap - RESERVED_HEAP)))


def heap_for(in_hand: int) -> int:
    """Return the least heap, in bytes, whose part outside Spark's storage has room for the bytes that tasks have in hand."""
    return int((in_hand - STORAGE_SHARE * RESERVED_HEAP) / (1 - STORAGE_SHARE)) + 1
