"""Pipe, on the driver: put a stage's inputs side by side in the order of the chunks, and pass them to a `PipeTask`.

Without neighbourhoods, the inputs are joined to the vertex table, which has the order. All are placed by part, so
nothing is shuffled. With neighbourhoods, vertices, edges and sources are rows of one frame, told apart by a tag. One
shuffle, which takes the source rows to the chunks, brings them together. In both cases, rows beyond the step's level
are left out first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from math import nan

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lotan.engines.base import Handle
from lotan.engines.results import result_tensors
from lotan.engines.rows.edge_data import EdgeColumns
from lotan.engines.rows.held import CollectionHandle, ColumnHandle, Made, PassState
from lotan.engines.rows.levels import within
from lotan.engines.rows.pipe_task import VERTEX, EdgeField, Field, Neighbours, PipeTask, Returned
from lotan.engines.rows.placement import ID, PART, Placement
from lotan.engines.rows.tables import Tables
from lotan.engines.rows.topology import BLOBS, EDGES
from lotan.stages import tensor_names
from messenger.endpoint import Endpoint
from messenger.jobs import PipeJob
from messenger.settings import Settings
from planner.edge_columns import fill_of
from planner.physical import SourceGradients, Stage
from planner.spec import EdgeSet
from planner.steps.pipe import PipeStep

PLAIN = ("label", "split")  # static columns that need not be vectors


@dataclass(frozen=True)
class Site:
    """The run and the loaded graph that pipes belong to, and the settings that they share."""

    run: str
    tables: Tables
    placement: Placement
    chunk_rows: int
    endpoint: Endpoint
    settings: Settings
    source_gradients: SourceGradients


@dataclass(frozen=True)
class PipeBuilder:
    """Builds the frame of one pipe step."""

    site: Site
    step: PipeStep
    stage: Stage
    values: Mapping[str, Handle]
    state: PassState

    def rows(self, task: PipeTask) -> DataFrame:
        """Return the rows that the stage returns, in the form of `PipeTask.schema`. Spark does not know their placement.

        Args:
            task: The step's task, which `task` returns.
        """
        return self._input().mapInArrow(task, task.schema(self.site.tables.id_type))

    def task(self) -> PipeTask:
        """Return the function that each Spark task runs."""
        job = PipeJob(self.site.run, self.state.number, self.stage.name, self.step.mode, 0, not self.step.emits)
        return PipeTask(
            job=job,
            endpoint=self.site.endpoint,
            settings=self.site.settings,
            chunk_rows=self.site.chunk_rows,
            fields=self._fields(),
            neighbours=tuple(self._neighbours(edges) for edges in self.stage.edge_sets),
            returned=self.returned(),
            static=self._static(),
            epoch_kept=self._epoch_kept(),
            source_gradients=self.site.source_gradients,
        )

    # -- columns of the frame ----------------------------------------------------------------------------------------

    def _names(self) -> dict[str, str]:
        """Return the frame's column for each column that is read by vertex."""
        gradients = [name for gradient in self.step.gradients for name in gradient.columns]
        names = dict.fromkeys([*self.step.inputs, *gradients])
        return {name: f"c{number}" for number, name in enumerate(names)}

    def _source_columns(self, edges: EdgeSet) -> dict[str, ColumnHandle]:
        """Return the frame's column and the handle for each column that is read by source; see `_collection_rows`."""
        collection = self._collection(edges)
        if collection is None:
            return {}
        return {f"s{self._tag(edges)}_{number}": handle for number, (_, handle) in enumerate(collection.columns)}

    def _collection(self, edges: EdgeSet) -> CollectionHandle | None:
        return next((self.values[name] for name in self.step.collections if self.values[name].edges == edges), None)

    def _tag(self, edges: EdgeSet) -> int:
        return 1 + 2 * self.stage.edge_sets.index(edges)

    # -- the task's description --------------------------------------------------------------------------------------

    def _fields(self) -> tuple[Field, ...]:
        names = self._names()
        totals = {i.column for i in self.stage.inputs if i.role == "total"}
        sums = {o.value for o in self.stage.outputs if o.few}
        inputs = [replace(self._input_field(name, names[name]), one=name in totals) for name in self.step.inputs]
        gradients = [
            Field(
                tensor_names.output_gradient(gradient.value),
                tuple(names[column] for column in gradient.columns),
                self.values[gradient.columns[0]].width,
                one=gradient.value in sums,
            )
            for gradient in self.step.gradients
        ]
        return (*inputs, *gradients)

    def _input_field(self, name: str, column: str) -> Field:
        handle: ColumnHandle = self.values[name]
        if name == "label" and handle.width and self.stage.loss is not None:
            return Field(tensor_names.column(name), (column,), self.stage.loss.outputs, absent=nan)
        if handle.width:
            return Field(tensor_names.column(name), (column,), handle.width)
        return Field(tensor_names.column(name), (column,), dtype="int64" if name == "label" else "int8")

    def _neighbours(self, edges: EdgeSet) -> Neighbours:
        collection = self._collection(edges)
        names = [name for name, _ in collection.columns] if collection else []
        columns = self._source_columns(edges)
        return Neighbours(
            edges=edges,
            tag=self._tag(edges),
            sources=tuple(
                Field(tensor_names.source(edges, name), (column,), handle.width)
                for name, (column, handle) in zip(names, columns.items(), strict=True)
            ),
            weighted=self.site.tables.weighted,
            keyed=self.stage.draws_on(edges),
            columns=tuple(self._edge_field(edges, name) for name in self.stage.edge_columns(edges)),
            width=self._edge_columns(edges).total,
        )

    def _edge_field(self, edges: EdgeSet, name: str) -> EdgeField:
        held, whole = self._edge_columns(edges), fill_of(name)[0] == "edge_type"
        return EdgeField(tensor_names.edge_column(edges, name), held.place(name), held.width(name), whole)

    def _edge_columns(self, edges: EdgeSet) -> EdgeColumns:
        return self.site.tables.edge_columns.get(edges, EdgeColumns())

    def returned(self) -> tuple[Returned, ...]:
        """Return the tensors that come back, in the order of the step's outputs.

        Raises:
            EngineError: If the plan's step and its stage do not agree on the outputs.
        """
        return tuple(
            Returned(
                one.name,
                f"o{number}",
                VERTEX if one.edges is None else self._tag(one.edges) + 1,
                one.edges or "",
                column.few,
            )
            for number, (column, one) in enumerate(
                zip(self.step.outputs, result_tensors(self.step, self.stage), strict=True)
            )
        )

    def _static(self) -> frozenset[str]:
        names = {tensor_names.KEYS} | {
            tensor_names.column(name) for name in self.step.inputs if self.values[name].static
        }
        for edges in self.stage.edge_sets:
            names |= tensor_names.topology(edges)
            names |= {tensor_names.edge_column(edges, name) for name in self.stage.edge_columns(edges)}
            collection = self._collection(edges)
            held = collection.columns if collection else ()
            names |= {tensor_names.source(edges, name) for name, handle in held if handle.static}
        return frozenset(names)

    def _epoch_kept(self) -> frozenset[str]:
        pipes = self.state.pipes
        kept = {tensor_names.column(name) for name in self.step.inputs if pipes.get(name, 0) > 1}
        for name in self.step.collections:
            if pipes.get(name, 0) > 1:
                held: CollectionHandle = self.values[name]
                kept |= {tensor_names.source(held.edges, column) for column, _ in held.columns}
        return frozenset(kept) - self._static()

    # -- the frame ---------------------------------------------------------------------------------------------------

    def _input(self) -> DataFrame:
        vertices = self._vertex_rows()
        if not self.stage.edge_sets:
            by_chunk = PART, "chunk", "position"
            return vertices.sortWithinPartitions(*by_chunk) if self.site.tables.by_level else vertices
        parts = [vertices.withColumn("tag", F.lit(VERTEX))]
        for edges in self.stage.edge_sets:
            parts += [self._edge_rows(edges), *self._collection_rows(edges)]
        together = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
        return self.site.placement.place(together).sortWithinPartitions(PART, "chunk", "tag", "position")

    def _vertex_rows(self) -> DataFrame:
        """Return part, id, chunk, position, key and the columns of `_names`, sorted by part, id."""
        names = self._names()
        handles = {name: self.values[name] for name in names}
        static = [F.col(f"`{h.field}`").alias(names[name]) for name, h in handles.items() if h.static]
        needed = within(self.site.tables.vertices, self.step.within)
        rows = needed.select(PART, ID, "chunk", F.col("row").alias("position"), "key", *static)
        by_frame: dict[Made, list[str]] = {}
        for name, handle in handles.items():
            if not handle.static:
                by_frame.setdefault(handle.made, []).append(name)
        for made, columns in by_frame.items():
            made.read = True
            fields = [F.col(f"`{handles[name].field}`").alias(names[name]) for name in columns]
            rows = rows.join(made.frame.select(PART, ID, *fields).hint("merge"), [PART, ID], "left")
        return rows

    def _edge_rows(self, edges: EdgeSet) -> DataFrame:
        blobs = within(self.site.tables.topology[edges], self.step.within).where(F.col("kind") == EDGES)
        return blobs.select(PART, "chunk", "position", F.lit(self._tag(edges)).alias("tag"), *BLOBS)

    def _collection_rows(self, edges: EdgeSet) -> list[DataFrame]:
        collection = self._collection(edges)
        if collection is None:
            return []
        collection.made.read = True
        values = [F.col(f"value{k}").alias(column) for k, column in enumerate(self._source_columns(edges))]
        tag = F.lit(self._tag(edges) + 1).alias("tag")
        needed = within(collection.made.frame, self.step.within)
        return [needed.select(PART, "chunk", "position", tag, ID, "spart", *values)]
