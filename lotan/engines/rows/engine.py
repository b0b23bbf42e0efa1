"""The rows engine: a pass is one lazy lineage of Spark frames, computed by one action."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lotan.borders import translated
from lotan.engines.action import force, free_java_objects, named_jobs, shuffle_bytes, spark_runs
from lotan.engines.base import Closable, Engine, Handle, Outcome, Pass
from lotan.engines.commits import Commits
from lotan.engines.observed import Extent
from lotan.engines.rows.collect import collect, gather
from lotan.engines.rows.graphframes_form import propagate_by_messages, require_core
from lotan.engines.rows.held import CollectionHandle, ColumnHandle, ContributionsHandle, Made, PassState
from lotan.engines.rows.levels import within
from lotan.engines.rows.pipe import PLAIN, PipeBuilder, Site
from lotan.engines.rows.pipe_task import VERTEX
from lotan.engines.rows.placement import (
    ID,
    PART,
    Pinned,
    Placement,
    active_session_kept,
    brought_over,
    open_session,
    pin,
)
from lotan.engines.rows.propagate import propagate
from lotan.engines.rows.sums import VALUE, Form, Sums, choose_form
from lotan.engines.rows.tables import Needs, Tables, load_tables
from lotan.engines.rows.totals import Spread, times, total
from lotan.engines.rows.traits import TRAITS
from lotan.errors import EngineError
from messenger.coordinator import CoordinatorLink
from messenger.endpoint import Endpoint
from messenger.settings import Settings
from planner.chunks import CHUNK_ROWS
from planner.physical import Plan, Stage
from planner.spec import TotalKind
from planner.steps.collect import CollectStep, GatherStep
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.step import Step
from planner.steps.total import TotalGradientStep, TotalStep

if TYPE_CHECKING:
    from lotan.graph.graph import Graph


@dataclass(frozen=True)
class RowsSettings:
    """The settings for the placement and the exchange of rows."""

    partitions: int | None = None  # partitions of the graph; None: as many as Spark runs tasks at once
    chunk_rows: int = CHUNK_ROWS  # vertices in a micro-batch
    form: Form | None = None  # the physical form of sums; None: the best that this Spark has
    attempts: int = 2  # attempts at a pass's rows, if Spark's own retries were not enough
    propagate: Literal["join", "messages"] = "join"  # "messages": by GraphFrames' aggregateMessages
    stall_seconds: float = 900.0  # seconds without any task starting or ending after which a pass is given up
    messenger: Settings = field(default_factory=Settings)


@dataclass(frozen=True, eq=False)
class KeptHandle:
    """A column that outlives its pass: id, values."""

    pinned: Pinned


@dataclass(eq=False)
class _Loaded:
    """A loaded graph, with the stages of its plan and the bytes moved since."""

    site: Site
    static: Mapping[str, ColumnHandle]  # columns of the vertex table, by name
    stages: Mapping[str, Stage]  # by name
    commits: Commits
    shuffled_before: int  # bytes
    vertices: int

    @property
    def tables(self) -> Tables:
        return self.site.tables


def compute(rows: DataFrame) -> None:
    """Compute all rows and store none."""
    rows.write.format("noop").mode("overwrite").save()


class RowsEngine(Engine):
    """Runs plans as Spark DataFrames; workers, which `link` coordinates, run the stages.

    Args:
        spark: The user's session; the engine works in a session of its own beside it.
        link: The link to the Router and its workers.
        endpoint: The Router's address and keys, as Spark's executors reach it.
        settings: The settings for rows; None: the defaults.
        on_close: The objects that close with the engine, last first.
    """

    traits = TRAITS

    def __init__(
        self,
        spark: SparkSession,
        link: CoordinatorLink,
        endpoint: Endpoint,
        settings: RowsSettings | None = None,
        on_close: Sequence[Closable] = (),
    ) -> None:
        self.settings = settings or RowsSettings()
        partitions = self.settings.partitions or spark.sparkContext.defaultParallelism
        self._placement = Placement(partitions)
        self._session = open_session(spark, partitions, self.settings.chunk_rows)
        self._sums = Sums(self._placement, self.settings.form or choose_form())
        if self.settings.propagate == "messages":
            require_core(self._session)
        self._link, self._endpoint = link, endpoint
        self._on_close = list(on_close)
        self._held: _Loaded | None = None
        self._under_way: PassState | None = None
        self._hoisted: dict[str, ColumnHandle] = {}  # static columns that were computed once

    # -- the graph ---------------------------------------------------------------------------------------------------

    @property
    def stands(self) -> bool:
        """True if Spark is running."""
        return spark_runs(self._session)

    @translated()
    def lay_out(self, graph: Graph, plan: Plan) -> None:
        """Place and persist the parts of the graph that the plan reads, and publish the plan's stages."""
        self._unload()
        weighted, chunk_rows = graph.statistics.weighted, self.settings.chunk_rows
        shuffled_before = shuffle_bytes(self._session.sparkContext)
        naming = named_jobs(self._session.sparkContext, "loading the graph in rows")
        with naming:
            with active_session_kept(self._session):
                frames = graph.frames(self._session)
            with brought_over(self._session, frames) as (vertices, edges):
                tables = load_tables(
                    vertices, edges, Needs.of(plan, graph.statistics.edge_data), self._placement, chunk_rows, weighted
                )
        try:
            commits = Commits(self._link, plan)
        except BaseException:
            tables.close()
            raise
        site = Site(
            run=commits.run,
            tables=tables,
            placement=self._placement,
            chunk_rows=chunk_rows,
            endpoint=self._endpoint,
            settings=self.settings.messenger,
            source_gradients=plan.source_gradients,
        )
        stages = {stage.name: stage for stage in plan.stages}
        self._held = _Loaded(
            site, _static_columns(tables, plan), stages, commits, shuffled_before, graph.statistics.vertices
        )
        free_java_objects()

    @property
    def _loaded(self) -> _Loaded:
        if self._held is None:
            raise EngineError("the rows engine has no graph: call load first")
        return self._held

    @property
    def _state(self) -> PassState:
        if self._under_way is None:
            raise EngineError("the rows engine runs no pass: call begin first")
        return self._under_way

    def adapt(self, plan: Plan) -> None:
        """Publish other stages; workers forget the old ones."""
        loaded = self._loaded
        loaded.commits.renew(plan)
        loaded.site = replace(loaded.site, run=loaded.commits.run)
        loaded.stages = {stage.name: stage for stage in plan.stages}

    def adopt(self, plan: Plan, columns: Mapping[str, KeptHandle]) -> None:
        """Make computed columns static: their rows are placed and sorted as the vertex table's, and persisted."""
        self._release_hoisted()
        widths = {column.name: column.width for column in plan.hoisted}
        for name, kept in columns.items():
            rows = self._placement.place(kept.pinned.frame.withColumn(PART, self._placement.of(ID)))
            placed = pin(rows.sortWithinPartitions(PART, ID))
            self._hoisted[name] = ColumnHandle(Made(placed.frame, placed, read=True), "values", widths[name])
        try:
            self._force([handle.made.frame for handle in self._hoisted.values()], "columns computed once")
        finally:
            for kept in columns.values():
                kept.pinned.release()

    def _release_hoisted(self) -> None:
        hoisted, self._hoisted = self._hoisted, {}
        for handle in hoisted.values():
            if handle.made.pinned is not None:
                handle.made.pinned.release()

    def static(self, name: str) -> ColumnHandle:
        """Return a column of the vertex table, or one that was adopted."""
        return self._hoisted.get(name) or self._loaded.static[name]

    # -- a pass ------------------------------------------------------------------------------------------------------

    def begin(self, plan: Plan, steps: Sequence[Step], a_pass: Pass) -> None:
        """Begin a pass: offer the parameters to the workers."""
        commits = self._loaded.commits
        commits.begin(steps, a_pass)
        read = Counter(name for step in steps for name in step.reads)
        piped = Counter(name for step in steps if isinstance(step, PipeStep) for name in step.inputs + step.collections)
        self._under_way = PassState(commits.number, read, piped)

    def propagate(self, step: PropagateStep, column: ColumnHandle) -> ColumnHandle:
        """Sum a column along edges."""
        if self.settings.propagate == "messages":
            return self._propagate_by_messages(step, column)
        tables = self._loaded.tables
        frame = propagate(
            tables.placed_edges(step.edges, step.reverse, step.within),
            column.rows(),
            self._sums,
            weighted=step.weighted and tables.weighted,
            reverse=step.reverse,
            combine=step.combine,
        )
        return ColumnHandle(self._make(frame, [step.output.name]), VALUE, step.output.width)

    def _propagate_by_messages(self, step: PropagateStep, column: ColumnHandle) -> ColumnHandle:
        """Sum a column as `propagate` does, but at once instead of with the pass."""
        tables = self._loaded.tables
        sums = propagate_by_messages(
            tables.vertices.select(ID),
            tables.placed_edges(step.edges, step.reverse, step.within),
            column.rows(),
            weighted=step.weighted and tables.weighted,
            reverse=step.reverse,
        )
        frame = self._placement.place(sums.withColumn(PART, self._placement.of(ID)))
        made = Made(frame, Pinned(sums))
        self._state.made.append(made)
        return ColumnHandle(made, VALUE, step.output.width)

    def total(self, step: TotalStep, columns: Mapping[str, ColumnHandle]) -> ColumnHandle:
        """Reduce a column over all vertices."""
        column = columns[step.input]
        scaled = column.rows() if step.scale is None else times(column.rows(), columns[step.scale].rows(), column.width)
        frame = self._total(scaled, step.kind, column.width)
        return ColumnHandle(self._make(frame, [step.output.name]), VALUE, step.output.width)

    def _total(self, column: DataFrame, kind: TotalKind, width: int) -> DataFrame:
        loaded = self._loaded
        return total(loaded.tables.vertices, column, kind, width, loaded.vertices, self._placement)

    def total_gradient(self, step: TotalGradientStep, columns: Mapping[str, ColumnHandle]) -> ColumnHandle:
        """Add the gradient of a total to other parts of the gradient of a column."""
        loaded = self._loaded
        gradients = [columns[name] for name in step.gradients]
        sums = [self._total(gradient.rows(), "sum", gradient.width) for gradient in gradients]
        x, moments, scale = (
            None if name is None else columns[name].rows() for name in (step.x, step.moments, step.scale)
        )
        plus = [columns[name].rows() for name in step.plus]
        spread = Spread(step.kind, loaded.vertices, step.output.width)
        frame = spread(loaded.tables.vertices, loaded.tables.id_type, sums, x, moments, scale, plus)
        return ColumnHandle(self._make(self._placement.place(frame), [step.output.name]), VALUE, step.output.width)

    def collect(self, step: CollectStep, columns: Sequence[ColumnHandle]) -> CollectionHandle:
        """Collect source rows for every chunk."""
        sources = within(self._loaded.tables.sources[step.edges], step.within)
        frame = collect(sources, [column.rows() for column in columns])
        return CollectionHandle(
            self._make(frame, [step.output]), step.edges, tuple(zip(step.columns, columns, strict=True))
        )

    def gather(self, step: GatherStep, contributions: ContributionsHandle) -> ColumnHandle:
        """Sum the rows that chunks returned for a vertex as a source."""
        frame = gather(contributions.rows(), self._sums, combine=step.combine)
        return ColumnHandle(self._make(frame, [step.output.name]), VALUE, step.output.width)

    def pipe(self, step: PipeStep, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        """Run a stage in the workers, lazily."""
        builder = PipeBuilder(self._loaded.site, step, self._loaded.stages[step.stage], values, self._state)
        self._loaded.commits.expect(step, self._loaded.tables.occupied(step.within))
        task = builder.task()
        rows, returned = builder.rows(task), task.returned
        names = [column.name for column in step.outputs]
        if not step.outputs or all(item.kind == VERTEX for item in returned):
            made = self._make(self._placement.place(rows) if step.outputs else rows, names)
            return {c.name: ColumnHandle(made, r.column, c.width) for c, r in zip(step.outputs, returned, strict=True)}
        tagged = self._make(rows, names)
        vertex = [item.column for item in returned if item.kind == VERTEX]
        if vertex:
            tagged.read = True
            own = tagged.frame.where(F.col("kind") == VERTEX).select(PART, ID, *vertex)
            by_vertex = self._make(self._placement.place(own), names)
        return {
            c.name: ColumnHandle(by_vertex, r.column, c.width)
            if r.kind == VERTEX
            else ContributionsHandle(tagged, r.column, r.kind)
            for c, r in zip(step.outputs, returned, strict=True)
        }

    def _make(self, frame: DataFrame, names: Iterable[str]) -> Made:
        """Note a frame, and pin its rows if more than one step reads them."""
        pinned = pin(frame) if sum(self._state.reads.get(name, 0) for name in names) > 1 else None
        made = Made(pinned.frame if pinned else frame, pinned)
        self._state.made.append(made)
        return made

    def finish(self, kept: Mapping[str, Handle]) -> Outcome:
        """Compute everything by one action, and return the results that the stages committed."""
        columns = {name: KeptHandle(pin(self._dense(handle))) for name, handle in kept.items()}
        try:
            ends = [made.frame for made in self._state.made if not made.read]
            ends += [handle.pinned.frame for handle in columns.values()]
            self._force(ends, str(self._loaded.commits))
            outcome = self._loaded.commits.take()
        except BaseException:
            for handle in columns.values():
                handle.pinned.release()
            raise
        self.abort()
        return replace(outcome, columns=columns)

    def _force(self, ends: Sequence[DataFrame], description: str) -> None:
        one_column = [end.select(F.lit(0).alias("row")) for end in ends]
        rows = reduce(DataFrame.unionAll, one_column)
        force(
            self._session.sparkContext,
            lambda: compute(rows),
            description,
            self.settings.attempts,
            self.settings.stall_seconds,
        )

    def _dense(self, handle: ColumnHandle) -> DataFrame:
        """Return id and values for every vertex, with zeros where the column has no row."""
        ids = self._loaded.tables.vertices.select(PART, ID)
        zeros = F.array_repeat(F.lit(0.0).cast("float"), handle.width)
        rows = ids.join(handle.rows().hint("merge"), [PART, ID], "left")
        return rows.select(ID, F.coalesce(VALUE, zeros).alias("values"))

    def read(self, handle: KeptHandle) -> DataFrame:
        """Return a kept column: id, values (array<float>). It is valid until it is released, or the engine is closed."""
        return handle.pinned.frame

    def release(self, handle: Handle) -> None:
        """Free a kept column. All others live until their pass ends, because they are computed then."""
        if isinstance(handle, KeptHandle):
            handle.pinned.release()

    def abort(self) -> None:
        """Free the rows that the pass has pinned."""
        state, self._under_way = self._under_way, None
        for made in state.made if state else ():
            if made.pinned is not None:
                made.pinned.release()

    def piped(self) -> Sequence[Extent]:
        """Return the rows and bytes that went to the workers and back, for each pipe."""
        return self._loaded.commits.piped()

    def bytes_moved(self) -> dict[str, int]:
        """Return the bytes moved since `load`, by the report's keys."""
        loaded = self._loaded
        shuffled = shuffle_bytes(self._session.sparkContext) - loaded.shuffled_before
        return loaded.commits.bytes_moved() | {"shuffle_written": shuffled}

    # -- the end -----------------------------------------------------------------------------------------------------

    def _unload(self) -> None:
        self._release_hoisted()
        if self._held is not None:
            self._held.tables.close()
            self._held.commits.close()
            self._held = None
            free_java_objects()

    def close(self) -> None:
        """Free the graph, and stop all that was started for this engine. This may be called twice."""
        try:
            self._unload()
        finally:
            while self._on_close:
                self._on_close.pop().close()


def _static_columns(tables: Tables, plan: Plan) -> dict[str, ColumnHandle]:
    """Return the plan's static columns in the vertex table. Columns of plain numbers instead of vectors have width 0."""
    made = Made(tables.vertices, read=True)
    handles = {}
    for column in plan.static_columns:
        plain = column.name in PLAIN and tables.vertices.schema[column.name].dataType.typeName() != "array"
        handles[column.name] = ColumnHandle(made, column.name, 0 if plain else column.width, column.name)
    return handles
