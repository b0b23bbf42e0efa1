"""The blocks engine: a pass is one lineage of Spark RDDs whose elements are dense blocks of rows, computed by one job."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from torch import Tensor

from lotan.engines.action import force, free_java_objects, name_operator, named_jobs, shuffle_bytes, spark_runs
from lotan.engines.base import Closable, Engine, Handle, Outcome, Pass
from lotan.engines.blocks.edges import EdgeSteps, passing
from lotan.engines.blocks.facade import facade
from lotan.engines.blocks.learned import RowsByPlace
from lotan.engines.blocks.load import Loaded, load_blocks
from lotan.engines.blocks.naming import named
from lotan.engines.blocks.pipe import Collection, Column, Contributions, Site, numbered, pipe_step
from lotan.engines.blocks.reading import Reading, find_spares
from lotan.engines.blocks.running_pass import RunningPass
from lotan.engines.blocks.settings import BlocksSettings
from lotan.engines.blocks.sizes import check_partitions, least_partitions
from lotan.engines.blocks.trained_rows import TrainedRows
from lotan.engines.blocks.traits import TRAITS
from lotan.engines.commits import Commits
from lotan.engines.observed import Extent
from lotan.engines.results import ResultTensor, result_tensors
from lotan.errors import EngineError
from messenger.coordinator import CoordinatorLink
from messenger.endpoint import Endpoint
from planner.footprint import UNFREED_BYTES
from planner.physical import Plan
from planner.statistics import Statistics
from planner.steps.collect import CollectStep, GatherStep
from planner.steps.edge_step import EdgeStep
from planner.steps.learned_rows import LearnedRowsGradientStep, LearnedRowsStep, OfType
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.score import ScoreStep
from planner.steps.step import Step
from planner.steps.total import TotalGradientStep, TotalStep

if TYPE_CHECKING:
    from lotan.graph.graph import Graph


class BlocksEngine(Engine):
    """Runs plans on blocks; workers, which `link` coordinates, run the stages.

    Args:
        spark: A session with our jar, which is used as it is.
        link: The link to the Router and its workers.
        endpoint: The Router's address and keys, as Spark's executors reach it.
        settings: The settings for blocks; None: the defaults.
        on_close: The objects that close with the engine, last first.

    Raises:
        EngineError: If the session has no jar of ours, or the jar of another version.
    """

    traits = TRAITS

    def __init__(
        self,
        spark: SparkSession,
        link: CoordinatorLink,
        endpoint: Endpoint,
        settings: BlocksSettings | None = None,
        on_close: Sequence[Closable] = (),
    ) -> None:
        self.settings = settings or BlocksSettings()
        self._on_close = list(on_close)
        self.session, self.link, self.endpoint = (
            spark,
            link,
            endpoint,
        )  # for mini-batches too, see `lotan.batches.on_spark`
        self._facade = facade(spark)
        self._endpoint = self._facade.endpoint(
            endpoint.address, endpoint.server_key, endpoint.public_key, endpoint.secret_key
        )
        self._messenger = self._facade.messengerSettings(asdict(self.settings.messenger))
        self._loaded: Loaded | None = None
        self._commits: Commits | None = None
        self._pass: RunningPass | None = None
        self._hoisted: dict[str, Column] = {}  # static columns that were computed once
        self._laid_out = 0  # number of partitions
        self._unfreed = 0  # bytes of rows that were sent to Spark since Java's objects were freed
        self._rows: RowsByPlace | None = None  # the way of learned rows between this process and the graph
        self._trained_rows: TrainedRows | None = None
        self._shuffled_before = 0
        self._in_one_heap = not self.settings.shuffled and spark.sparkContext._jsc.isLocal()

    # -- the graph ---------------------------------------------------------------------------------------------------

    def lay_out(self, graph: Graph, plan: Plan) -> None:
        """Load the graph in blocks, and publish the plan's stages.

        Raises:
            ConfigurationError: If the configured number of partitions is too small.
        """
        if plan.source_gradients == "per_edge":
            raise EngineError(
                "the blocks engine always sums gradients before they cross partitions; plan with rgb, or use rows"
            )
        self._unload()
        partitions = self._laid_out = self._partitions(plan, graph.statistics)
        self._shuffled_before = shuffle_bytes(self.context)
        with named_jobs(self.context, "loading the graph in blocks"):
            self._loaded = load_blocks(self._facade, self.session, graph, plan, partitions, self.settings.chunk_rows)
        self._rows = RowsByPlace(self._facade, self.session, self._loaded.blocks, graph)
        self._trained_rows = TrainedRows(self._facade, self._loaded.blocks, self._rows, self._force)
        self._commits = Commits(self.link, plan, self.settings.chunk_rows)
        self._take(plan)
        free_java_objects()

    @property
    def stands(self) -> bool:
        """True if Spark is running."""
        return spark_runs(self.session)

    def has_room(self, plan: Plan, statistics: Statistics) -> bool:
        """Return True if no block would be too large."""
        return self._laid_out >= least_partitions(plan, statistics)

    def adapt(self, plan: Plan) -> None:
        """Publish other stages; workers forget the old ones.

        Freed columns of the graph are persisted again if the plan reads them.
        """
        self._facade.disconnect(self._run.run)
        self._run.renew(plan)
        self._take(plan)
        for name in self._lasting & self._graph.columns.keys():
            self._facade.persist(self._graph.columns[name].rows)

    def _take(self, plan: Plan) -> None:
        self.plan = plan  # the plan whose stages are published
        self._spares = find_spares(plan)
        self._lasting = plan.lasting
        self._stages = {stage.name: stage for stage in plan.stages}

    def _partitions(self, plan: Plan, statistics: Statistics) -> int:
        """Return the configured number of partitions.

        Without one, it is as many as Spark runs tasks at once, or more where memory or the size of blocks asks for it.
        """
        if self.settings.partitions is None:
            tasks = self.session.sparkContext.defaultParallelism
            return max(tasks, self.settings.at_least, least_partitions(plan, statistics))
        check_partitions(self.settings.partitions, plan, statistics)
        return self.settings.partitions

    @property
    def partitions(self) -> int:
        """The number of partitions of the loaded graph."""
        return self._laid_out

    @property
    def context(self) -> SparkContext:
        """Spark's context of the session."""
        return self.session.sparkContext

    @property
    def _graph(self) -> Loaded:
        assert self._loaded is not None, "no graph is loaded"
        return self._loaded

    @property
    def _by_place(self) -> RowsByPlace:
        assert self._rows is not None, "no graph is loaded"
        return self._rows

    @property
    def trained_rows(self) -> TrainedRows:
        """The learned rows that lie in Spark, if some do."""
        assert self._trained_rows is not None, "no graph is loaded"
        return self._trained_rows

    @property
    def _run(self) -> Commits:
        assert self._commits is not None, "no graph is loaded"
        return self._commits

    @property
    def _now(self) -> RunningPass:
        assert self._pass is not None, "no pass is under way"
        return self._pass

    def adopt(self, plan: Plan, columns: Mapping[str, Column]) -> None:
        """Make computed columns static; their rows stay persisted in place.

        Columns of the graph that only this computation needed are freed, and computed again if a later plan reads them.
        """
        self._release_hoisted()
        self._hoisted = {name: replace(column, static=name) for name, column in columns.items()}
        for name, column in self._graph.columns.items():
            if name not in self._lasting:
                self._facade.release(column.rows)

    def _release_hoisted(self) -> None:
        hoisted, self._hoisted = self._hoisted, {}
        for column in hoisted.values():
            self._facade.release(column.rows)

    def static(self, name: str) -> Column:
        """Return a column that was loaded or adopted. Workers store it if passes after `prepare` read it."""
        column = self._hoisted.get(name) or self._graph.columns[name]
        return column if name in self._lasting else replace(column, static=None)

    # -- a pass ------------------------------------------------------------------------------------------------------

    def begin(self, plan: Plan, steps: Sequence[Step], a_pass: Pass) -> None:
        """Begin a pass: offer the parameters to the workers."""
        reading = Reading(steps, self._spares)
        now = RunningPass(self._facade, self._in_one_heap, reading, passing(steps), a_pass.parameters)
        hold = now.hold if self._in_one_heap else None
        now.edges = EdgeSteps(self._graph, a_pass.randomness, self.settings.shuffled, hold)
        self._pass = now
        self._run.begin(steps, a_pass)

    @named
    def propagate(self, step: PropagateStep, column: Column) -> Column:
        """Sum a column along edges."""
        weighted = step.weighted and self._graph.weighted
        levels = numbered(step.within), numbered(step.output.within)
        blocks, read, along = self._graph.blocks, self._now.read(column), (step.edges, weighted, step.reverse, *levels)
        in_turn = self.settings.in_turn and self._in_one_heap
        if in_turn:
            rows = self._facade.propagateInTurn(blocks, read, self._now.files(column), *along)
        else:
            rows = self._facade.propagate(blocks, read, *along, self.settings.shuffled)
        if self._in_one_heap and step.output.name in self._now.reading.as_read:
            sums = rows if in_turn else self._facade.sums(blocks, read, *along)
            self._now.end(sums)
            return Column(rows, step.output.width, made=sums, sums=sums)
        self._now.keep(rows, [step.output.name])
        return Column(rows, step.output.width)

    @named
    def total(self, step: TotalStep, columns: Mapping[str, Column]) -> Column:
        """Reduce a column over all vertices. Each partition's part is made once, and read by the tasks of all."""
        column, scale = self._now.read(columns[step.input]), self._scale(step.scale, columns)
        parts = self._facade.totalParts(self._graph.blocks, column, scale, step.kind)
        self._now.hold(parts)
        given = self._graph.blocks, parts, step.kind, self.settings.shuffled
        width, name = step.output.width, step.output.name
        rows = self._facade.total(*given)
        if name in self._now.reading.by_rows:
            repeated = self._facade.repeated(*given)
            self._now.end(repeated)
            return Column(rows, width, made=repeated, sums=repeated)
        self._now.keep(rows, [name])
        return Column(rows, width)

    def _scale(self, name: str | None, columns: Mapping[str, Column]) -> Any:
        return None if name is None else self._now.read(columns[name])

    @named
    def total_gradient(self, step: TotalGradientStep, columns: Mapping[str, Column]) -> Column:
        """Add the gradient of a total to other parts of the gradient of a column."""

        def readers(names: Sequence[str]) -> list[Any]:
            found = [columns[name] for name in names]
            for column in found:
                self._now.read(column)
            return [column.rows if column.sums is None else column.sums for column in found]

        parts = self._facade.totalGradientParts(self._graph.blocks, readers(step.gradients))
        self._now.hold(parts)
        reduced = readers([name for name in (step.x, step.moments) if name is not None])
        scale, plus = self._scale(step.scale, columns), readers(step.plus)
        given = self._graph.blocks, parts, step.kind, self._graph.vertices, reduced, scale, plus
        rows = self._facade.totalGradient(*given, self.settings.shuffled)
        self._now.keep(rows, [step.output.name])
        return Column(rows, step.output.width)

    @named
    def learned_rows(self, step: LearnedRowsStep) -> Column:
        """Send the rows of a parameter from this process to their vertices, unless they are there."""
        if step.parameter in self.trained_rows:
            kept = self.trained_rows.column(step.parameter, step.within)
            self._now.keep(kept, [step.output.name])
            return Column(kept, step.output.width)
        rows = self._now.parameters[step.parameter].reshape(-1, step.output.width).numpy()
        attached = self._sent(rows, step.within, step.of_type)
        self._now.keep(attached, [step.output.name])
        return Column(attached, step.output.width)

    def keep_rows(self, rows: Mapping[str, Tensor]) -> None:
        """Let learned rows lie in Spark, with no state of an optimizer."""
        for name, one in rows.items():
            self.trained_rows.put(name, one, [])

    def _sent(self, rows: np.ndarray, within: int | None, of_type: OfType | None = None) -> Any:
        if self._unfreed > UNFREED_BYTES:
            free_java_objects()  # until then, the JVM of this process holds the rows that passes before have sent
            self._unfreed = 0
        self._unfreed += rows.nbytes
        found: list[Any] = []

        def send() -> None:
            found[:] = [self._by_place.column(rows, within, of_type)]

        self._force(send)  # the first one reads where vertices are
        return found[0]

    @named
    def score(self, step: ScoreStep, rows: Column) -> Column:
        """Compute the output rows, score their pairs in this process, and send the gradient back to the vertices."""
        self._now.read(rows)
        found: list[Tensor] = []

        def compute() -> None:
            self._facade.force([rows.rows])
            found[:] = [torch.from_numpy(self._by_place.rows(rows.rows, step.output.width))]

        self._force(compute)
        gradient = self._sent(self.scored(found[0]).numpy(), step.within)
        self._now.keep(gradient, [step.output.name])
        return Column(gradient, step.output.width)

    def hand_in_rows(self, step: LearnedRowsGradientStep, gradient: Column) -> None:
        """Note a gradient that `finish` brings to this process. It stays an end of the lineage, which is computed before.

        The gradient of rows that lie in Spark stays there, until the optimizer's step.
        """
        if step.parameter in self.trained_rows:
            taken = self.trained_rows.take(step.parameter, self._now.read(gradient))
            self._now.end(taken)
            return
        self._now.handed_in[step.parameter] = step, gradient

    def collect(self, step: CollectStep, columns: Sequence[Column]) -> Collection:
        """Note the columns of a collection. Nothing moves yet: a pipe picks the rows as it sends them."""
        return Collection(step.edges, dict(zip(step.columns, columns, strict=True)))

    @named
    def gather(self, step: GatherStep, contributions: Contributions) -> Column:
        """Sum, for each vertex, the contributions that came back for it as a source."""
        self._now.read(contributions)
        edges, made = contributions.edges, numbered(step.output.within)
        rows = self._facade.gather(self._graph.blocks, edges, contributions.rows, step.output.width, made)
        self._now.keep(rows, [step.output.name])
        return Column(rows, step.output.width)

    @named
    def on_edges(self, step: EdgeStep, columns: Mapping[str, Column]) -> Column:
        """Run a step on edges. Its result is a column of vertices, or a column of edges beside their destinations."""
        for column in columns.values():
            self._now.read(column)
        rows = self._now.edges.run(step, columns)
        self._now.keep(rows, [step.output.name])
        return Column(rows, step.output.width)

    @named
    def pipe(self, step: PipeStep, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        """Run a stage in the workers, lazily."""
        stage = self._stages[step.stage]
        together = 1 if stage.edge_sets else self.settings.together
        site = Site(self._run.run, self._run.number, self.settings.chunk_rows * together)
        reading = self._now.reading
        spared = reading.spared(step)
        returned = result_tensors(step, stage)
        weighted = self._graph.weighted
        plain, columns = pipe_step(site, step, stage, returned, values, reading.pipes, weighted, spared)
        plain["spent"] = self._now.spent(step)
        for column in columns:
            self._now.read(column)
        near = [self._graph.chunks[edges, step.within] for edges in stage.edge_sets]
        rows = [column.rows if column.sums is None else column.sums for column in columns]
        piped = self._facade.pipe(self._graph.blocks, json.dumps(plain), self._endpoint, self._messenger, rows, near)
        self._run.expect(step, self._graph.occupied(step.within))
        self._now.keep(piped, [column.name for column in step.outputs])
        return self._outputs(piped, step, returned)

    def _outputs(self, piped: Any, step: PipeStep, returned: Sequence[ResultTensor]) -> dict[str, Handle]:
        found: dict[str, Handle] = {}
        places = Counter[bool]()
        for column, one in zip(step.outputs, returned, strict=True):
            of_vertices = one.edges is None
            place = places[of_vertices]
            places[of_vertices] += 1
            if one.edges is None:
                found[column.name] = Column(self._facade.output(piped, place), column.width, made=piped)
            else:
                rows = self._facade.contributions(piped, place)
                found[column.name] = Contributions(rows, one.edges, made=piped)
        return found

    def finish(self, kept: Mapping[str, Handle]) -> Outcome:
        """Compute everything by one job, and return the results that the stages committed."""
        sharing = Counter(id(handle.made) for handle in kept.values() if handle.made is not None)
        for handle in kept.values():
            if sharing.pop(id(handle.made), 0) > 1:  # else each of these columns would run the stage once more
                self._now.hold(handle.made)
            self._facade.persist(handle.rows)
            self._now.read(handle)
        ends = [*self._now.ends.values(), *(handle.rows for handle in kept.values())]
        of_rows: dict[str, Tensor] = {}

        def compute() -> None:
            self._facade.force(ends)
            for parameter, (step, gradient) in self._now.handed_in.items():  # before the workers forget the pass
                of_rows[parameter] = torch.from_numpy(self._by_place.rows(gradient.rows, step.width, step.of_type))

        try:
            self._force(compute)
            outcome = self._run.take()
        except BaseException:
            for handle in kept.values():
                self._facade.release(handle.rows)
            raise
        self.abort()
        columns = {name: Column(one.rows, one.width) for name, one in kept.items()}
        return replace(outcome, gradients={**outcome.gradients, **of_rows}, columns=columns)

    def _force(self, action: Callable[[], None], said: str | None = None) -> None:
        """Run an action of Spark: that of the pass, or one with another description."""
        force(self.context, action, said or str(self._run), self.settings.attempts, self.settings.stall_seconds)

    def read(self, handle: Column) -> DataFrame:
        """Return a kept column as a DataFrame of id and values (array<float>)."""
        return DataFrame(self._facade.table(self._graph.blocks, handle.rows), self.session)

    def release(self, handle: Handle) -> None:
        """Free a kept column. All others live until their pass ends, because they are computed then."""
        if self._pass is None and isinstance(handle, Column):
            self._facade.release(handle.rows)

    def abort(self) -> None:
        """Free the RDDs that the pass has persisted."""
        name_operator(self.context, None)
        state, self._pass = self._pass, None
        if state is not None:
            state.release()

    def piped(self) -> Sequence[Extent]:
        """Return the rows and bytes that went to the workers and back, for each pipe."""
        return self._run.piped()

    def bytes_moved(self) -> dict[str, int]:
        """Return the bytes moved since `load`, by the report's keys."""
        shuffled = shuffle_bytes(self.session.sparkContext) - self._shuffled_before
        return self._run.bytes_moved() | {"shuffle_written": shuffled}

    # -- the end -----------------------------------------------------------------------------------------------------

    def _unload(self) -> None:
        self._release_hoisted()
        if self._trained_rows is not None:
            self._trained_rows.close()
        self._rows = self._trained_rows = None
        loaded, self._loaded = self._loaded, None
        commits, self._commits = self._commits, None
        if loaded is not None:
            loaded.close()
            del loaded
            free_java_objects()
        if commits is not None:
            self._facade.disconnect(commits.run)
            commits.close()

    def close(self) -> None:
        """Free the graph, and stop all that was started for this engine. This may be called twice."""
        try:
            self._unload()
        finally:
            while self._on_close:
                self._on_close.pop().close()
