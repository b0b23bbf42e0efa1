"""A graph that stays loaded in Spark from one training to the next."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from threading import Lock
from weakref import WeakKeyDictionary

from lotan.arguments import A_GRAPH, require_kind
from lotan.batches.links import LinkBatches
from lotan.batches.opening import open_batches
from lotan.batches.schedule import TrainingBatches
from lotan.borders import first_line
from lotan.engines.base import Engine
from lotan.engines.local.engine import LocalEngine
from lotan.engines.opening import open_engine
from lotan.graph.graph import Graph
from lotan.planning.job import Job
from lotan.settings.config import TrainerConfig
from lotan.settings.tasks import LinkPrediction
from lotan.tables.pipeline import RowPipeline
from lotan.training.learner import Learner
from lotan.training.link_passes import LinkPasses
from lotan.training.loaded_engine import LoadedEngine
from lotan.training.passes import Passes
from lotan.training.row_tables import row_tables
from lotan.training.stored_vertices import open_stored_vertices
from planner.batch import by_content

log = logging.getLogger(__name__)

SETTINGS = (
    "workers",
    "partitions",
    "chunk_rows",
    "router",
    "keys",
    "master",
    "memory_limit",
    "worker_memory",
    "worker_rows",
    "propagate",
)
"""The settings of a Trainer that an engine is started with."""


@contextmanager
def persisted(graph: Graph) -> Iterator[Graph]:
    """Keep a graph loaded in Spark for all trainings within the block, as in `with lotan.persisted(graph): ...`.

    The first `Trainer.fit` starts workers and loads the graph. The next ones use the same engine. They also find the
    columns that plans compute once, such as the first sum over neighbours. These columns are named by their content, so
    that other models find them too.

    The engine is started anew after a training that failed, or if a training asks for other settings. Other work within
    the block has an engine of its own, whose memory comes on top: a `ModelBatch`, predictions, `explain(analyze=True)`,
    and a fit in another thread.

    If the graph is in files, the Spark session of the first fit lasts as long as the block, with its master and its
    heap. On the local engine nothing changes: there, columns that are computed once stay with the graph in any case.

    Args:
        graph: The graph that is trained on more than once.

    Raises:
        ConfigurationError: If `graph` is not a graph.
    """
    require_kind("persisted", "graph", graph, Graph, A_GRAPH)
    if graph in _held:
        yield graph
        return
    held = _held[graph] = _Held()
    try:
        yield graph
    finally:
        del _held[graph]
        with held.lent:  # another thread may be training
            held.close()


class _Held:
    """The engine of a persisted graph."""

    def __init__(self) -> None:
        self.lent = Lock()  # the training thread holds it
        self._opened = ExitStack()
        self._engine: LoadedEngine | None = None
        self._asked: tuple[object, ...] = ()

    @contextmanager
    def lend(self, job: Job, config: TrainerConfig, learner: Learner) -> Iterator[Passes]:
        """Give the passes of the engine to the thread that has acquired `lent`."""
        try:
            with closing(self._passes(job, config, learner)) as passes:
                yield passes
            assert self._engine is not None  # `_passes` has opened it
            self._engine.settle(passes)
        except BaseException:
            self.close()
            raise

    def _passes(self, job: Job, config: TrainerConfig, learner: Learner) -> Passes:
        needs, plan = job.needs(config), by_content(job.plan)
        asked = (needs.engine, needs.partitions, *(getattr(config, name) for name in SETTINGS))
        if self._engine is not None and (asked != self._asked or not self._engine.stands):
            self.close()
        if self._engine is None:
            if job.graph.origin == "spark":
                from lotan.hosts.spark_session import (
                    open_spark,
                )  # imported here, because the local engine needs no Spark

                self._opened.enter_context(closing(open_spark()))  # closes the session, if this job has started it
            self._engine, self._asked = LoadedEngine(config, self._opened), asked
        engine = self._engine.ready(plan, job.graph, needs)
        return Passes(engine, plan, [learner], self._engine.before, _batches(engine, job, config))

    def close(self) -> None:
        """Stop the engine. This may be called twice, and the object can be used again afterwards."""
        self._engine = None
        try:
            self._opened.close()
        except Exception as error:  # Spark has gone, and its columns with it
            log.warning("the engine of a persisted graph was not closed in order: %s", first_line(error))


_held: WeakKeyDictionary[Graph, _Held] = WeakKeyDictionary()
"""The engines of the graphs that are persisted now. `persisted` adds an entry for its block, and removes it at the end."""


def _batches(
    engine: Engine, job: Job, config: TrainerConfig, rows: RowPipeline | None = None
) -> TrainingBatches | None:
    """Return the mini-batches of a run, whose learned rows may lie in tables; None: it trains on the full batch."""
    if job.batch is None:
        return None
    if job.stored_vertices is not None:
        return open_stored_vertices(job, config)
    return open_batches(engine, job.graph, job.batch.plan, config, job.both, rows=rows)


def _link_batches(job: Job, config: TrainerConfig) -> LinkBatches | None:
    """Return the mini-batches of a link task; None: it trains on the full batch."""
    if job.batch is None or job.linked is None:
        return None
    return LinkBatches(job.linked, [job.batch.plan], config, config.epochs, job.both)


@contextmanager
def open_passes(job: Job, graph: Graph, config: TrainerConfig, learner: Learner) -> Iterator[Passes]:
    """Open an engine with the graph loaded, for one learner. A persisted graph brings the engine with it.

    Args:
        job: The job of the learner.
        graph: The graph as the user gave it.
        config: The settings of the run.
        learner: The learner that the passes are for.
    """
    # a model that sees labels has a graph of its own, with one more feature
    held = None if job.linked is not None or job.train.sees_labels else _held.get(graph)
    if held is not None and not job.traits.in_process and held.lent.acquire(blocking=False):
        try:
            with held.lend(job, config, learner) as passes:
                yield passes
        finally:
            held.lent.release()
        return
    with ExitStack() as opened:
        rows = opened.enter_context(row_tables(learner, config))
        engine = opened.enter_context(closing(open_engine(job.needs(config), job.graph, config)))
        plan = job.plan if engine.traits.in_process else by_content(job.plan)  # batches find its columns by these names
        engine.load(job.graph, plan)
        if isinstance(config.task, LinkPrediction) and not engine.traits.in_process:
            from lotan.training.links_on_blocks import open_on_blocks  # here, because the local engine needs no Spark

            yield opened.enter_context(open_on_blocks(engine, learner, config, plan, rows))
            return
        if isinstance(config.task, LinkPrediction):
            assert isinstance(engine, LocalEngine)
            of_links = _link_batches(job, config)
            if of_links is not None:
                opened.enter_context(closing(of_links))
                of_links.rows = rows
            yield LinkPasses(engine, learner, config.task, of_links)
            return
        batches = _batches(engine, job, config, rows)
        yield opened.enter_context(closing(Passes(engine, plan, [learner], batches=batches)))
