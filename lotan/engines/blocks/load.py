"""Loads a graph into blocks, with the static columns that a plan reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lotan.engines.blocks.pipe import Column, numbered
from lotan.engines.commits import occupied
from planner.edge_columns import LOOP, ORDER, fill_of
from planner.physical import Plan
from planner.spec import EdgeSet, edges_of_column
from planner.steps.edge_dropout import EdgeDropoutStep
from planner.topology import relations_of
from planner.turning import reversed_sets

if TYPE_CHECKING:
    from lotan.graph.graph import Graph


DATA = "edge_data"


@dataclass(frozen=True)
class Loaded:
    """The loaded parts of a graph, until `close`."""

    facade: Any
    blocks: Any  # a lotan.LoadedGraph
    columns: Mapping[str, Column]  # the static columns by name
    chunks: Mapping[
        tuple[EdgeSet, int | None], Any
    ]  # for stages that collect: an RDD of each partition's neighbourhoods, by edge set and level (None: all)
    edge_keys: Mapping[EdgeSet, Any]  # for dropout of edge columns: an RDD of each partition's row keys of edges
    nearest: Mapping[int, int]  # for each partition with vertices, their lowest level
    weighted: bool
    vertices: int  # the number of vertices

    def occupied(self, level: int | None = None) -> tuple[int, ...]:
        """Return the partitions with vertices within a level, which a pipe must commit."""
        return occupied(self.nearest, level)

    def close(self) -> None:
        """Free everything. This may be called twice."""
        for held in (*self.chunks.values(), *self.edge_keys.values()):
            self.facade.release(held)
        for name, column in self.columns.items():
            if edges_of_column(name) is not None:
                self.facade.release(column.rows)
        self.facade.close(self.blocks)


def load_blocks(facade: Any, spark: SparkSession, graph: Graph, plan: Plan, partitions: int, chunk_rows: int) -> Loaded:
    """Shuffle a graph's tables into blocks, and persist them. If this fails, nothing stays persisted.

    Args:
        facade: The Scala object in the session's JVM.
        spark: The session.
        graph: The graph, which has been checked.
        plan: The plan, which tells which columns and edge sets are read.
        partitions: The number of partitions.
        chunk_rows: The number of vertices in a chunk.
    """
    vertices, edges = graph.frames(spark)
    weighted = graph.statistics.weighted
    columns = {column.name: column for column in plan.static_columns}
    given = [name for name in columns if edges_of_column(name) is None]
    table = vertices.select("id", *(plain(vertices, name, plan).alias(name) for name in given))
    with ExitStack() as undo:
        data, of_edges = _edge_data(edges, plan)
        known = graph.statistics.edge_data
        ordered = ORDER in columns_of_edges(plan)
        of_data = data, int(known.typed) + (known.width or 0) + ordered
        weight = "weight" if weighted else None
        turned = bool(reversed_sets(plan))
        blocks = facade.load(table._jdf, of_edges._jdf, partitions, given, weight, *of_data, turned)
        undo.callback(facade.close, blocks)
        deepest = plan.levels
        if deepest is not None:
            blocks = facade.orderByLevel(blocks, deepest, plan.targets == "split")
            undo.callback(facade.close, blocks)
        levels = (None, *range(0 if deepest is None else deepest + 1))
        nearest = dict(facade.nearest(blocks))  # the last job: columns persisted below are computed at their first use
        rows = {name: facade.column(blocks, name) for name in given}
        for name in columns:
            if edges_of_column(name) is not None:
                rows[name] = facade.degrees(blocks, name, weighted)
                facade.persist(rows[name])
        loaded = Loaded(
            facade=facade,
            blocks=blocks,
            columns={
                name: Column(rows[name], _width(vertices, name, column.width, plan), name)
                for name, column in columns.items()
            },
            chunks=_chunks(facade, blocks, plan, chunk_rows, levels, ("edge_type" in edges.columns, ordered)),
            edge_keys=_edge_keys(facade, blocks, plan),
            nearest=nearest,
            weighted=weighted,
            vertices=graph.statistics.vertices,
        )
        undo.pop_all()
    return loaded


def _chunks(
    facade: Any, blocks: Any, plan: Plan, chunk_rows: int, levels: Sequence[int | None], layout: tuple[bool, bool]
) -> dict[tuple[EdgeSet, int | None], Any]:
    """Return each partition's neighbourhoods, for each edge set that a stage collects along and each level.

    Neighbourhoods that no stage asks for are never computed. `layout` says whether the edges' data begins with their types,
    and whether it ends with their order.
    """
    found = {}
    for edge_set in sorted({edges for stage in plan.stages for edges in stage.edge_sets}):
        keyed = any(stage.draws_on(edge_set) for stage in plan.stages)
        columns = sorted({name for stage in plan.stages for name in stage.edge_columns(edge_set)})
        for level in levels:
            settings = chunk_rows, keyed, numbered(level), columns, *layout
            found[edge_set, level] = facade.collect(blocks, edge_set, *settings)
            facade.persist(found[edge_set, level])
    return found


def _edge_data(edges: DataFrame, plan: Plan) -> tuple[str | None, DataFrame]:
    """Return the edges with all that a plan reads of the table in one array, and its name; None if it reads nothing.

    All attributes and types are there, also if only some are read: they decide the order of parallel edges. A column that
    counts the in-edges of each vertex comes last.
    """
    read = columns_of_edges(plan)
    if all(fill_of(column)[0] == LOOP for column in read) and not relations_of(plan):
        return None, edges
    numbers = [F.array(F.col("edge_type").cast("float"))] if "edge_type" in edges.columns else []
    numbers += [F.col("edge_attr")] if "edge_attr" in edges.columns else []
    if ORDER in read:
        by = [name for name in ("src", "weight", "edge_type", "edge_attr") if name in edges.columns]
        place = F.row_number().over(Window.partitionBy("dst").orderBy(*by)) - 1
        numbers.append(F.array(place.cast("float")))
    return DATA, edges.withColumn(DATA, F.concat(*numbers))


def columns_of_edges(plan: Plan) -> list[str]:
    """Return the columns of edges that the stages of a plan read."""
    return [column for stage in plan.stages for name in stage.edge_sets for column in stage.edge_columns(name)]


def _edge_keys(facade: Any, blocks: Any, plan: Plan) -> dict[EdgeSet, Any]:
    """Return each partition's row keys of edges, for each edge set on whose columns dropout draws."""
    found = {}
    for edge_set in sorted({step.edges for step in plan.train if isinstance(step, EdgeDropoutStep)}):
        found[edge_set] = facade.edgeKeys(blocks, edge_set)
        facade.persist(found[edge_set])
    return found


def plain(vertices: DataFrame, name: str, plan: Plan) -> Any:
    """Return a column without nulls: -1 stands for no class, NaN for no target."""
    if name == "label" and isinstance(vertices.schema[name].dataType, T.ArrayType):
        return F.coalesce(F.col(name).cast("array<float>"), F.array_repeat(F.lit(nan).cast("float"), outputs_of(plan)))
    return F.col(name)


def _width(vertices: DataFrame, name: str, width: int, plan: Plan) -> int:
    """Return the numbers per row of a column; 0 for a column of plain numbers."""
    if name in ("label", "split"):
        return outputs_of(plan) if isinstance(vertices.schema[name].dataType, T.ArrayType) else 0
    return width


def outputs_of(plan: Plan) -> int:
    """Return the width of the model's output, which is that of a label of several numbers."""
    return next(stage.loss.outputs for stage in plan.stages if stage.loss is not None)
