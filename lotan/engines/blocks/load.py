"""A graph laid out in blocks, with the static columns that a plan reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lotan.engines.blocks.pipe import Column, numbered
from lotan.engines.commits import occupied
from planner.physical import Plan
from planner.spec import EdgeSet
from planner.steps.edge_dropout import EdgeDropoutStep

if TYPE_CHECKING:
    from lotan.graph import Graph


@dataclass(frozen=True)
class Loaded:
    """What is held of a graph until `close`."""

    facade: Any
    blocks: Any  # lotan.LoadedGraph
    columns: Mapping[str, Column]  # static ones
    chunks: Mapping[
        tuple[EdgeSet, int | None], Any
    ]  # by edge set and level, None for all: RDD of each partition's neighbourhoods, for stages that collect
    edge_keys: Mapping[EdgeSet, Any]  # RDD of each partition's row keys of edges, for dropout of edge columns
    nearest: Mapping[int, int]  # by partition that has vertices, the lowest level of theirs
    weighted: bool

    def occupied(self, level: int | None = None) -> tuple[int, ...]:
        """The partitions that have any vertices within a level: those a pipe must commit."""
        return occupied(self.nearest, level)

    def close(self) -> None:
        """Let go of everything. May be called twice."""
        for held in (*self.chunks.values(), *self.edge_keys.values()):
            self.facade.release(held)
        for name, column in self.columns.items():
            if _follows_from_edges(name):
                self.facade.release(column.rows)
        self.facade.close(self.blocks)


def load_blocks(facade: Any, spark: SparkSession, graph: Graph, plan: Plan, partitions: int, chunk_rows: int) -> Loaded:
    """Shuffle a graph's tables into blocks, and hold them.

    Args:
        facade: of the session's JVM.
        spark: the session.
        graph: checked.
        plan: says which columns and edge sets are read.
        partitions: of the graph.
        chunk_rows: vertices of a chunk.

    If it fails, nothing is left held.
    """
    vertices, edges = graph.frames(spark)
    weighted = graph.statistics.weighted
    columns = {column.name: column for column in plan.static_columns}
    given = [name for name in columns if not _follows_from_edges(name)]
    table = vertices.select("id", *(_plain(vertices, name, plan).alias(name) for name in given))
    with ExitStack() as undo:
        blocks = facade.load(table._jdf, edges._jdf, partitions, given, "weight" if weighted else None)
        undo.callback(facade.close, blocks)
        deepest = plan.levels
        if deepest is not None:
            blocks = facade.orderByLevel(blocks, deepest, plan.targets == "split")
            undo.callback(facade.close, blocks)
        levels = (None, *range(0 if deepest is None else deepest + 1))
        nearest = dict(facade.nearest(blocks))  # the last job: what is persisted below waits for its first use
        rows = {name: facade.column(blocks, name) for name in given}
        for name in columns:
            if _follows_from_edges(name):
                rows[name] = facade.degrees(blocks, name, weighted)
                facade.persist(rows[name])
        loaded = Loaded(
            facade=facade,
            blocks=blocks,
            columns={
                name: Column(rows[name], _width(vertices, name, column.width, plan), name)
                for name, column in columns.items()
            },
            chunks=_chunks(facade, blocks, plan, chunk_rows, levels),
            edge_keys=_edge_keys(facade, blocks, plan),
            nearest=nearest,
            weighted=weighted,
        )
        undo.pop_all()
    return loaded


def _chunks(
    facade: Any, blocks: Any, plan: Plan, chunk_rows: int, levels: Sequence[int | None]
) -> dict[tuple[EdgeSet, int | None], Any]:
    """Of each edge set that a stage collects along: every partition's neighbourhoods, for each level that one may run up to.

    What no stage asks for is never computed.
    """
    found = {}
    for edge_set in sorted({edges for stage in plan.stages for edges in stage.edge_sets}):
        keyed = any(stage.draws_on(edge_set) for stage in plan.stages)
        for level in levels:
            found[edge_set, level] = facade.collect(blocks, edge_set, chunk_rows, keyed, numbered(level))
            facade.persist(found[edge_set, level])
    return found


def _edge_keys(facade: Any, blocks: Any, plan: Plan) -> dict[EdgeSet, Any]:
    """Of each edge set on whose columns dropout draws: every partition's row keys of edges."""
    found = {}
    for edge_set in sorted({step.edges for step in plan.train if isinstance(step, EdgeDropoutStep)}):
        found[edge_set] = facade.edgeKeys(blocks, edge_set)
        facade.persist(found[edge_set])
    return found


def _follows_from_edges(name: str) -> bool:
    return name == "in_degree" or name.startswith("gcn_scale@")


def _plain(vertices: DataFrame, name: str, plan: Plan) -> Any:
    """A column without nulls: -1 stands for no class, NaN for no target."""
    if name == "label" and isinstance(vertices.schema[name].dataType, T.ArrayType):
        return F.coalesce(F.col(name).cast("array<float>"), F.array_repeat(F.lit(nan).cast("float"), _outputs(plan)))
    return F.col(name)


def _width(vertices: DataFrame, name: str, width: int, plan: Plan) -> int:
    """Numbers per row; 0 for a column of plain numbers."""
    if name in ("label", "split"):
        return _outputs(plan) if isinstance(vertices.schema[name].dataType, T.ArrayType) else 0
    return width


def _outputs(plan: Plan) -> int:
    return next(stage.loss.outputs for stage in plan.stages if stage.loss is not None)
