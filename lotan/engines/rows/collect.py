"""Collect and its adjoint: source rows go to the chunks that read them, and their summed gradients come back."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lotan.engines.rows.levels import LEVEL
from lotan.engines.rows.placement import ID, PART
from lotan.engines.rows.sums import VALUE, Sums


def collect(sources: DataFrame, columns: Sequence[DataFrame]) -> DataFrame:
    """Pair each chunk's distinct sources with their rows of `columns`.

    Args:
        sources: Rows of `Tables.sources`, placed by spart.
        columns: For each column a frame of part, id, VALUE, placed by part.

    Returns:
        part, chunk, position, id, spart, LEVEL, value0, value1 ..., placed with the sources. The pipe that reads the
        frame brings it to the chunks, in the one shuffle that it needs anyway. A null is a row of zeros.
    """
    rows = sources.select(PART, "chunk", "position", F.col("src").alias(ID), "spart", LEVEL)
    for number, column in enumerate(columns):
        values = column.select(F.col(PART).alias("cpart"), F.col(ID).alias("cid"), F.col(VALUE).alias(f"value{number}"))
        rows = rows.join(
            values.hint("shuffle_hash"), (rows["spart"] == values["cpart"]) & (rows[ID] == values["cid"]), "left"
        ).drop("cpart", "cid")
    return rows


def gather(contributions: DataFrame, sums: Sums, *, combine: bool) -> DataFrame:
    """Sum the rows that the chunks of all partitions returned for a vertex.

    Args:
        contributions: part, id (of the vertex), origin (the partition of the chunk), chunk, position, VALUE. `position`
            tells apart several rows of one chunk and vertex.
        sums: The physical form of the sums.
        combine: True to sum the chunks of a partition before the shuffle; otherwise every row crosses it by itself.

    Returns:
        part, id, VALUE, placed by part. Vertices that are nobody's source have no row.
    """
    if not combine:
        return sums.deliver(contributions, ("origin", "chunk", "position"))
    ordered = contributions.sortWithinPartitions(PART, ID, "origin", "chunk", "position")
    return sums.deliver(sums.combine_streaming(ordered, (PART, ID, "origin")), ("origin",))
