"""A graph that stays laid out in Spark from one training to the next."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from threading import Lock
from weakref import WeakKeyDictionary

from lotan.arguments import require_kind
from lotan.borders import first_line
from lotan.engines.opening import open_engine
from lotan.graph import Graph
from lotan.planning.job import Job
from lotan.settings.config import TrainerConfig
from lotan.training.learner import Learner
from lotan.training.loaded_engine import LoadedEngine
from lotan.training.passes import Passes
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
    "propagate",
)
"""Of the Trainer: those that an engine is started with."""


@contextmanager
def persisted(graph: Graph) -> Iterator[Graph]:
    """Within the block, trainings on a graph in Spark hand the engine on, as `with lotan.persisted(graph): ...`.

    The first `Trainer.fit` starts workers and lays the graph out; the next ones find it there, and with it what plans compute
    once, such as the first sum over neighbours: by content, so that other models find it too. An engine that was asked for
    with other settings, or whose training failed, is started anew. What else is started within the block (a `ModelBatch`,
    predictions, `explain(analyze=True)`, a fit in another thread) has an engine of its own beside it, whose memory comes on top.
    Of a graph in files, the first fit's Spark session lasts as long as the block, with its master and its heap. On the local
    engine nothing changes: what is computed once stays with the graph in any case.

    Args:
        graph: to train on more than once.

    Raises:
        ConfigurationError: for something else than a graph.
    """
    require_kind("persisted", "graph", graph, Graph, 'a lotan.Graph, such as lotan.Graph.read("digits")')
    if graph in _held:
        yield graph
        return
    held = _held[graph] = _Held()
    try:
        yield graph
    finally:
        del _held[graph]
        with held.lent:  # by another thread, perhaps
            held.close()


class _Held:
    """The engine of a persisted graph."""

    def __init__(self) -> None:
        self.lent = Lock()  # held by whoever trains
        self._opened = ExitStack()
        self._engine: LoadedEngine | None = None
        self._asked: tuple[object, ...] = ()

    @contextmanager
    def lend(self, job: Job, config: TrainerConfig, learner: Learner) -> Iterator[Passes]:
        """To whoever has acquired `lent`."""
        try:
            passes = self._passes(job, config, learner)
            yield passes
            assert self._engine is not None  # `_passes` has it
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
                )  # here, for whoever trains on the local engine needs no Spark

                self._opened.enter_context(closing(open_spark()))  # the session, should the job be what has started it
            self._engine, self._asked = LoadedEngine(config, self._opened), asked
        engine = self._engine.ready(plan, job.graph, needs)
        return Passes(engine, plan, [learner], self._engine.before)

    def close(self) -> None:
        """Stop the engine. May be called twice, and used again."""
        self._engine = None
        try:
            self._opened.close()
        except Exception as error:  # Spark has gone, and with it what would be let go there
            log.warning("the engine of a persisted graph was not closed in order: %s", first_line(error))


_held: WeakKeyDictionary[Graph, _Held] = WeakKeyDictionary()
"""The engines of the graphs that are persisted now. An entry comes and goes with the block of its `persisted`."""


@contextmanager
def open_passes(job: Job, graph: Graph, config: TrainerConfig, learner: Learner) -> Iterator[Passes]:
    """The engine with the graph loaded, for one learner: its own, or that of a graph that is persisted.

    Args:
        job: the learner's.
        graph: that was given.
        config: as asked for.
        learner: of the job.
    """
    held = _held.get(graph)
    if held is not None and job.engine.name != "local" and held.lent.acquire(blocking=False):
        try:
            with held.lend(job, config, learner) as passes:
                yield passes
        finally:
            held.lent.release()
        return
    with closing(open_engine(job.needs(config), job.graph, config)) as engine:
        engine.load(job.graph, job.plan)
        yield Passes(engine, job.plan, [learner])
