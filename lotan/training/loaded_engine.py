"""An engine for several plans in turn. It is opened once and loads the graph once, while the plans and their stages change."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

from lotan.engines.base import Engine
from lotan.engines.opening import open_engine
from lotan.graph.graph import Graph
from lotan.links.examples import LinkGraph
from lotan.settings.config import TrainerConfig
from lotan.training.passes import Passes
from planner.footprint import Footprint
from planner.physical import Plan, Stage
from planner.spec import EdgeSet
from planner.steps.collect import CollectStep
from planner.steps.edge_dropout import EdgeDropoutStep
from planner.steps.propagate import PropagateStep
from planner.topology import relations_of
from planner.turning import reversed_sets


class LoadedEngine:
    """The engine that several trainings on one graph use one after the other.

    Args:
        config: The settings that the engine is opened with.
        opened: The stack that closes the engine.
    """

    def __init__(self, config: TrainerConfig, opened: ExitStack) -> None:
        self._config, self._opened = config, opened
        self._engine: Engine | None = None
        self._loaded: Plan | None = None  # the plan that the engine's loaded columns and edges suit
        self._links: LinkGraph | None = (
            None  # the links that messages pass along, if the loaded graph is that of a link task
        )
        self._moved: Mapping[str, int] = {}  # the final count, taken before the engine was closed
        self.before: Mapping[str, int] = {}  # bytes that had moved since the graph was loaded, when the last plan came

    @property
    def stands(self) -> bool:
        """True if the engine is usable or has not been opened yet."""
        return self._engine is None or self._engine.stands

    def ready(self, plan: Plan, graph: Graph, needs: Footprint, links: LinkGraph | None = None) -> Engine:
        """Return the engine with the plan's stages, and with all parts of the graph that they read.

        Args:
            plan: The plan to run next. Columns that it computes once are named by their content.
            graph: The graph, at the place from which the engine loads it.
            needs: The footprint of the largest plan that is known. It sizes Spark's heap, which cannot grow later.
            links: The links of a link task. Other shares of validation and test leave other edges to the graph.
        """
        engine = self._engine
        if engine is None:
            engine = self._engine = self._opened.enter_context(closing(open_engine(needs, graph, self._config)))
        loaded, self._loaded = self._loaded, None
        other, self._links = links is not self._links, links
        if loaded is None or other or not lies_as(loaded, plan) or not engine.has_room(plan, graph.statistics):
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
        """Note that a lost pass made the engine compute its hoisted columns again, for the pass's own plan alone."""
        if passes.prepared and self._loaded is not None:
            self._loaded = replace(self._loaded, hoisted=passes.plan.hoisted)

    def bytes_moved(self) -> Mapping[str, int]:
        """Return the bytes moved, see `lotan.engines.base.Engine.bytes_moved`. After the end, return the final count."""
        if self._engine is None or self._loaded is None:
            return self._moved
        return self._engine.bytes_moved()

    def leave(self) -> None:
        """Let go of the engine, which its opener closes."""
        with suppress(Exception):  # a dead JVM has no figures, and the error that reports its death is on its way
            self._moved = self.bytes_moved()
        self._engine = self._loaded = None


def lies_as(loaded: Plan, plan: Plan) -> bool:
    """Return True if the graph as loaded for one plan suits another plan.

    It does if all that the other plan reads is loaded, in the order that the plan needs.
    """
    if any(getattr(loaded, name) != getattr(plan, name) for name in ("levels", "targets", "source_gradients")):
        return False
    return _columns(plan, "static_columns") <= _columns(loaded, "static_columns") and _edges(plan) <= _edges(loaded)


def _columns(plan: Plan, kind: str) -> set[str]:
    return {column.name for column in getattr(plan, kind)}


def _edges(plan: Plan) -> set[tuple[str, str]]:
    """Return the edge sets that a plan reads, each with its use."""
    steps = [step for steps in plan.passes for step in steps]
    sums = {(step.edges, "reverse" if step.reverse else "forward") for step in steps if isinstance(step, PropagateStep)}
    drawn = {(step.edges, "draws") for step in steps if isinstance(step, EdgeDropoutStep)}
    collected = {(step.edges, "collected") for step in steps if isinstance(step, CollectStep)}
    made = {(edges, "made") for edges in (*relations_of(plan), *reversed_sets(plan))}
    by_stages = {(edges, use) for stage in plan.stages for edges in stage.edge_sets for use in _uses(stage, edges)}
    return sums | drawn | collected | made | by_stages


def _uses(stage: Stage, edges: EdgeSet) -> tuple[str, ...]:
    return ("collected", *["drawn on"] * stage.draws_on(edges), *stage.edge_columns(edges))
