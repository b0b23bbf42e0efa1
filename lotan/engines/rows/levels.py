"""Levels of vertices, by joins: the fewest hops along edges from a vertex to a target. See `planner.rules.prune_vertices`."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lotan.engines.rows.placement import ID, PART, Placement, uncoupled
from planner.spec import SPLITS, Targets

LEVEL = "level"  # int: the level of a row's vertex; of an edge's destination; of several vertices, the lowest


def within(rows: DataFrame, level: int | None) -> DataFrame:
    """Return the rows within a level; None: all rows."""
    return rows if level is None else rows.where(F.col(LEVEL) <= level)


def vertex_levels(
    vertices: DataFrame, edges: DataFrame, deepest: int, targets: Targets, placement: Placement
) -> DataFrame:
    """Find every vertex's level by a join, a shuffle and a minimum for each hop.

    Args:
        vertices: part, id, split; placed by part.
        edges: spart, dpart, src, dst, placed by dpart, with one loop per vertex. Through its loop a vertex keeps its
            own level.
        deepest: The last level that is told apart from vertices beyond.
        targets: The name of the vertices of level 0.
        placement: The placement of vertices and edges.

    Returns:
        part, id, LEVEL, placed by part; vertices farther off have the level `deepest` + 1. The plan of the frame has no
        joins.
    """
    target = F.col("split") >= 0 if targets == "split" else F.col("split") == SPLITS.index("train")
    levels = vertices.select(PART, ID, F.when(target, 0).otherwise(deepest + 1).alias(LEVEL))
    for hops in range(1, deepest + 1):
        ends = levels.select(F.col(PART).alias("dpart"), F.col(ID).alias("dst"), LEVEL)
        loop = F.col("src") == F.col("dst")
        known = edges.join(ends.hint("merge"), ["dpart", "dst"]).where(loop | (F.col(LEVEL) == hops - 1))
        found = known.select(
            F.col("spart").alias(PART), F.col("src").alias(ID), F.when(loop, F.col(LEVEL)).otherwise(hops).alias(LEVEL)
        )
        levels = placement.place(found).groupBy(PART, ID).agg(F.min(LEVEL).alias(LEVEL))
    return placement.place(uncoupled(levels))
