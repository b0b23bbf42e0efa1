"""How engines cut vertices into the chunks that stages run on, and what workers keep of them: sizes that costs depend on."""

from __future__ import annotations

from math import ceil

from planner.layout import Layout
from planner.traits import EngineTraits

CHUNK_ROWS = 1024
"""Vertices that a worker runs a stage on at a time, unless told otherwise: what it makes of them stays in a core's cache."""

LOCAL_ROWS = 16 * CHUNK_ROWS
"""The same on "local", whose threads share one interpreter: calling operators on less, they wait for one another."""

ONE_CHUNK = 2 * LOCAL_ROWS
"""Vertices of which "local" makes one chunk: torch shares each operator's numbers better than threads share so few chunks."""

GROUP_ROWS = 8 * CHUNK_ROWS
"""Rows of "local" whose gradients of parameters are summed in float32; those of chunks with more, chunk by chunk."""

LEAST_GROUPS = 16
"""Groups of chunks that are summed so, where there are chunks enough: for threads to share."""

CHUNKS_A_THREAD = 4
"""Of "local": below it torch shares each operator better than threads share chunks."""

SHARES = 4
"""Few chunks of "local" are a multiple of this many, which two threads, or four, can share evenly."""

ALIGNED = 16
"""Rows: chunks of "local", of any width, begin at a cache line then."""

SAVED_BYTES = 1 << 30
"""What a worker keeps in memory between forward and backward, unless told otherwise."""


def local_chunk_rows(vertices: int) -> int:
    """Of a chunk of "local", at the most: by the graph alone, so that all models on it sum in one order."""
    return max(1, vertices) if vertices <= ONE_CHUNK else LOCAL_ROWS


def even_chunks(rows: int, most: int) -> tuple[int, int]:
    """How many chunks of "local" so many rows are, and the rows of each but the last.

    Where chunks are few they are smaller than they may be, so that threads have equally much to do.

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
    """How many threads of "local" share so many chunks: all, or where chunks are few one, and torch shares its operators."""
    return max(1, threads) if chunks >= CHUNKS_A_THREAD * threads else 1


def chunks_in_group(chunks: int, rows: int) -> int:
    """How many chunks of "local", of so many rows at the most, make a group.

    It depends on the graph alone, so that sums do not depend on how many threads share the work.

    >>> chunks_in_group(1000, CHUNK_ROWS), chunks_in_group(32, CHUNK_ROWS), chunks_in_group(1000, LOCAL_ROWS)
    (8, 2, 1)
    """
    return max(1, min(GROUP_ROWS // rows, chunks // LEAST_GROUPS))


def chunk_count(rows: int, traits: EngineTraits, layout: Layout) -> int:
    """The number of chunks in which a stage runs over so many vertices."""
    if traits.chunking == "whole":
        return max(1, even_chunks(rows, layout.chunk_rows or local_chunk_rows(rows))[0])
    return layout.partitions * max(1, ceil(ceil(rows / layout.partitions) / chunk_rows(rows, traits, layout)))


def chunk_rows(rows: int, traits: EngineTraits, layout: Layout) -> int:
    """The most vertices in a chunk of a stage that runs over so many of them."""
    if traits.chunking == "whole":
        return even_chunks(rows, layout.chunk_rows or local_chunk_rows(rows))[1]
    return layout.chunk_rows or CHUNK_ROWS
