"""The sizes of the chunks in which engines run stages, and of the memory that workers have for saved values.

Costs and memory estimates depend on these sizes.
"""

from __future__ import annotations

from math import ceil

from planner.layout import Layout
from planner.traits import EngineTraits

CHUNK_ROWS = 1024
"""The vertices in a chunk that a worker runs a stage on, by default. The values of such a chunk stay in a core's cache."""

LOCAL_ROWS = 16 * CHUNK_ROWS
"""The same for "local". Its threads share one interpreter and would wait for one another if chunks were smaller."""

ONE_CHUNK = 2 * LOCAL_ROWS
"""The most vertices that are one chunk on "local". torch shares an operator's rows among threads better than threads
would share so few chunks."""

GROUP_ROWS = 8 * CHUNK_ROWS
"""The rows of "local" over which gradients of parameters are summed in float32. Larger chunks are summed one by one."""

LEAST_GROUPS = 16
"""The least number of groups of chunks with a common sum, if there are enough chunks, so that threads have work to share."""

CHUNKS_A_THREAD = 4
"""The least number of chunks per thread of "local". With fewer, torch shares each operator's rows among the threads
instead."""

SHARES = 4
"""A few chunks of "local" are made a multiple of this number, so that two or four threads have equally many."""

ALIGNED = 16
"""The number of rows of which chunks on "local" are multiples. Each chunk then begins at a cache line, for any width."""

SAVED_BYTES = 1 << 30
"""The memory of a worker for values that are saved between forward and backward, by default. Bytes."""

SLICE_BYTES = 128 << 20
"""The memory of "local" for the part of a column in files that a sum over edges reads. Bytes."""

PART_BYTES = 32 << 20
"""The memory for an array in a file while it is read or written from its beginning to its end. Bytes."""

EDGES_READ = 1 << 19
"""The edges that are read, or sorted, in memory at one time, where the edges of a graph lie in files."""

LEAST_SLICE = 16
"""The numbers of each row in such a part, even if they take more than `SLICE_BYTES`: with fewer, the edges cost more than
the rows."""


def slice_width(rows: int, width: int) -> int:
    """Return how many numbers of each row a sum over edges reads at a time from a column in files.

    >>> slice_width(1_000_000, 256), slice_width(1_000_000, 16), slice_width(100_000_000, 256)
    (33, 16, 16)
    """
    return max(1, min(width, max(LEAST_SLICE, SLICE_BYTES // (4 * max(1, rows)))))


def local_chunk_rows(vertices: int) -> int:
    """Return the most vertices in a chunk of "local". It depends on the graph alone, so all models sum in the same order."""
    return max(1, vertices) if vertices <= ONE_CHUNK else LOCAL_ROWS


def even_chunks(rows: int, most: int) -> tuple[int, int]:
    """Return the number of chunks of "local" for so many rows, and the rows of each but the last.

    If there are few chunks, they are smaller than `most`, so that all threads have equally much to do.

    >>> even_chunks(32_768, 32_768), even_chunks(100_000, LOCAL_ROWS), even_chunks(1_000_000, LOCAL_ROWS)
    ((1, 32768), (8, 12512), (62, 16144))
    """
    count = -(-rows // most)
    if 1 < count < LEAST_GROUPS:
        count = -(-count // SHARES) * SHARES
    even = -(-rows // max(1, count))
    length = max(1, min(most, -(-even // ALIGNED) * ALIGNED))
    return -(-rows // length), length


def sharing_threads(chunks: int, threads: int) -> int:
    """Return the number of threads of "local" that share the chunks: all, or one if there are too few chunks.

    One thread runs all chunks then, and torch shares each operator's rows among the others.
    """
    return max(1, threads) if chunks >= CHUNKS_A_THREAD * threads else 1


def chunks_in_group(chunks: int, rows: int) -> int:
    """Return the number of chunks of "local" whose gradients are summed together. `rows` are the most in a chunk.

    It depends on the graph alone, so that sums do not depend on the number of threads.

    >>> chunks_in_group(1000, CHUNK_ROWS), chunks_in_group(32, CHUNK_ROWS), chunks_in_group(1000, LOCAL_ROWS)
    (8, 2, 1)
    """
    return max(1, min(GROUP_ROWS // rows, chunks // LEAST_GROUPS))


def chunk_count(rows: int, traits: EngineTraits, layout: Layout) -> int:
    """Return the number of chunks in which a stage runs over so many vertices."""
    if traits.chunking == "whole":
        return max(1, even_chunks(rows, layout.chunk_rows or local_chunk_rows(rows))[0])
    return layout.partitions * max(1, ceil(ceil(rows / layout.partitions) / chunk_rows(rows, traits, layout)))


def chunk_rows(rows: int, traits: EngineTraits, layout: Layout) -> int:
    """Return the most vertices in a chunk of a stage that runs over so many vertices."""
    if traits.chunking == "whole":
        return even_chunks(rows, layout.chunk_rows or local_chunk_rows(rows))[1]
    return layout.chunk_rows or CHUNK_ROWS
