"""A tiny job through the jar, for `lotan doctor`: it shows that the jar loads and adds correctly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lotan.engines.blocks.facade import facade
from lotan.engines.blocks.pipe import numbered
from lotan.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERTICES = 10


def try_jar(spark: SparkSession) -> None:
    """Load a ring of ten vertices with a chord from each on two partitions, and sum each vertex's in-neighbours.

    Raises:
        EngineError: If the session has no jar of ours, or that of another version, or if the sums are wrong.
    """
    from pyspark.sql import DataFrame

    blocks = facade(spark)
    rows = [(vertex, [float(vertex), 1.0]) for vertex in range(VERTICES)]
    ends = [(vertex, (vertex + step) % VERTICES) for vertex in range(VERTICES) for step in (1, 3)]
    vertices = spark.createDataFrame(rows, "id bigint, x array<float>")
    edges = spark.createDataFrame(ends, "src bigint, dst bigint")
    graph = blocks.load(vertices._jdf, edges._jdf, 2, ["x"], None, None, 0, False)
    try:
        every = numbered(None)  # no level: all vertices
        sums = blocks.propagate(graph, blocks.column(graph, "x"), "graph", False, False, every, every, True)
        found = {row["id"]: row["values"] for row in DataFrame(blocks.table(graph, sums), spark).collect()}
    finally:
        blocks.close(graph)
    expected = {dst: [0.0, 0.0] for dst in range(VERTICES)}
    for src, dst in ends:
        expected[dst] = [expected[dst][0] + src, expected[dst][1] + 1]
    if found != expected:
        raise EngineError(f"the jar's sums over ten vertices are {found}; {expected} was expected")
