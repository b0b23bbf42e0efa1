"""An engine that goes from plan to plan: opened once, with the graph laid out once, and other stages as they come and go."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

from lotan.engines.base import Engine
from lotan.engines.opening import open_engine
from lotan.epochs import Passes
from lotan.graph import Graph
from lotan.settings import TrainerConfig
from planner.footprint import Footprint
from planner.physical import Plan, Stage
from planner.spec import EdgeSet
from planner.steps.collect import CollectStep
from planner.steps.edge_dropout import EdgeDropoutStep
from planner.steps.propagate import PropagateStep


class LoadedEngine:
    """What trains one after the other on one graph runs its passes on it.

    Args:
        config: as asked for.
        opened: closes the engine.
    """

    def __init__(self, config: TrainerConfig, opened: ExitStack) -> None:
        self._config, self._opened = config, opened
        self._engine: Engine | None = None
        self._loaded: Plan | None = None  # what the engine has of the graph is for
        self._moved: Mapping[str, int] = {}  # before the engine was closed
        self.before: Mapping[str, int] = {}  # bytes moved since the graph was laid out, when the last plan came

    @property
    def stands(self) -> bool:
        """Whether the engine has not been opened yet, or is of use."""
        return self._engine is None or self._engine.stands

    def ready(self, plan: Plan, graph: Graph, needs: Footprint) -> Engine:
        """The engine with the plan's stages, and with all that they read of the graph.

        Args:
            plan: whose columns that are computed once have names by content.
            graph: where the engine wants it.
            needs: for Spark's heap, which does not grow: of the largest plan that is known.
        """
        engine = self._engine
        if engine is None:
            engine = self._engine = self._opened.enter_context(closing(open_engine(needs, graph, self._config)))
        loaded, self._loaded = self._loaded, None
        if loaded is None or not lies_as(loaded, plan) or not engine.has_room(plan, graph.statistics):
            engine.load(graph, plan)
            loaded, self.before = plan, {}
        else:
            self.before = engine.bytes_moved()
            engine.adapt(plan)
            if not _columns(plan, "hoisted") <= _columns(loaded, "hoisted"):
                engine.prepare_with_retries(plan)
                loaded = replace(loaded, hoisted=plan.hoisted)
        self._loaded = loaded
        return engine

    def settle(self, passes: Passes) -> None:
        """Note that a pass which was lost has had the engine prepare anew, for its own plan alone."""
        if passes.prepared and self._loaded is not None:
            self._loaded = replace(self._loaded, hoisted=passes.plan.hoisted)

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


def lies_as(loaded: Plan, plan: Plan) -> bool:
    """Whether the graph, as it was laid out for one plan, has all that another reads, in the order that it wants."""
    if any(getattr(loaded, name) != getattr(plan, name) for name in ("levels", "targets", "source_gradients")):
        return False
    return _columns(plan, "static_columns") <= _columns(loaded, "static_columns") and _edges(plan) <= _edges(loaded)


def _columns(plan: Plan, kind: str) -> set[str]:
    return {column.name for column in getattr(plan, kind)}


def _edges(plan: Plan) -> set[tuple[str, str]]:
    """The edge sets that are read, and what for."""
    steps = [step for steps in plan.passes for step in steps]
    sums = {(step.edges, "reverse" if step.reverse else "forward") for step in steps if isinstance(step, PropagateStep)}
    drawn = {(step.edges, "draws") for step in steps if isinstance(step, EdgeDropoutStep)}
    collected = {(step.edges, "collected") for step in steps if isinstance(step, CollectStep)}
    by_stages = {(edges, use) for stage in plan.stages for edges in stage.edge_sets for use in _uses(stage, edges)}
    return sums | drawn | collected | by_stages


def _uses(stage: Stage, edges: EdgeSet) -> tuple[str, ...]:
    return ("collected", "drawn on") if stage.draws_on(edges) else ("collected",)
