"""The mini-batches of a run on blocks: Spark draws those of an epoch by one job, and each goes to a worker as a whole.

A task gathers the vertices and edges of one batch, sends them to a worker, and waits. The worker has the batch in memory
when the weights of its turn come, and runs the plan of a batch as the local engine does. So the driver holds weights and
gradients, and no row of the graph. The batches that follow are gathered and sent meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import asdict
from math import nan
from uuid import uuid4

from pyspark import RDD
from pyspark.sql import DataFrame, Row
from pyspark.sql.types import ArrayType

from lotan.batches.schedule import PassOf, Prepared
from lotan.batches.spark_frames import EpochFrames, GraphFrames
from lotan.batches.spark_tasks import SendTask, Sent
from lotan.borders import translated
from lotan.engines.action import force, free_java_objects
from lotan.engines.base import PASS_ATTEMPTS, Outcome, Pass
from lotan.engines.blocks.engine import BlocksEngine
from lotan.engines.blocks.load import outputs_of, plain
from lotan.engines.commits import gradients_of, offered
from lotan.engines.local.batch_graph import follows_from_sample
from lotan.engines.rows.placement import Placement, active_session_kept, brought_over, open_session
from lotan.errors import ConfigurationError, EngineError, PassLostError
from lotan.graph import Graph
from lotan.settings.regimes import BATCHES_AHEAD, MiniBatch
from lotan.stages import tensor_names
from lotan.stages.draws import Randomness
from lotan.stages.plan_codec import encode_plan
from messenger.errors import MessengerError
from messenger.jobs import STATISTICS, PipeJob
from planner.physical import Column as PlanColumn
from planner.physical import Plan
from planner.regime import hops_of_plan
from planner.spec import edges_of_column

log = logging.getLogger(__name__)

ARROW_ROWS = 4096  # rows of a batch that a task takes at a time


class SparkBatches:
    """The batches of a run on the blocks engine.

    Batches are numbered through all epochs, and the number of a batch is that of its pass. A repeated task sends the same
    batch, and its result counts once.

    Args:
        engine: The engine, with the graph loaded.
        graph: The graph.
        plan: The plan of a batch. Nothing is computed once for all batches.
        regime: The sampling of batches.
        examples: The number of training vertices that have labels.
        chunk_rows: The number of vertices that a stage processes at a time; None: a number that suits the batch.

    Raises:
        ConfigurationError: If this Spark cannot place rows by number.
    """

    def __init__(
        self,
        engine: BlocksEngine,
        graph: Graph,
        plan: Plan,
        regime: MiniBatch,
        examples: int,
        chunk_rows: int | None = None,
    ) -> None:
        if not hasattr(DataFrame, "repartitionById"):
            raise ConfigurationError(
                "mini-batches on engine blocks need Spark 4.1 or later, which places rows by number; take engine local"
            )
        assert not plan.hoisted  # the planner was told so
        self.plan, self.prepared = plan, Prepared()
        self._engine, self._regime = engine, regime
        self._fanouts = regime.fanouts[: hops_of_plan(plan)]
        self.count = -(-examples // regime.batch_size)
        self._moved = {"messenger_sent": 0, "messenger_received": 0, "messenger_shared": 0}
        self._run = uuid4().hex
        self._opened = ExitStack()
        try:
            self._open(graph, chunk_rows)
        except BaseException:
            self.close()
            raise

    @translated()
    def _open(self, graph: Graph, chunk_rows: int | None) -> None:
        engine, link = self._engine, self._engine.link
        self._opened.callback(link.forget, self._run)
        program = {"plan": encode_plan(self.plan)} | ({} if chunk_rows is None else {"rows": chunk_rows})
        link.publish(self._run, tensor_names.BATCH, program)
        with active_session_kept(engine.session):
            session = open_session(engine.session, engine.partitions, ARROW_ROWS)
            tables = graph.frames(session)
            self._sent = [
                _sent(number, one, tables[0], outputs_of(self.plan)) for number, one in enumerate(_columns(self.plan))
            ]
            of_edges = [one for one in self._sent if edges_of_column(one.name) is not None]
            others = [engine.read(engine.static(one.name)).withColumnRenamed("values", one.field) for one in of_edges]
            with brought_over(session, [*tables, *others]) as (vertices, edges, *further):
                own = [
                    plain(vertices, one.name, self.plan).alias(one.field) for one in self._sent if one not in of_edges
                ]
                self._graph = GraphFrames.of(vertices, edges, own, further, graph.statistics.weighted)
        self._opened.callback(self._graph.close)
        # the task whose turn it is always finds a place
        self._ahead = min(BATCHES_AHEAD, max(0, engine.context.defaultParallelism - 1))
        self._threads = self._opened.enter_context(ThreadPoolExecutor(1 + self._ahead, "lotan-batches"))

    def outcomes(self, epoch: int, a_pass: PassOf, drawn_as: int | None = None, first: int = 0) -> Iterator[Outcome]:
        """Train on the batches of an epoch in order, and yield the result of each. The caller takes a step after each.

        Args:
            epoch: The epoch.
            a_pass: A function from the number of a batch to its pass, with the parameters of that moment.
            drawn_as: The epoch whose draws its batches have: this one, because the settings refuse a fixed order.
            first: The number of the first batch, if those before it are done.

        Raises:
            EngineError: If a batch fails.
        """
        assert drawn_as in (None, epoch)
        with closing(self._sending(epoch)) as sending:
            for batch in range(first, self.count):
                yield self._outcome(sending, batch, a_pass(batch))

    def _sending(self, epoch: int) -> _Sending:
        engine, first = self._engine, epoch * self.count
        engine.link.promise(self._run, first + self.count - 1)
        job = PipeJob(self._run, first, tensor_names.BATCH, tensor_names.BATCH, 0)
        levels = len(self._fanouts) + 1
        task = SendTask(
            job, engine.endpoint, engine.settings.messenger, levels, tuple(self._sent), self._graph.of_edges
        )
        names = [one.field for one in self._sent]
        of = Randomness(self._regime.seed, epoch)
        frames = EpochFrames(self._graph, of, self._regime.batch_size, self._fanouts, names)
        said = f"epoch {epoch}, training on mini-batches"
        return _Sending(engine, frames, task, self.count, self._threads, self._ahead, said)

    def _outcome(self, sending: _Sending, batch: int, a_pass: Pass) -> Outcome:
        """Return the result of a batch. One that was lost is sent again, for the same weights."""
        for _ in range(PASS_ATTEMPTS - 1):
            try:
                return self._turn(sending, batch, a_pass)
            except PassLostError as error:
                log.warning("%s: batch %d is sent again: %s", sending, batch, error)
        return self._turn(sending, batch, a_pass)

    @translated()
    def _turn(self, sending: _Sending, batch: int, a_pass: Pass) -> Outcome:
        """Begin the turn of a batch, and wait for its result."""
        link, job, started = self._engine.link, sending.job(batch), time.perf_counter()
        parameters, drawn = offered(a_pass)
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
        return Outcome(gradients_of(totals.tensors), totals.tensors[STATISTICS])

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
        self._opened.close()

    def figures(self) -> dict[str, float]:
        """Return what was prepared and what it took, as plain data for the report."""
        return asdict(self.prepared)

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
    ) -> None:
        self._engine, self._frames, self._task, self._count, self._said = engine, frames, task, count, said
        self._threads, self._ahead, self._tag = threads, ahead, f"lotan-batches-{uuid4().hex}"
        self._waiting: dict[int, Future[tuple[int, int]]] = {}
        with active_session_kept(engine.session):
            placed = Placement(count).place(frames.rows(), "batch")
            self._tasks: RDD[Row] | None = placed.mapInArrow(task, task.SCHEMA).rdd

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

    def _send(self, batch: int) -> tuple[int, int]:
        context, settings = self._engine.context, self._engine.settings
        found: list[Row] = []

        def run() -> None:
            if self._tasks is None:
                raise EngineError(f"{self}: batch {batch + 1} is not sent, because the epoch has ended early")
            found[:] = context.runJob(self._tasks, list, [batch])

        context.addJobTag(self._tag)
        try:
            force(context, run, f"{self}, batch {batch + 1}", settings.attempts, settings.stall_seconds)
        finally:
            context.removeJobTag(self._tag)
        (row,) = found
        return row["vertices"], row["edges"]

    def close(self) -> None:
        """Cancel what is under way, and free what the batches were drawn of. This may be called twice."""
        self._tasks = None
        for future in self._waiting.values():
            future.cancel()
        if self._waiting:
            self._engine.context.cancelJobsWithTag(self._tag)
        wait(self._waiting.values())
        self._waiting.clear()
        self._frames.close()
        free_java_objects()  # with the last reference to its frames, Spark drops what it has shuffled


def _columns(plan: Plan) -> list[PlanColumn]:
    """Return the columns of vertices that a batch is sent with. Others follow from its edges, or from its targets."""
    read = plan.lasting | {"label"}
    return [
        one
        for one in plan.static_columns
        if one.name in read and one.name != "split" and not follows_from_sample(one.name)
    ]


def _sent(number: int, column: PlanColumn, vertices: DataFrame, outputs: int) -> Sent:
    """Return how a column travels: labels as in `lotan.graph.GraphArrays`, and what follows from edges as plain numbers.

    Args:
        number: The number of the column among those that are sent.
        column: The column.
        vertices: The table of vertices, whose labels are classes or arrays.
        outputs: The width of labels that are arrays.
    """
    field = f"c{number}"
    if column.name == "label":
        several = isinstance(vertices.schema["label"].dataType, ArrayType)
        return Sent("label", field, "float32", outputs, absent=nan) if several else Sent("label", field, "int64")
    return Sent(column.name, field, "float32", column.width, flat=edges_of_column(column.name) is not None)
