"""The interface of a Graph Engine, and the loop that runs a plan's steps on any of them."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lotan.engines.observed import Observed
from lotan.errors import EngineError, PassLostError
from lotan.stages.randomness import Randomness
from planner.physical import (
    CollectStep,
    EdgeStep,
    GatherStep,
    PipeStep,
    Plan,
    PropagateStep,
    Step,
    makes,
    model_and_parameter,
    of_model,
    reads,
)
from planner.statistics import Statistics

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame as SparkDataFrame

    from lotan.graph import Graph

log = logging.getLogger(__name__)

PASS_ATTEMPTS = 3  # of a walk over a plan's steps that the engine lost

Handle = Any
"""An engine's own way to hold a column or a collection: a tensor, a DataFrame and a field name, a block RDD."""


@dataclass(frozen=True)
class Pass:
    """One walk over a plan's steps."""

    epoch: int
    parameters: Mapping[str, torch.Tensor]  # every parameter and buffer, by name; the same throughout the pass
    seed: int = 0
    seeds: tuple[int, ...] = ()  # of a batch: each model's own

    @classmethod
    def of_batch(cls, epoch: int, weights: Sequence[Mapping[str, torch.Tensor]], seeds: Sequence[int]) -> Pass:
        """A pass of a batch.

        Args:
            epoch: the same for all its models.
            weights: each model's parameters and buffers, by the model's own names.
            seeds: each model's own.
        """
        named = {of_model(model, name): tensor for model, own in enumerate(weights) for name, tensor in own.items()}
        return cls(epoch, named, seeds=tuple(seeds))

    @property
    def randomness(self) -> Randomness:
        """Where its random numbers come from."""
        return Randomness(self.seed, self.epoch, self.seeds)


@dataclass(frozen=True)
class Outcome:
    """What a pass leaves behind beside columns."""

    gradients: Mapping[str, torch.Tensor] = field(default_factory=dict)  # by parameter name, summed in partition order
    statistics: np.ndarray | None = (
        None  # of a turn. float64 [splits, k], of a batch [models, splits, k]; see lotan.stages.metrics
    )
    evaluation: np.ndarray | None = None  # of an evaluation, all splits; as `statistics`
    columns: Mapping[str, Handle] = field(default_factory=dict)  # those asked for by `keep`

    def by_model(self, models: int) -> list[Outcome]:
        """What a pass of a batch leaves behind for each of its models: gradients by the model's own names, and statistics."""
        gradients: list[dict[str, torch.Tensor]] = [{} for _ in range(models)]
        for name, gradient in self.gradients.items():
            model, parameter = model_and_parameter(name)
            gradients[model][parameter] = gradient
        nothing = [None] * models
        statistics = nothing if self.statistics is None else self.statistics
        evaluation = nothing if self.evaluation is None else self.evaluation
        return [Outcome(*own) for own in zip(gradients, statistics, evaluation, strict=True)]


class Engine(Observed, ABC):
    """Runs plans over one loaded graph. Engines differ in where columns live, and in no number that a user sees."""

    name: str

    def load(self, graph: Graph, plan: Plan) -> None:
        """Make all static columns and edge sets that `plan` reads available: the graph's, and those computed once.

        Raises:
            EngineError: a stage failed, or what is computed once was lost again and again.
        """
        self.lay_out(graph, plan)
        self.prepare_with_retries(plan)

    def prepare_with_retries(self, plan: Plan) -> None:
        """Compute what the plan computes once, also where it is lost meanwhile.

        Raises:
            EngineError: a stage failed, or what is computed once was lost again and again.
        """
        for _ in range(PASS_ATTEMPTS - 1):
            try:
                self.prepare(plan)
                return
            except PassLostError as error:
                log.warning("what no epoch changes is computed again: %s", error)
        self.prepare(plan)

    def prepare(self, plan: Plan) -> None:
        """Compute what the plan computes once; again, where it was lost."""
        if plan.prepare:
            names = [column.name for column in plan.hoisted]
            self.adopt(plan, run(self, plan, plan.prepare, Pass(epoch=0, parameters={}), keep=names).columns)

    @abstractmethod
    def adapt(self, plan: Plan) -> None:
        """Run other stages over the graph as it is loaded: `plan` reads no static or hoisted column that was not there."""

    @property
    def stands(self) -> bool:
        """Whether what it was started on is still there."""
        return True

    def has_room(self, plan: Plan, statistics: Statistics) -> bool:
        """Whether the graph as it is laid out has room for the plan's columns."""
        return True

    @abstractmethod
    def lay_out(self, graph: Graph, plan: Plan) -> None:
        """Take the graph's own columns and edge sets that `plan` reads."""

    @abstractmethod
    def adopt(self, plan: Plan, columns: Mapping[str, Handle]) -> None:
        """Hold kept columns as static ones from now on, in place of any of the same names.

        What `plan` does not read once it is prepared may be let go.
        """

    @abstractmethod
    def static(self, name: str) -> Handle:
        """A static column: the loaded graph's, or one adopted."""

    @abstractmethod
    def propagate(self, step: PropagateStep, column: Handle) -> Handle:
        """Sum along edges."""

    @abstractmethod
    def collect(self, step: CollectStep, columns: Sequence[Handle]) -> Handle:
        """Neighbourhoods, for a pipe."""

    @abstractmethod
    def gather(self, step: GatherStep, contributions: Handle) -> Handle:
        """The adjoint of collect."""

    def on_edges(self, step: EdgeStep, columns: Mapping[str, Handle]) -> Handle:
        """Run a step on edges; `columns` holds all that it reads. Only for engines with the ability, see engines.choice."""
        raise EngineError(f"the {self.name} engine runs no {type(step).__name__}: plan with its own abilities")

    @abstractmethod
    def pipe(self, step: PipeStep, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        """Run a stage; `values` holds all columns and collections the step names, the result its outputs by name."""

    @abstractmethod
    def read(self, handle: Handle) -> pd.DataFrame | SparkDataFrame:
        """A column with the vertices' ids: `id` as in the graph, `values`, an array of float.

        A Spark DataFrame is lazy, and good until the engine is closed.
        """

    @abstractmethod
    def release(self, handle: Handle) -> None:
        """Called once for every column and collection that is not static, when no later step reads it.

        An engine that only plans the steps, and runs them in `finish`, puts the release off until then.
        """

    @abstractmethod
    def begin(self, plan: Plan, steps: Sequence[Step], a_pass: Pass) -> None:
        """Called before the first step of a pass over `steps`."""

    @abstractmethod
    def finish(self, kept: Mapping[str, Handle]) -> Outcome:
        """Called after the last step: force whatever is still lazy, and return what the stages committed."""

    @abstractmethod
    def abort(self) -> None:
        """Called instead of `finish` after a step failed: drop what the pass holds beside columns. Raises nothing."""

    @abstractmethod
    def close(self) -> None:
        """Free everything the engine holds. May be called twice."""

    def bytes_moved(self) -> dict[str, int]:
        """Bytes since `load`, zero for what does not apply.

        Keys "messenger_sent", "messenger_received", "messenger_shared" (of both, what went through shared memory) and
        "shuffle_written".
        """
        return {"messenger_sent": 0, "messenger_received": 0, "messenger_shared": 0, "shuffle_written": 0}


def run(
    engine: Engine,
    plan: Plan,
    steps: Sequence[Step],
    a_pass: Pass,
    keep: Sequence[str] = (),
    watch: Callable[[Step | None, Mapping[str, Handle]], None] | None = None,
) -> Outcome:
    """Walk `steps` once.

    Every column and collection is released after the last step that reads it, unless it is static or in `keep`;
    what `keep` names is the caller's to release.

    Args:
        engine: with a graph loaded.
        plan: the plan the steps are from.
        steps: one of plan.passes.
        a_pass: epoch, parameters and seed.
        keep: columns to return in the outcome.
        watch: told when the pass has begun, of no step, and of each step with all that is held after it.

    Raises:
        EngineError: a stage failed. Nothing of the pass is left held.
    """
    walk = _Walk(engine, plan)
    engine.begin(plan, steps, a_pass)
    try:
        if watch is not None:
            watch(None, {})
        for step, last_reads in zip(steps, last_uses(steps, keep), strict=True):
            walk.take(step)
            if watch is not None:
                watch(step, walk.held)
            walk.drop(last_reads)
        kept = {name: walk.get(name) for name in keep}
        outcome = engine.finish(kept)
        walk.drop([name for name in walk.held if name not in kept])
        return outcome
    except BaseException:
        walk.drop(list(walk.held))
        engine.abort()
        raise


class _Walk:
    """The handles of one pass, by name."""

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self.engine = engine
        self.static = frozenset(column.name for column in (*plan.static_columns, *plan.hoisted))
        self.held: dict[str, Handle] = {}

    def take(self, step: Step) -> None:
        """Run one step on the handles it names, and hold what it makes."""
        engine = self.engine
        match step:
            case PropagateStep():
                self.held[step.output.name] = engine.propagate(step, self.get(step.input))
            case CollectStep():
                self.held[step.output] = engine.collect(step, [self.get(name) for name in step.columns])
            case GatherStep():
                self.held[step.output.name] = engine.gather(step, self.get(step.contributions))
            case EdgeStep():
                self.held[step.output.name] = engine.on_edges(step, {name: self.get(name) for name in reads(step)})
            case PipeStep():
                self.held.update(engine.pipe(step, {name: self.get(name) for name in reads(step)}))

    def get(self, name: str) -> Handle:
        """The handle of a column or collection."""
        return self.held[name] if name in self.held or name not in self.static else self.engine.static(name)

    def drop(self, names: Sequence[str]) -> None:
        """Release handles."""
        for name in names:
            if name in self.held:
                self.engine.release(self.held.pop(name))


def last_uses(steps: Sequence[Step], keep: Sequence[str]) -> list[tuple[str, ...]]:
    """For each step, the names that no later step reads, among those it reads or makes."""
    later = set(keep)
    done: list[tuple[str, ...]] = []
    for step in reversed(steps):
        now = [name for name in dict.fromkeys([*reads(step), *makes(step)]) if name not in later]
        done.append(tuple(now))
        later.update(now)
    return done[::-1]
