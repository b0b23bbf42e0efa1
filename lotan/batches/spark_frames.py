"""The frames of which Spark draws mini-batches: the graph, and the vertices and edges of all batches of an epoch.

Nothing is collected. The in-edges of a vertex are numbered in the order of `lotan.graph.GraphArrays`, so that the draws of
a vertex choose the same edges as they do in this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lotan.batches.draws import OUT_DRAWS
from lotan.batches.spark_tasks import EDGE, RELATION, VERTEX, DrawTask, OrderTask
from lotan.engines.rows.placement import without_plan
from lotan.stages.draws import Randomness
from planner.regime import Fanout
from planner.spec import SPLITS

OF_EDGES = ("weight", "edge_type", "edge_attr")
"""The columns by which parallel edges are in order, the first before the others."""


@dataclass
class GraphFrames:
    """A graph, persisted as batches are drawn from it.

    Args:
        vertices: id, key, degree, is_example, and the columns that batches are sent with; placed by id.
        edges: dst, pos, src, and the columns of edges; placed by dst and sorted by dst and pos. `pos` is the number of an
            edge among the in-edges of its destination, or among those of one relation if there are `groups`.
        of_edges: The names of the columns of edges.
        groups: id, edge_type and degree of the in-edges of one relation each; None: a fanout holds for all in-edges.
        outgoing: The edges with `turn`, the number of an edge among the out-edges of its source; placed by src. Vertices then
            have an out_degree. None: out-edges are not drawn.
    """

    vertices: DataFrame
    edges: DataFrame
    of_edges: tuple[str, ...]
    groups: DataFrame | None = None
    outgoing: DataFrame | None = None

    @property
    def of_draws(self) -> list[str]:
        """The columns of vertices that draws depend on."""
        return ["id", "key", "degree", *["out_degree"] * (self.outgoing is not None)]

    @classmethod
    def of(
        cls,
        vertices: DataFrame,
        edges: DataFrame,
        columns: Sequence[Column],
        others: Sequence[DataFrame],
        weighted: bool,
        by_relation: bool = False,
        both: bool = False,
    ) -> GraphFrames:
        """Persist a graph at its first use.

        Args:
            vertices: id, label and split, and what `columns` reads.
            edges: src, dst and weight, and attributes and types if edges have them.
            columns: The columns of vertices that batches are sent with, by their names.
            others: Frames of id and one further column each, which batches are sent with too.
            weighted: True if the weights of edges count.
            by_relation: True if a fanout holds for the in-edges of each relation.
            both: True if out-edges are drawn too.
        """
        given = [name for name in OF_EDGES if name in edges.columns and (weighted or name != "weight")]
        of_relation = [RELATION] * by_relation
        within = Window.partitionBy("dst", *of_relation).orderBy("src", *given)
        numbered = edges.select("dst", "src", *given).withColumn("pos", F.row_number().over(within) - 1)
        placed = numbered.sortWithinPartitions("dst", "pos").persist()
        degrees = placed.groupBy(F.col("dst").alias("id")).agg(F.count("*").alias("degree"))
        groups = None
        if by_relation:
            counted = placed.groupBy(F.col("dst").alias("id"), RELATION).agg(F.count("*").alias("degree"))
            groups = counted.sortWithinPartitions("id").persist()
        is_example = (F.col("split") == SPLITS.index("train")) & _has_label(vertices)
        outgoing, out_degrees = None, []
        if both:
            within = Window.partitionBy("src").orderBy("dst", "pos")
            turns = placed.withColumn("turn", F.row_number().over(within) - 1)
            outgoing = turns.sortWithinPartitions("src", "turn").persist()
            out_degrees = [outgoing.groupBy(F.col("src").alias("id")).agg(F.count("*").alias("out_degree"))]
        rows = vertices.select("id", F.xxhash64("id").alias("key"), is_example.alias("is_example"), *columns)
        for other in [degrees, *out_degrees, *others]:
            rows = rows.join(other, "id", "left")
        rows = rows.fillna(0, ["degree", *["out_degree"] * both]).sortWithinPartitions("id").persist()
        return cls(rows, placed, tuple(given), groups, outgoing)

    def close(self) -> None:
        """Free the rows. This may be called twice."""
        for frame in (self.vertices, self.edges, self.groups, self.outgoing):
            if frame is not None:
                frame.unpersist()


def _has_label(vertices: DataFrame) -> Column:
    """Return the condition of a label that is known, as `lotan.graph.labels.has_label` has it."""
    label = F.col("label")
    if isinstance(vertices.schema["label"].dataType, T.ArrayType):
        return F.exists(F.coalesce(label, F.array()), lambda one: one.isNotNull() & ~F.isnan(one))
    return label != -1


@dataclass
class EpochFrames:
    """All batches of an epoch, as rows of vertices and of edges. They are drawn when `rows` is computed.

    Args:
        graph: The graph.
        of: The seed of the batches, and the epoch.
        batch_size: The number of targets of a batch.
        fanouts: For each level the most in-edges of a vertex, or "all"; the first is for the targets.
        columns: The names of the columns of vertices that batches are sent with.
        targets: The targets, each with its batch: batch, id. None: the examples, in an order of the epoch.
        without: Edges that are left out after the draws: batch, src and dst, and edge_type if edges have types. Parallel
            edges are left out together. None: none.
    """

    graph: GraphFrames
    of: Randomness
    batch_size: int
    fanouts: Sequence[Fanout]
    columns: Sequence[str]
    targets: DataFrame | None = None
    without: DataFrame | None = None
    _rows: DataFrame | None = None  # what `rows` has returned
    _met: list[DataFrame] = field(default_factory=list)  # the vertices of each level, once `rows` is made
    _held: list[DataFrame] = field(default_factory=list)  # frames that several others read, until `close`

    def rows(self) -> DataFrame:
        """Return the rows: batch, kind, and for vertices level, id, key and the columns; for edges src, dst, pos and theirs.

        They are drawn once, however often this is called.
        """
        if self._rows is None:
            self._rows = self._all_rows()
        return self._rows

    def _all_rows(self) -> DataFrame:
        known = self.graph.vertices.select(self.graph.of_draws)
        ends = ["src", *["dst"] * (self.graph.outgoing is not None)]
        frontier = self._hold(self._targets())
        met, drawn = [_at_level(frontier, 0)], [self._no_edges()] if not self.fanouts else []
        for hop, fanout in enumerate(self.fanouts, start=1):
            edges = self._hold(self._drawn(frontier, fanout))
            drawn.append(edges)
            found = _united([edges.select("batch", F.col(name).alias("id")) for name in ends]).distinct()
            new = found.join(_united(met).select("batch", "id"), ["batch", "id"], "left_anti")
            frontier = self._hold(new.join(known, "id").select("batch", *self.graph.of_draws))
            met.append(_at_level(frontier, hop))
        self._met = met
        of_vertices = self.graph.vertices.select("id", "key", *self.columns)
        rows = _united(met).join(of_vertices, "id").withColumn("kind", F.lit(VERTEX))
        of_edges = _united(drawn)
        if self.graph.outgoing is not None:  # an edge may be drawn from either end
            of_edges = of_edges.dropDuplicates(["batch", "dst", "pos"])
        return _united([rows, of_edges.withColumn("kind", F.lit(EDGE))])

    def members(self) -> DataFrame:
        """Return the vertices of all batches, of which `rows` was made: batch, id, level."""
        return _united(self._met)

    def close(self) -> None:
        """Free what the batches were drawn of. This may be called twice."""
        while self._held:
            self._held.pop().unpersist()

    def _hold(self, frame: DataFrame) -> DataFrame:
        """Persist a frame. Without a cut, the plan of each level would contain those before it several times."""
        self._held.append(frame.persist())
        return without_plan(self._held[-1])

    def _targets(self) -> DataFrame:
        """Return the targets, each with its batch and what its draws depend on."""
        names = self.graph.of_draws
        if self.targets is not None:
            return self.targets.join(self.graph.vertices.select(names), "id").select("batch", *names)
        examples = self.graph.vertices.where("is_example").select(*names, F.lit(0).alias("one"))
        schema = T.StructType(
            [*examples.schema.fields, *(T.StructField(name, T.LongType()) for name in ("first", "second"))]
        )
        # one task numbers them all: it sorts a few numbers of each, on disk if there are many
        order = Window.partitionBy("one").orderBy("first", "second", "id")
        placed = examples.mapInArrow(OrderTask(self.of), schema).withColumn("turn", F.row_number().over(order) - 1)
        batch = F.floor(F.col("turn") / self.batch_size).cast("int")
        return placed.select(batch.alias("batch"), *names)

    def _drawn(self, frontier: DataFrame, fanout: Fanout) -> DataFrame:
        """Return the drawn edges of vertices: batch, dst, pos, src and the columns of edges."""
        edges, groups = self.graph.edges, self.graph.groups
        names = ["dst", *[RELATION] * (groups is not None)]
        fields = [T.StructField("batch", T.IntegerType()), *(edges.schema[name] for name in names)]
        if groups is not None:
            frontier = frontier.drop("degree").join(groups, "id")
        schema = T.StructType([*fields, T.StructField("pos", T.LongType())])
        chosen = frontier.mapInArrow(DrawTask(self.of, fanout), schema)
        drawn = chosen.join(edges, [*names, "pos"]).select("batch", "dst", "pos", "src", *self.graph.of_edges)
        if self.graph.outgoing is not None:
            drawn = drawn.unionByName(self._drawn_out(self.graph.outgoing, frontier, fanout))
        return drawn if self.without is None else drawn.join(self.without, self.without.columns, "left_anti")

    def _drawn_out(self, outgoing: DataFrame, frontier: DataFrame, fanout: Fanout) -> DataFrame:
        """Return the drawn out-edges of vertices, with the columns of `_drawn`."""
        given = frontier.drop("degree").withColumnRenamed("out_degree", "degree")
        fields = [T.StructField("batch", T.IntegerType()), T.StructField("dst", outgoing.schema["src"].dataType)]
        schema = T.StructType([*fields, T.StructField("pos", T.LongType())])
        chosen = given.mapInArrow(DrawTask(self.of, fanout, OUT_DRAWS), schema).toDF("batch", "src", "turn")
        return chosen.join(outgoing, ["src", "turn"]).select("batch", "dst", "pos", "src", *self.graph.of_edges)

    def _no_edges(self) -> DataFrame:
        """Return the edges of a model that reads no neighbours, which are none."""
        return self.graph.edges.limit(0).select(F.lit(0).alias("batch"), "dst", "pos", "src", *self.graph.of_edges)


def _at_level(frontier: DataFrame, level: int) -> DataFrame:
    return frontier.select("batch", "id", F.lit(level).alias("level"))


def _united(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
