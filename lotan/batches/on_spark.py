"""The mini-batches of a run on blocks: Spark draws those of an epoch by one job, and each goes to a worker as a whole.

A task gathers the vertices and edges of one batch, sends them to a worker, and waits. The worker has the batch in memory
when the weights of its turn come, and runs the plan of a batch as the local engine does. So the driver holds weights and
gradients, and no row of the graph. The batches that follow are gathered and sent meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import nan
from typing import Any, Literal, TypeVar
from uuid import uuid4

import numpy as np
import torch
from pyspark import RDD
from pyspark.sql import DataFrame, Row
from pyspark.sql.types import ArrayType
from torch import Tensor

from lotan.batches.schedule import PassOf, Prepared
from lotan.batches.spark_frames import EpochFrames, GraphFrames
from lotan.batches.spark_tasks import MembersTask, SendTask, Sent, ids_of
from lotan.borders import translated
from lotan.engines.action import force, free_java_objects
from lotan.engines.base import PASS_ATTEMPTS, Outcome, Pass
from lotan.engines.blocks.engine import BlocksEngine
from lotan.engines.blocks.load import outputs_of, plain
from lotan.engines.commits import gradients_of, offered
from lotan.engines.local.batch_graph import batch_columns
from lotan.engines.rows.placement import Placement, active_session_kept, brought_over, open_session
from lotan.engines.rows_of_types import RowsOfTypes
from lotan.errors import ConfigurationError, EngineError, PassLostError
from lotan.graph.arrays import Ids, Positions, positions_of
from lotan.graph.graph import Graph
from lotan.settings.regimes import BATCHES_AHEAD, MiniBatch
from lotan.stages import tensor_names
from lotan.stages.draws import Randomness
from lotan.stages.plan_codec import encode_plan
from lotan.tables.pipeline import RowPipeline
from messenger.errors import MessengerError
from messenger.jobs import STATISTICS, PipeJob
from planner.batch import by_content
from planner.physical import Column as PlanColumn
from planner.physical import Plan
from planner.regime import hops_of_plan
from planner.spec import edges_of_column
from planner.steps.learned_rows import LearnedRowsStep, learned_parameters

log = logging.getLogger(__name__)

ARROW_ROWS = 4096  # rows of a batch that a task takes at a time
CANCEL_SECONDS = 1.0  # after which jobs that still run are cancelled once more


T = TypeVar("T")


@dataclass
class _Batch:
    """A batch whose turn comes."""

    number: int  # in its epoch
    rows_of_graph: Tensor | None  # the rows of learned parameters that its vertices read; None: the model has none


class SparkBatches:
    """The batches of a run on the blocks engine.

    Batches are numbered through all epochs, and the number of a batch is that of its pass. A repeated task sends the same
    batch, and its result counts once.

    Args:
        engine: The engine, with the graph loaded.
        graph: The graph.
        plan: The plan of a batch. The columns that it computes once are among those that the engine has computed.
        regime: The sampling of batches.
        examples: The number of training vertices that have labels, or of training links.
        chunk_rows: The number of vertices that a stage processes at a time; None: a number that suits the batch.
        scorer: The data with which workers score the pairs of a link task, see `lotan.links.wire`; None for other tasks.
        both: True if batches have out-edges too.

    Raises:
        ConfigurationError: If this Spark cannot place rows by number.
    """

    notes: tuple[str, ...] = ()  # lines for the user on how they were opened

    def __init__(
        self,
        engine: BlocksEngine,
        graph: Graph,
        plan: Plan,
        regime: MiniBatch,
        examples: int,
        chunk_rows: int | None = None,
        scorer: dict[str, Any] | None = None,
        both: bool = False,
    ) -> None:
        if not hasattr(DataFrame, "repartitionById"):
            raise ConfigurationError(
                "mini-batches on engine blocks need Spark 4.1 or later, which places rows by number; take engine local"
            )
        self.plan = plan = by_content(plan)
        self.prepared = Prepared()
        self._engine, self._regime, self._whole = engine, regime, graph
        self._fanouts = regime.fanouts[: hops_of_plan(plan)]
        self.count = -(-examples // regime.batch_size)
        self._both = both
        self._moved = {"messenger_sent": 0, "messenger_received": 0, "messenger_shared": 0}
        self._run = uuid4().hex
        self._learned = learned_parameters(plan)
        self._ids = graph.ids if self._learned else None  # of all vertices
        self._of_types = RowsOfTypes(graph)
        self.rows: RowPipeline | None = None  # the learned rows of batches, if they lie in tables
        self._kept: EpochFrames | None = None  # the batches of the first epoch, if later ones may have them again
        self._opened = ExitStack()
        try:
            self._open(graph, chunk_rows, {} if scorer is None else {"scorer": scorer})
        except BaseException:
            self.close()
            raise

    @translated()
    def _open(self, graph: Graph, chunk_rows: int | None, scorer: dict[str, Any]) -> None:
        engine, link = self._engine, self._engine.link
        self._opened.callback(link.forget, self._run)
        program = {"plan": encode_plan(self.plan), **scorer} | ({} if chunk_rows is None else {"rows": chunk_rows})
        link.publish(self._run, tensor_names.BATCH, program)
        with active_session_kept(engine.session):
            self._session = open_session(engine.session, engine.partitions, ARROW_ROWS)
            self._graph = self._graph_frames()
        self._opened.callback(lambda: self._graph.close())  # the frames of that moment
        # the task whose turn it is always finds a place
        self._ahead = min(BATCHES_AHEAD, max(0, engine.context.defaultParallelism - 1))
        # one of them lists the vertices of the next batch, if a model learns their rows
        self._threads = self._opened.enter_context(ThreadPoolExecutor(2 + self._ahead, "lotan-batches"))

    def _graph_frames(self) -> GraphFrames:
        """Return the graph as batches are drawn from it, with the columns that the engine has computed."""
        engine, graph, session = self._engine, self._whole, self._session
        tables = graph.frames(session)
        columns = [one for one in batch_columns(self.plan) if one.name != "split"]
        self._sent = [_sent(number, one, tables[0], self.plan) for number, one in enumerate(columns)]
        hoisted = {one.name for one in self.plan.hoisted}
        made = [one for one in self._sent if one.name in hoisted or edges_of_column(one.name) is not None]
        others = [engine.read(engine.static(one.name)).withColumnRenamed("values", one.field) for one in made]
        with brought_over(session, [*tables, *others]) as (vertices, edges, *further):
            own = [plain(vertices, one.name, self.plan).alias(one.field) for one in self._sent if one not in made]
            by_relation = graph.vertex_types is not None
            weighted = graph.statistics.weighted
            return GraphFrames.of(vertices, edges, own, further, weighted, by_relation, self._both)

    def outcomes(self, epoch: int, a_pass: PassOf, drawn_as: int | None = None, first: int = 0) -> Iterator[Outcome]:
        """Train on the batches of an epoch in order, and yield the result of each. The caller takes a step after each.

        Args:
            epoch: The epoch.
            a_pass: A function from the number of a batch to its pass, with the parameters of that moment.
            drawn_as: The epoch whose draws its batches have; None: its own.
            first: The number of the first batch, if those before it are done.

        Raises:
            EngineError: If a batch fails.
        """
        with ExitStack() as opened:
            draw = partial(self._sending, epoch, drawn_as or epoch)
            self._now = draw()
            batches: Iterator[_Batch] = (self._listed(number) for number in range(first, self.count))
            if self.rows is not None:
                lent = self.rows.lent(batches)
                batches = opened.enter_context(closing(lent))
            # first: tables may be waiting for a task that lists vertices
            opened.callback(lambda: self._now.close())
            for batch in batches:
                turn = partial(self._turn, batch, a_pass(batch.number))
                again = partial(self._draw_again, draw) if self.plan.hoisted else None
                yield self._tried(turn, batch.number, again)

    def _draw_again(self, draw: Callable[[], _Sending]) -> None:
        """Draw what is left of an epoch from columns that are computed again, because they may be lost too."""
        self._now.close()
        self._drop_kept()
        self._graph.close()
        with active_session_kept(self._engine.session):
            self._engine.prepare(self._engine.plan)
            self._graph = self._graph_frames()
        self._now = draw()

    def _sending(self, epoch: int, drawn_as: int) -> _Sending:
        engine, first = self._engine, epoch * self.count
        engine.link.promise(self._run, first + self.count - 1)
        job = PipeJob(self._run, first, tensor_names.BATCH, tensor_names.BATCH, 0)
        levels = len(self._fanouts) + 1
        by_relation = self._graph.groups is not None
        of_batch = levels, tuple(self._sent), self._graph.of_edges, by_relation
        task = SendTask(job, engine.endpoint, engine.settings.messenger, *of_batch)
        with active_session_kept(engine.session):
            frames = self._drawn_as(drawn_as)
        said = f"epoch {epoch}, training on mini-batches"
        lists = bool(self._learned)
        return _Sending(engine, frames, task, self.count, self._threads, self._ahead, said, lists, frames is self._kept)

    def _drawn_as(self, epoch: int) -> EpochFrames:
        """Return the batches with the draws of an epoch. Those of the first are kept while later epochs have them again."""
        if self._kept is None or self._kept.of.epoch != epoch:
            self._drop_kept()
            frames = self._frames(epoch)
            self._kept = frames if self._regime.is_fixed and epoch == 1 else None
            return frames
        return self._kept

    def _drop_kept(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _frames(self, epoch: int) -> EpochFrames:
        """Return the batches of an epoch, which are not drawn yet."""
        of, names = Randomness(self._regime.seed, epoch), [one.field for one in self._sent]
        return EpochFrames(self._graph, of, self._regime.batch_size, self._fanouts, names)

    def _offered(self, batch: int, a_pass: Pass, rows: Positions | None) -> dict[str, np.ndarray]:
        """Return the parameters of the pass of a batch.

        Args:
            batch: The number of the batch in its epoch.
            a_pass: The pass.
            rows: The rows of parameters that the batch's vertices read: their positions among all vertices, or among those
                of the batch if rows lie in tables. None: the model has no learned rows.
        """
        found, _ = offered(a_pass)
        if rows is None:
            return found
        for name, step in self._learned.items():
            found[name] = found[name][self._places(step, rows)]
            if step.of_type is not None:
                here = self._of_types[step.of_type.number].numpy()[rows] >= 0
                among = np.where(here, here.cumsum() - 1, -1)
                found[tensor_names.rows_of_type(step.of_type.number)] = among
        return found

    def _places(self, step: LearnedRowsStep, rows: Positions) -> Positions:
        """Return the rows of a parameter that a batch reads, in the order of its vertices. int64 [those that have one].

        Args:
            step: The step that reads the parameter.
            rows: The positions of the batch's vertices among all. [vertices]
        """
        if step.of_type is None:
            return rows
        places: Positions = self._of_types[step.of_type.number].numpy()[rows]
        return places[places >= 0]

    @translated()
    def _listed(self, batch: int) -> _Batch:
        """Return a batch with the positions of its vertices, if the model has learned rows."""
        ids = self._ids
        if ids is None:
            return _Batch(batch, None)
        members = self._tried(lambda: self._now.members(batch), batch)
        return _Batch(batch, torch.from_numpy(positions_of(ids, members)))

    def _tried(self, work: Callable[[], T], batch: int, again: Callable[[], None] | None = None) -> T:
        """Do what belongs to a batch. If the batch is lost meanwhile, do it again, for the same weights, after `again`."""
        for _ in range(PASS_ATTEMPTS - 1):
            try:
                return work()
            except PassLostError as error:
                log.warning("%s: batch %d is sent again: %s", self._now, batch, error)
                if again is not None:
                    again()
        return work()

    @translated()
    def _turn(self, of_batch: _Batch, a_pass: Pass) -> Outcome:
        """Begin the turn of a batch, and wait for its result."""
        batch, sending = of_batch.number, self._now
        link, job, started = self._engine.link, sending.job(batch), time.perf_counter()
        rows = None if of_batch.rows_of_graph is None else of_batch.rows_of_graph.numpy()
        parameters, (_, drawn) = self._offered(batch, a_pass, rows), offered(replace(a_pass, parameters={}))
        link.begin(self._run, job.pass_number, parameters, drawn | {"backward": [], "batch": a_pass.batch})
        vertices, edges = sending.take(batch)
        try:
            totals = link.wait([job])
        except MessengerError as error:
            raise EngineError(f"{sending}: {error}") from error
        self._count(batch, vertices, edges, time.perf_counter() - started)
        for way, moved in zip(
            self._moved, (totals.bytes_sent, totals.bytes_received, totals.bytes_shared), strict=True
        ):
            self._moved[way] += moved
        gradients = gradients_of(totals.tensors)
        if rows is not None:
            for name, step in self._learned.items():
                if name in gradients:
                    places, shape = self._places(step, rows), a_pass.parameters[name].shape
                    gradients[name] = sparse(gradients[name], places, shape)
        return Outcome(gradients, totals.tensors[STATISTICS], rows=vertices)

    def _count(self, batch: int, vertices: int, edges: int, seconds: float) -> None:
        done = self.prepared
        done.batches += 1
        done.vertices += vertices
        done.edges += edges
        if batch == 0:  # it comes once those of the whole epoch are drawn
            done.sample_seconds += seconds
        else:
            done.wait_seconds += seconds

    def close(self) -> None:
        """Stop what is under way, and free the graph. This may be called twice."""
        if self.rows is not None:
            self.rows.stop()
        self._drop_kept()
        self._opened.close()

    def figures(self) -> dict[str, float]:
        """Return what was prepared and what it took, as plain data for the report."""
        return asdict(self.prepared) | ({} if self.rows is None else self.rows.figures())

    def bytes_moved(self) -> dict[str, int]:
        """Return the bytes that batches have moved, by the report's keys."""
        return dict(self._moved)


class _Sending:
    """The tasks of an epoch, each of which sends one batch. They run in the order of batches, some at a time.

    Args:
        engine: The engine.
        frames: The batches of the epoch.
        task: The function of a task.
        count: The number of batches.
        threads: The threads that wait for tasks.
        ahead: The number of batches that are sent before their turn.
        said: The description for Spark's user interface, and for errors.
        lists: True if `members` will be asked for the vertices of batches.
        keeps: True if a later epoch has the same batches, so that what they were drawn of stays.
    """

    def __init__(
        self,
        engine: BlocksEngine,
        frames: EpochFrames,
        task: SendTask,
        count: int,
        threads: ThreadPoolExecutor,
        ahead: int,
        said: str,
        lists: bool = False,
        keeps: bool = False,
    ) -> None:
        self._engine, self._frames, self._task, self._count, self._said = engine, frames, task, count, said
        self._keeps = keeps
        self._threads, self._ahead, self._tag = threads, ahead, f"lotan-batches-{uuid4().hex}"
        self._waiting: dict[int, Future[tuple[int, int]]] = {}
        with active_session_kept(engine.session):
            placed = Placement(count).place(frames.rows(), "batch")
            self._tasks: RDD[Row] | None = placed.mapInArrow(task, task.SCHEMA).rdd
            self._lists: RDD[Row] | None = None
            if lists:
                members = Placement(count).place(frames.members(), "batch")
                self._lists = members.mapInArrow(MembersTask(), MembersTask.SCHEMA).rdd
        self._listed: dict[int, Future[Row]] = {}

    def __str__(self) -> str:
        return self._said

    def job(self, batch: int) -> PipeJob:
        """Return the key under which the result of a batch is committed."""
        return self._task.job_of(batch)

    def take(self, batch: int) -> tuple[int, int]:
        """Wait until a batch was computed, and return the number of its vertices and of its edges.

        Raises:
            PassLostError: If its task failed, and another attempt may help.
            EngineError: If its task failed otherwise.
        """
        for one in range(batch, min(self._count, batch + 1 + self._ahead)):
            if one not in self._waiting:
                self._waiting[one] = self._threads.submit(self._send, one)
        try:
            found = self._waiting[batch].result()
        except Exception:  # an interruption is none: `close` then cancels the task
            del self._waiting[batch]  # another attempt sends it again
            raise
        del self._waiting[batch]
        return found

    def members(self, batch: int) -> Ids:
        """Return the ids of the vertices of a batch, in the order in which they are sent. Those of the next are listed ahead.

        It is asked for before the turn of the batch begins, while one task has still a place.

        Raises:
            EngineError: If its task failed.
        """
        for one in range(batch, min(self._count, batch + 2)):
            if one not in self._listed:
                self._listed[one] = self._threads.submit(self._row_of, "_lists", one)
        try:
            return ids_of(bytes(self._listed[batch].result()["ids"]))
        finally:
            self._listed.pop(batch, None)  # another attempt lists them again

    def _send(self, batch: int) -> tuple[int, int]:
        row = self._row_of("_tasks", batch)
        return row["vertices"], row["edges"]

    def _row_of(self, tasks: Literal["_tasks", "_lists"], batch: int) -> Row:
        """Run the task of a batch, and return the row that it makes."""
        context, settings = self._engine.context, self._engine.settings
        found: list[Row] = []

        def run() -> None:
            rows: RDD[Row] | None = getattr(self, tasks)
            if rows is None:
                raise EngineError(f"{self}: batch {batch + 1} is not sent, because the epoch has ended early")
            found[:] = context.runJob(rows, list, [batch])

        context.addJobTag(self._tag)
        try:
            force(context, run, f"{self}, batch {batch + 1}", settings.attempts, settings.stall_seconds)
        finally:
            context.removeJobTag(self._tag)
        (row,) = found
        return row

    def close(self) -> None:
        """Cancel what is under way, and free what the batches were drawn of. This may be called twice."""
        self._tasks = self._lists = None
        futures: list[Future[Any]] = [*self._waiting.values(), *self._listed.values()]
        for future in futures:
            future.cancel()
        while wait(futures, timeout=0).not_done:
            self._engine.context.cancelJobsWithTag(self._tag)
            wait(futures, timeout=CANCEL_SECONDS)  # a thread may start its job only after jobs were cancelled
        self._waiting.clear()
        self._listed.clear()
        if not self._keeps:
            self._frames.close()
        free_java_objects()  # with the last reference to its frames, Spark drops what it has shuffled


def sparse(values: Tensor, rows: Positions, shape: torch.Size) -> Tensor:
    """Return the gradient of learned rows as the local engine hands it in.

    Args:
        values: The gradients of the first rows of a batch. [some, width]
        rows: The rows of the parameter that the batch reads. [vertices]
        shape: The shape of the parameter.
    """
    places, order = torch.from_numpy(rows[: len(values)]).sort()
    found = values.reshape(len(values), *shape[1:])[order]
    return torch.sparse_coo_tensor(places[None], found, shape, is_coalesced=True, check_invariants=False)


def _sent(number: int, column: PlanColumn, vertices: DataFrame, plan: Plan) -> Sent:
    """Return how a column travels: labels as in `lotan.graph.GraphArrays`, and what follows from edges as plain numbers.

    Args:
        number: The number of the column among those that are sent.
        column: The column.
        vertices: The table of vertices, whose labels are classes or arrays.
        plan: The plan, whose loss knows the width of labels that are arrays.
    """
    field = f"c{number}"
    if column.name == "label":
        several = isinstance(vertices.schema["label"].dataType, ArrayType)
        if not several:
            return Sent("label", field, "int64")
        return Sent("label", field, "float32", outputs_of(plan), absent=nan)
    return Sent(column.name, field, "float32", column.width, flat=edges_of_column(column.name) is not None)
