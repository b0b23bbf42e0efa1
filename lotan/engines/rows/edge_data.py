"""The columns of edges that stages read: attributes, types, and which edges are self-loops.

All columns of an edge set that stages read lie side by side in one array, DATA. The array ORDER puts parallel edges of
equal weight in order. It holds the type and then the attributes, as far as the graph has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.edge_columns import LOOP, NO_EDGE_DATA, REDUCTIONS, EdgeData, fill_of
from planner.edge_columns import ORDER as AMONG_IN_EDGES

DATA, ORDER = "data", "order"
_FLOATS = "array<float>"


@dataclass(frozen=True)
class EdgeColumns:
    """The columns of one edge set that stages read.

    Attributes:
        names: their names, as in `planner.edge_columns`.
        data: the attributes and types that the graph's edges have.
    """

    names: tuple[str, ...] = ()
    data: EdgeData = NO_EDGE_DATA

    def width(self, name: str) -> int:
        """Return how many numbers an edge has in a column."""
        return (self.data.width or 0) if fill_of(name)[0] == "edge_attr" else 1

    def place(self, name: str) -> int:
        """Return the position in DATA at which a column begins."""
        return sum(map(self.width, self.names[: self.names.index(name)]))

    @property
    def total(self) -> int:
        """How many numbers an edge has in DATA."""
        return sum(map(self.width, self.names))

    # Frames

    def of_graph(self, edges: DataFrame) -> DataFrame:
        """Add DATA and ORDER to a graph's own edges.

        Args:
            edges: src, dst, and edge_attr and edge_type if there are such columns.
        """
        numbers = {
            "edge_attr": F.col("edge_attr"),
            "edge_type": F.array(F.col("edge_type").cast("float")),
            AMONG_IN_EDGES: F.array(F.lit(0.0).cast("float")),  # in-edges are in their order already
            LOOP: F.array((F.col("src") == F.col("dst")).cast("float")),
        }
        there = {"edge_type": self.data.typed, "edge_attr": self.data.width is not None}
        given = [name for name, is_there in there.items() if is_there]
        order = F.concat(*(numbers[name] for name in given)) if given else F.array().cast(_FLOATS)
        values = F.concat(*(numbers[fill_of(name)[0]] for name in self.names))
        return edges.withColumns({DATA: values, ORDER: order})

    def of_loops(self, vertices: DataFrame, edges: DataFrame, weighted: bool) -> DataFrame:
        """Return one self-loop for each vertex: src, dst, weight if the edges have weights, DATA and ORDER.

        Args:
            vertices: id.
            edges: the graph's own edges with ORDER, sorted by destination within a partition.
            weighted: True if the edges have weights.
        """
        weight = [F.col("weight")] if weighted else []
        own = edges.where("src = dst").groupBy("src").agg(F.max(F.struct(*weight, F.col(ORDER))).alias("own"))
        loops = vertices.select(F.col("id").alias("src")).join(own, "src", "left")
        reductions = [name for name in self.names if fill_of(name)[1] in REDUCTIONS]
        if reductions:
            reduced = edges.groupBy("dpart", "dst").agg(*(self._reduced(name) for name in reductions))
            loops = loops.join(reduced.drop("dpart").withColumnRenamed("dst", "src"), "src", "left")
        columns = [F.coalesce("own.weight", F.lit(1.0)).cast("float").alias("weight")] if weighted else []
        values = F.concat(*(F.coalesce(self._own(name), self._added(name)) for name in self.names))
        return loops.select(
            "src", F.col("src").alias("dst"), *columns, values.alias(DATA), F.array().cast(_FLOATS).alias(ORDER)
        )

    def _own(self, name: str) -> Column:
        """Return a column's value of the self-loop that a vertex keeps; null if it had none."""
        base = fill_of(name)[0]
        if base == "edge_attr":
            first = 1 + self.data.typed  # Spark counts from 1, and the type comes before the attributes
            return F.slice("own.order", first, self.data.width or 0)
        number = F.lit(1.0) if base == LOOP else F.col("own.order")[0]
        return F.when(F.col("own").isNotNull(), F.array(number.cast("float")))

    def _added(self, name: str) -> Column:
        """Return a column's value of a self-loop that is added."""
        fill = fill_of(name)[1]
        if fill in REDUCTIONS:
            return F.coalesce(F.col(_alias(name)), F.array_repeat(F.lit(0.0).cast("float"), self.width(name)))
        return F.array_repeat(F.lit(float(fill or 0.0)).cast("float"), self.width(name))

    def _reduced(self, name: str) -> Column:
        """Return the reduction of the attributes of a vertex's in-edges. Sums are taken in double."""
        functions = {"mean": F.avg, "add": F.sum, "max": F.max, "min": F.min}
        reduce = functions[str(fill_of(name)[1])]
        numbers = (F.col("edge_attr")[at].cast("double") for at in range(self.width(name)))
        return F.array(*(reduce(number) for number in numbers)).cast(_FLOATS).alias(_alias(name))


def _alias(name: str) -> str:
    """Return a name for the frame's column of a reduction."""
    return f"reduced_{fill_of(name)[1]}"


def read_by(stages: Sequence[tuple[str, ...]], data: EdgeData) -> EdgeColumns:
    """Return the columns of an edge set, given those that each stage reads."""
    return EdgeColumns(tuple(sorted({name for names in stages for name in names})), data)
