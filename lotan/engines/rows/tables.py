"""The loaded graph: a vertex table and edge tables, placed, sorted and persisted for as long as the engine lives.

They are persisted, not pinned: the lost share of an executor is computed again from the user's tables, to the same rows
in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import uuid4

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lotan.engines.commits import occupied
from lotan.engines.rows.edge_data import DATA, ORDER, EdgeColumns, read_by
from lotan.engines.rows.levels import LEVEL, vertex_levels, within
from lotan.engines.rows.placement import ID, PART, Placement
from lotan.engines.rows.topology import SOURCES, neighbourhoods
from planner.edge_columns import EdgeData
from planner.edge_sets import has_added_loops, is_reversed, relation_of, reversed_set
from planner.physical import Plan
from planner.spec import EdgeSet, Targets, edges_of_column
from planner.steps.collect import CollectStep
from planner.steps.propagate import PropagateStep

STORAGE = StorageLevel.MEMORY_AND_DISK


@dataclass(frozen=True)
class Needs:
    """The parts of a graph that a plan reads."""

    columns: frozenset[str]  # names of the static columns
    forward: frozenset[EdgeSet]  # edge sets placed by the partition of the source
    reverse: frozenset[EdgeSet]  # edge sets placed by the partition of the destination
    topology: frozenset[EdgeSet]  # edge sets whose neighbourhoods are read, chunk by chunk
    # the deepest level that is told apart, by which vertices are numbered; None: they are numbered by id
    levels: int | None = None
    targets: Targets = "train"  # the vertices from which levels are counted
    # the columns of edges that stages read, by edge set; none for a set that is left out
    edge_columns: Mapping[EdgeSet, EdgeColumns] = field(default_factory=dict)

    @staticmethod
    def of(plan: Plan, data: EdgeData) -> Needs:
        """Return the needs of a plan's steps and stages, given the columns that the graph's edges have."""
        steps = [step for steps in plan.passes for step in steps]
        sums = [step for step in steps if isinstance(step, PropagateStep)]
        stage_sets = {edges for stage in plan.stages for edges in stage.edge_sets}
        topology = frozenset(step.edges for step in steps if isinstance(step, CollectStep)) | stage_sets
        return Needs(
            columns=frozenset(column.name for column in plan.static_columns) | {"label", "split"},
            forward=frozenset(step.edges for step in sums if not step.reverse),
            reverse=frozenset(step.edges for step in sums if step.reverse),
            topology=topology,
            edge_columns={
                edges: read_by([stage.edge_columns(edges) for stage in plan.stages], data) for edges in topology
            },
            levels=plan.levels,
            targets=plan.targets,
        )


@dataclass
class Tables:
    """The frames of a loaded graph. All are persisted, and `close` frees them.

    vertices: part, id, LEVEL, key (long), chunk, row (int), and the static columns: `label` and `split` as they are,
    others as array<float>. The table is sorted by part, id. Chunks and their rows count in the order of LEVEL, id, so
    that those within a level come first. LEVEL is 0 if levels are not told apart.
    forward: by edge set: spart, dpart, src, dst [, weight] [, LEVEL], placed by spart, sorted by dpart, dst, src.
    reverse: by edge set: the same columns placed by dpart, sorted by spart, src, dst.
    topology: by edge set, see `lotan.engines.rows.topology`, placed by part.
    sources: by edge set, part, chunk, position, src, spart, LEVEL of its SOURCES rows, placed by spart, where their
    values are.
    """

    vertices: DataFrame
    id_type: str  # the name of the type in Spark SQL
    nearest: Mapping[int, int]  # for each partition with vertices, their lowest level
    weighted: bool
    by_level: bool  # True if levels are told apart
    forward: dict[EdgeSet, DataFrame] = field(default_factory=dict)
    reverse: dict[EdgeSet, DataFrame] = field(default_factory=dict)
    topology: dict[EdgeSet, DataFrame] = field(default_factory=dict)
    sources: dict[EdgeSet, DataFrame] = field(default_factory=dict)
    edge_columns: Mapping[EdgeSet, EdgeColumns] = field(default_factory=dict)  # as in `Needs`

    def placed_edges(self, edges: EdgeSet, reverse: bool, level: int | None = None) -> DataFrame:
        """Return the edges of a set that end within a level, placed with the rows that their messages start from."""
        return within((self.reverse if reverse else self.forward)[edges], level)

    def occupied(self, level: int | None = None) -> tuple[int, ...]:
        """Return the partitions with vertices within a level, which a pipe must commit."""
        return occupied(self.nearest, level)

    def close(self) -> None:
        """Free every frame. This may be called twice."""
        groups = (self.forward, self.reverse, self.topology, self.sources)
        for frame in (self.vertices, *(frame for group in groups for frame in group.values())):
            frame.unpersist(blocking=False)


def load_tables(
    vertices: DataFrame, edges: DataFrame, needs: Needs, placement: Placement, chunk_rows: int, weighted: bool
) -> Tables:
    """Place and persist the parts of the graph that `needs` names.

    Args:
        vertices: id, features, label, split; see `lotan.graph.Graph.frames`.
        edges: src, dst and, if weighted, weight; then edge_attr and edge_type if the edges have them.
        needs: The needs of the plan.
        placement: The placement of vertices.
        chunk_rows: The number of rows in a chunk.
        weighted: True if the weights count.
    """
    loader = _Loader(vertices, edges, needs, placement, chunk_rows, weighted)
    tables = loader.vertex_table()
    for name in sorted(needs.forward):
        tables.forward[name] = _hold(loader.summed(name, tables, reverse=False))
    for name in sorted(needs.reverse):
        tables.reverse[name] = _hold(loader.summed(name, tables, reverse=True))
    for name in sorted(needs.topology):
        tables.topology[name] = _persisted(loader.topology(name, tables))
        tables.sources[name] = _hold(loader.sources(tables.topology[name]))
    return tables


def _hold(frame: DataFrame) -> DataFrame:
    """Persist a frame and compute it now, so that faults of a table appear while it is loaded."""
    held = _persisted(frame)
    held.count()
    return held


def _persisted(frame: DataFrame) -> DataFrame:
    """Persist a frame under a plan that no other frame has.

    Spark finds persisted rows by their plan. Two engines on one graph would share frames, and the first to close would
    take them from the other. That engine would continue without them, more slowly and without the order of their rows.
    """
    return frame.where(F.lit(uuid4().hex).isNotNull()).persist(STORAGE)


@dataclass(frozen=True)
class _Loader:
    vertices: DataFrame
    edges: DataFrame
    needs: Needs
    placement: Placement
    chunk_rows: int
    weighted: bool

    @property
    def by_level(self) -> bool:
        return self.needs.levels is not None

    def vertex_table(self) -> Tables:
        place, columns = self.placement, self.needs.columns
        given: list[str] = [name for name in ("label", "split") if name in self.vertices.columns]
        given += [name for name in ("features", "vertex_weight") if name in columns]
        placed = self._with_levels(place.place(self.vertices.select(place.of(ID).alias(PART), ID, *given)))
        order = (LEVEL, ID) if self.by_level else (ID,)
        numbered = placed.withColumns(
            {
                "key": F.xxhash64(ID),
                "number": F.row_number().over(Window.partitionBy(PART).orderBy(*order)) - 1,
            }
        ).sortWithinPartitions(PART, ID)
        table = numbered.withColumns(
            {
                "chunk": F.floor(F.col("number") / self.chunk_rows).cast("int"),
                "row": (F.col("number") % self.chunk_rows).cast("int"),
            }
        ).drop("number")
        for name in sorted(columns):
            if edges_of_column(name) is not None:
                table = self._with_degree(table, name)
        table = _persisted(table)
        nearest: dict[int, int] = dict(table.groupBy(PART).agg(F.min(LEVEL)).collect())
        id_type = table.schema[ID].dataType.simpleString()
        of_edges = self.needs.edge_columns
        return Tables(table, id_type, nearest, self.weighted, self.by_level, edge_columns=of_edges)

    def _with_levels(self, placed: DataFrame) -> DataFrame:
        if self.needs.levels is None:
            return placed.withColumn(LEVEL, F.lit(0))
        edges = replace(self, weighted=False).placed("self_loops", "dpart", ("dst",))
        levels = vertex_levels(placed, edges, self.needs.levels, self.needs.targets, self.placement)
        return placed.join(levels.hint("merge"), [PART, ID])

    def _with_degree(self, table: DataFrame, name: str) -> DataFrame:
        """Add a column that follows from edges: see planner.spec.STATIC_COLUMNS."""
        scale, edge_set = name.startswith("gcn_scale@"), edges_of_column(name)
        assert edge_set is not None
        weight = F.col("weight").cast("double") if scale and self.weighted else F.lit(1.0)
        # sorted first, so that sums of weights have one order in every run
        edges = self.placed(edge_set, "dpart", ("dst", "src"))
        degree = edges.groupBy("dpart", "dst").agg(F.sum(weight).alias("degree"))
        joined = table.join(
            degree.hint("merge"), (table[PART] == degree["dpart"]) & (table[ID] == degree["dst"]), "left"
        ).drop("dpart", "dst")
        total = F.coalesce("degree", F.lit(0.0))
        value = _inverse_root(total) if scale else F.greatest(total, F.lit(1.0))
        return joined.withColumn(name, F.array(value.cast("float"))).drop("degree")

    def edge_set(self, name: EdgeSet) -> DataFrame:
        """Return src, dst [, weight] of an edge set."""
        if is_reversed(name):
            return _ends_exchanged(self.edge_set(reversed_set(name)), ("src", "dst"))
        columns = ["src", "dst", "weight"] if self.weighted else ["src", "dst"]
        edges = self._of_relation(name).select(*columns)
        if not has_added_loops(name):
            return edges
        loops = self.vertices.select(F.col(ID).alias("src"), F.col(ID).alias("dst"))
        if self.weighted:
            # The heaviest of several self-loops counts: it comes last in the order of edges, and PyG keeps the last.
            own = edges.where("src = dst").groupBy("src").agg(F.max("weight").alias("own"))
            loops = loops.join(own, "src", "left").select(
                "src", "dst", F.coalesce("own", F.lit(1.0)).cast("float").alias("weight")
            )
        return edges.where("src != dst").unionByName(loops)

    def _of_relation(self, name: EdgeSet) -> DataFrame:
        """Return the graph's edges, or those of the type that a set is kept to."""
        relation = relation_of(name)
        return self.edges if relation is None else self.edges.where(F.col("edge_type") == relation)

    def placed(self, name: EdgeSet, by: str, order: tuple[str, ...]) -> DataFrame:
        """Return an edge set with its partitions, placed by one of them. Parallel edges stay, the lighter first."""
        edges = self.edge_set(name)
        both = edges.select(
            self.placement.of("src").alias("spart"), self.placement.of("dst").alias("dpart"), *edges.columns
        )
        return self._ordered(self.placement.place(both, by), by, order)

    def _ordered(self, edges: DataFrame, by: str, order: tuple[str, ...]) -> DataFrame:
        return edges.sortWithinPartitions(by, *order, *(["weight"] if self.weighted else []))

    def summed(self, name: EdgeSet, tables: Tables, reverse: bool) -> DataFrame:
        """Return an edge set for sums along it, with LEVEL if levels are told apart: see `Tables`."""
        by, order = ("dpart", ("spart", "src", "dst")) if reverse else ("spart", ("dpart", "dst", "src"))
        if not self.by_level:
            return self.placed(name, by, order)
        ends = tables.vertices.select(F.col(PART).alias("dpart"), F.col(ID).alias("dst"), LEVEL)
        edges = self.placed(name, "dpart", ("dst",)).join(ends.hint("merge"), ["dpart", "dst"])
        return self._ordered(edges if reverse else self.placement.place(edges, by), by, order)

    def topology(self, name: EdgeSet, tables: Tables) -> DataFrame:
        columns = self.needs.edge_columns.get(name, EdgeColumns())
        edges = self._with_data(name, columns) if columns.names else self.placed(name, "dpart", ("dst", "src"))
        at = tables.vertices.select(PART, ID, LEVEL, "chunk", "row", F.col("key").alias("dkey"))
        joined = edges.join(at.hint("merge"), (edges["dpart"] == at[PART]) & (edges["dst"] == at[ID]))
        last = ["weight"] if self.weighted else []
        own = [DATA, ORDER] if columns.names else []
        ordered = (
            joined.select(
                PART, "chunk", "row", LEVEL, "src", "spart", F.xxhash64("src").alias("skey"), "dkey", *last, *own
            )
            .sortWithinPartitions(PART, "chunk", "row", "src", *last, *own[1:])
            .drop(ORDER)
        )
        build, schema = neighbourhoods(tables.id_type, self.weighted, self.chunk_rows)
        found = ordered.mapInArrow(build, schema)
        return self.placement.place(found).sortWithinPartitions(PART, "chunk", "kind", "position")

    def _with_data(self, name: EdgeSet, columns: EdgeColumns) -> DataFrame:
        """Return an edge set with the columns that stages read, placed by the partition of the destination."""
        if is_reversed(name):
            turned = _ends_exchanged(self._with_data(reversed_set(name), columns), ("src", "dst"), ("spart", "dpart"))
            return self.placement.place(turned, "dpart")
        ends = {"spart": self.placement.of("src"), "dpart": self.placement.of("dst")}
        given = columns.of_graph(self._of_relation(name)).withColumns(ends)
        order = ("dst", "src", *(["weight"] if self.weighted else []), ORDER)  # one order of sums in every run
        edges = self.placement.place(given, "dpart").sortWithinPartitions("dpart", *order)
        if has_added_loops(name):
            loops = columns.of_loops(self.vertices.select(ID), edges, self.weighted)
            placed = self.placement.place(loops.withColumns(ends), "dpart")
            edges = edges.where("src != dst").select(*placed.columns).unionByName(placed)
            edges = self.placement.place(edges, "dpart")
        return edges

    def sources(self, topology: DataFrame) -> DataFrame:
        rows = topology.where(F.col("kind") == SOURCES).select(PART, "chunk", "position", "src", "spart", LEVEL)
        return self.placement.place(rows, "spart")


def _ends_exchanged(edges: DataFrame, *ends: tuple[str, str]) -> DataFrame:
    """Return edges in which the columns of each pair have changed names."""
    other = {name: pair[1 - place] for pair in ends for place, name in enumerate(pair)}
    return edges.select(*(F.col(other.get(name, name)).alias(name) for name in edges.columns))


def _inverse_root(total: Column) -> Column:
    """Return total^-1/2, or 0 if that is not finite. Spark's division by zero is null, or an error under ANSI rules."""
    return F.when(total > 0, F.lit(1.0) / F.sqrt(total)).otherwise(F.lit(0.0))
