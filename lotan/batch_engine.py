"""The engine under a model batch: opened once, loaded for what its models read, with other stages as they come and go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress

from lotan.engines.base import Engine
from lotan.engines.opening import open_engine
from lotan.epochs import BatchPasses
from lotan.graph import Graph
from lotan.learner import Learner
from lotan.settings import TrainerConfig
from planner.batch import Batch
from planner.footprint import Footprint
from planner.physical import Plan


class BatchEngine:
    """What a batch runs its passes on.

    Args:
        config: of the batch.
        opened: closes the engine.
    """

    def __init__(self, config: TrainerConfig, opened: ExitStack) -> None:
        self._config, self._opened = config, opened
        self._engine: Engine | None = None
        self._loaded: Plan | None = None  # what the engine has of the graph is for
        self._moved: Mapping[str, int] = {}  # before the engine was closed

    def passes(self, batch: Batch, graph: Graph, learners: Sequence[Learner], needs: Footprint) -> BatchPasses:
        """Over the graph, for some models.

        Args:
            batch: of the models, in their order.
            graph: where the engine wants it.
            learners: the models.
            needs: for Spark's heap, which does not grow: of the largest batch that is known.
        """
        if self._engine is None:
            self._engine = self._opened.enter_context(closing(open_engine(needs, graph, self._config)))
        if self._loaded is not None and covers(self._loaded, batch.plan):
            self._engine.adapt(batch.plan)
        else:
            self._loaded = None
            self._engine.load(graph, batch.plan)
            self._loaded = batch.plan
        return BatchPasses(self._engine, batch, learners)

    def settle(self, passes: BatchPasses) -> None:
        """Note that a pass which was lost has had the engine prepare anew, for its own plan alone."""
        if passes.prepared:
            self._loaded = passes.plan

    def bytes_moved(self) -> Mapping[str, int]:
        """See `lotan.engines.base.Engine.bytes_moved`; after the end, what it was then."""
        if self._engine is None or self._loaded is None:
            return self._moved
        return self._engine.bytes_moved()

    def leave(self) -> None:
        """Let go of the engine, which somebody else closes."""
        with suppress(Exception):  # a JVM that has died has no figures, and its failure is on its way
            self._moved = self.bytes_moved()
        self._engine = self._loaded = None


def covers(loaded: Plan, plan: Plan) -> bool:
    """Whether what was loaded for one plan is all that another reads."""
    return all(
        {column.name for column in getattr(plan, name)} <= {column.name for column in getattr(loaded, name)}
        for name in ("static_columns", "hoisted")
    ) and {edges for stage in plan.stages for edges in stage.edge_sets} <= {
        edges for stage in loaded.stages for edges in stage.edge_sets
    }
