"""Propagate: a sum along edges, as a join, a sum where the messages start, a shuffle, and a sum where they end."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lotan.engines.rows.placement import ID, PART
from lotan.engines.rows.sums import VALUE, Sums


def propagate(
    edges: DataFrame, column: DataFrame, sums: Sums, *, weighted: bool, reverse: bool, combine: bool
) -> DataFrame:
    """Sum `column` along `edges`.

    Args:
        edges: The frame of `Tables.placed_edges(..., reverse)`; its order is the order of the sums.
        column: part, id, VALUE, placed by part. Vertices without a row send nothing.
        sums: The physical form of the sums.
        weighted: True to multiply by the edge's weight.
        reverse: True to sum from destinations to sources.
        combine: True to sum before the shuffle; otherwise every message crosses it by itself (the naive way, for comparison).

    Returns:
        part, id, VALUE, placed by part. Vertices that no message reached have no row.
    """
    start, start_part, end, end_part = ("dst", "dpart", "src", "spart") if reverse else ("src", "spart", "dst", "dpart")
    messages = edges.join(
        # Spark builds a hash table of a partition's vertices, and so leaves the edges in their order.
        column.hint("shuffle_hash"),
        (edges[start_part] == column[PART]) & (edges[start] == column[ID]),
    ).select(
        F.col(start_part).alias("origin"),
        F.col(end_part).alias(PART),
        F.col(end).alias(ID),
        F.col(start).alias("sender"),
        _message(weighted).alias(VALUE),
    )
    if combine:
        return sums.deliver(sums.combine(messages, ("origin", PART, ID)), ("origin",))
    return sums.deliver(messages, ("origin", "sender", VALUE))  # parallel edges may differ in weight


def _message(weighted: bool) -> Column:
    value = F.col(VALUE)
    return F.transform(value, lambda number: number * F.col("weight")) if weighted else value
