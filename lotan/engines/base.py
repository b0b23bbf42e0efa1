"""The interface of a Graph Engine, and the loop that runs a plan's steps on any engine."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch

from lotan.engines.observed import Observed
from lotan.errors import EngineError, PassLostError
from lotan.stages.randomness import Randomness
from planner.physical import Plan, model_and_parameter, of_model
from planner.statistics import Statistics
from planner.steps.collect import CollectStep, GatherStep
from planner.steps.edge_step import EdgeStep
from planner.steps.learned_rows import LearnedRowsGradientStep, LearnedRowsStep
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.score import ScoreStep
from planner.steps.step import Step
from planner.steps.total import TotalGradientStep, TotalStep
from planner.traits import EngineTraits

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame as SparkDataFrame

    from lotan.graph.graph import Graph

log = logging.getLogger(__name__)

PASS_ATTEMPTS = 3  # attempts at a pass that the engine has lost

Handle = Any
"""An engine's own form of a column or a collection: a tensor, a DataFrame and a field name, or an RDD of blocks."""


class Closable(Protocol):
    """Something that an engine closes when it is closed itself."""

    def close(self) -> object:
        """Free what it holds."""


@dataclass(frozen=True)
class Pass:
    """The numbers of one run over a plan's steps."""

    epoch: int
    parameters: Mapping[str, torch.Tensor]  # all parameters and buffers by name, constant during the pass
    seed: int = 0
    seeds: tuple[int, ...] = ()  # the seed of each model of a batch
    batch: int = 0  # the number of the mini-batch in its epoch; 0 for a full batch

    @classmethod
    def of_batch(
        cls, epoch: int, weights: Sequence[Mapping[str, torch.Tensor]], seeds: Sequence[int], batch: int = 0
    ) -> Pass:
        """Return a pass of a batch.

        Args:
            epoch: The epoch, which is the same for all models.
            weights: Each model's parameters and buffers, by the model's own names.
            seeds: The seed of each model.
            batch: The number of the mini-batch in its epoch.
        """
        named = {of_model(model, name): tensor for model, own in enumerate(weights) for name, tensor in own.items()}
        return cls(epoch, named, seeds=tuple(seeds), batch=batch)

    @property
    def randomness(self) -> Randomness:
        """The source of the pass's random numbers."""
        return Randomness(self.seed, self.epoch, self.seeds, self.batch)


@dataclass(frozen=True)
class Outcome:
    """The results of a pass, apart from columns that later steps read."""

    # by parameter name, summed in the order of partitions; those of learned rows are sparse tensors in a mini-batch
    gradients: Mapping[str, torch.Tensor] = field(default_factory=dict)
    statistics: np.ndarray | None = (
        None  # float64 [splits, k], or [models, splits, k] of a batch; see lotan.stages.metrics
    )
    evaluation: np.ndarray | None = None  # the statistics of an evaluation over all splits, shaped as above
    columns: Mapping[str, Handle] = field(default_factory=dict)  # the columns that `keep` names
    rows: int | None = None  # the vertices of a mini-batch; None: a pass over the whole graph

    def by_model(self, models: int) -> list[Outcome]:
        """Return the outcome of each model of a batch: its gradients, by the model's own names, and its statistics."""
        gradients: list[dict[str, torch.Tensor]] = [{} for _ in range(models)]
        for name, gradient in self.gradients.items():
            model, parameter = model_and_parameter(name)
            gradients[model][parameter] = gradient
        nothing = [None] * models
        statistics = nothing if self.statistics is None else self.statistics
        evaluation = nothing if self.evaluation is None else self.evaluation
        return [Outcome(*own) for own in zip(gradients, statistics, evaluation, strict=True)]


class Engine(Observed, ABC):
    """Runs plans over one loaded graph. Engines differ in the place of columns, but in no number that a user sees."""

    traits: ClassVar[EngineTraits]
    scoring: Callable[[torch.Tensor], torch.Tensor] | None = None
    """In a link task, the function from the output rows to their gradient, which `score` calls."""

    def load(self, graph: Graph, plan: Plan) -> None:
        """Load the static columns and edge sets that a plan reads, and compute the columns that it computes once.

        Raises:
            EngineError: If a stage fails, or if columns computed once are lost in every attempt.
        """
        self.lay_out(graph, plan)
        self.prepare_with_retries(plan)

    def prepare_with_retries(self, plan: Plan) -> None:
        """Compute the columns that the plan computes once. If they are lost meanwhile, compute them again.

        Raises:
            EngineError: If a stage fails, or if the columns are lost in every attempt.
        """
        for _ in range(PASS_ATTEMPTS - 1):
            try:
                self.prepare(plan)
                return
            except PassLostError as error:
                log.warning("columns that no epoch changes are computed again: %s", error)
        self.prepare(plan)

    def prepare(self, plan: Plan) -> None:
        """Compute the columns that the plan computes once. If they were lost, this computes them again."""
        if plan.prepare:
            names = [column.name for column in plan.hoisted]
            self.adopt(plan, run(self, plan, plan.prepare, Pass(epoch=0, parameters={}), keep=names).columns)

    @abstractmethod
    def adapt(self, plan: Plan) -> None:
        """Switch to another plan's stages over the loaded graph. `plan` reads no static or hoisted column that is not loaded."""

    @property
    def stands(self) -> bool:
        """True if the processes that the engine was started on are still there."""
        return True

    def has_room(self, plan: Plan, statistics: Statistics) -> bool:
        """Return True if the graph as loaded has room for the plan's columns."""
        return True

    @abstractmethod
    def lay_out(self, graph: Graph, plan: Plan) -> None:
        """Load the graph's own columns and edge sets that `plan` reads."""

    @abstractmethod
    def adopt(self, plan: Plan, columns: Mapping[str, Handle]) -> None:
        """Make computed columns static, in place of any static columns with the same names.

        Columns that `plan` reads only for this computation may be freed.
        """

    @abstractmethod
    def static(self, name: str) -> Handle:
        """Return a static column: one of the loaded graph, or one that was adopted."""

    @abstractmethod
    def propagate(self, step: PropagateStep, column: Handle) -> Handle:
        """Sum a column along edges."""

    @abstractmethod
    def collect(self, step: CollectStep, columns: Sequence[Handle]) -> Handle:
        """Collect neighbourhoods for a pipe."""

    @abstractmethod
    def gather(self, step: GatherStep, contributions: Handle) -> Handle:
        """Sum contributions at their source vertices: the adjoint of collect."""

    def on_edges(self, step: EdgeStep, columns: Mapping[str, Handle]) -> Handle:
        """Run a step on edges; `columns` has all columns that it reads.

        The engine needs the ability that the step's kind names in `NEEDS`.
        """
        raise EngineError(f"the {self.traits.name} engine runs no {type(step).__name__}: plan with its own abilities")

    def score(self, step: ScoreStep, rows: Handle) -> Handle:
        """Score pairs of the model's output rows, and return the gradient of the rows. See `planner.steps.score`.

        Raises:
            EngineError: If the engine scores no pairs, or was given none.
        """
        raise EngineError(f"the {self.traits.name} engine scores no pairs of vertices: take engine 'local' or 'blocks'")

    def scored(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the gradient that `scoring` finds for the output rows. [vertices, width] -> [vertices, width].

        Raises:
            EngineError: If there are no pairs to score.
        """
        if self.scoring is None:
            raise EngineError(
                f"the {self.traits.name} engine was given no pairs to score: set `scoring` before the pass"
            )
        return self.scoring(rows)

    def learned_rows(self, step: LearnedRowsStep) -> Handle:
        """Return the rows of a parameter that has one for each vertex. The engine needs the ability "learned_rows"."""
        raise EngineError(f"the {self.traits.name} engine reads no learned rows: plan with its own abilities")

    def hand_in_rows(self, step: LearnedRowsGradientStep, gradient: Handle) -> None:
        """Hand in the gradient of learned rows, which `finish` returns with those of other parameters."""
        raise EngineError(f"the {self.traits.name} engine reads no learned rows: plan with its own abilities")

    def keep_rows(self, rows: Mapping[str, torch.Tensor]) -> None:
        """Let learned rows lie where their vertices are, instead of bringing them there in each pass.

        Args:
            rows: The rows by the names of their parameters, in the order of ids.
        """
        raise EngineError(f"the {self.traits.name} engine keeps no learned rows: plan with its own abilities")

    @abstractmethod
    def total(self, step: TotalStep, columns: Mapping[str, Handle]) -> Handle:
        """Reduce a column over all vertices, and give every vertex the result; `columns` has all columns that it reads."""

    @abstractmethod
    def total_gradient(self, step: TotalGradientStep, columns: Mapping[str, Handle]) -> Handle:
        """Compute the gradient of a column that was reduced; `columns` has all columns that the step reads."""

    @abstractmethod
    def pipe(self, step: PipeStep, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        """Run a stage, and return its outputs by name; `values` has all columns and collections that the step names."""

    @abstractmethod
    def read(self, handle: Handle) -> pd.DataFrame | SparkDataFrame:
        """Return a column as a DataFrame of `id`, as in the graph, and `values`, an array of float.

        A Spark DataFrame is lazy, and valid until the engine is closed.
        """

    @abstractmethod
    def release(self, handle: Handle) -> None:
        """Free a column or collection. It is called once for each that is not static, when no later step reads it.

        An engine that computes all steps in `finish` frees it after that.
        """

    @abstractmethod
    def begin(self, plan: Plan, steps: Sequence[Step], a_pass: Pass) -> None:
        """Begin a pass. It is called before the first of `steps`."""

    def load_columns(self, number: int, held: dict[str, Handle]) -> None:
        """Bring columns into memory before a step of the pass, by its number. An engine that moves none does nothing.

        Args:
            number: The number of the step.
            held: The handles of the pass by name, in which those of moved columns are replaced.
        """

    def store_columns(self, number: int, held: dict[str, Handle]) -> None:
        """Move columns to files after a step of the pass: the counterpart of `load_columns`."""

    @abstractmethod
    def finish(self, kept: Mapping[str, Handle]) -> Outcome:
        """End a pass after its last step: compute everything that is still lazy, and return the results that stages committed."""

    @abstractmethod
    def abort(self) -> None:
        """End a pass after a failed step: free all that it holds besides columns. This raises nothing."""

    @abstractmethod
    def close(self) -> None:
        """Free everything that the engine holds. This may be called twice."""

    def bytes_moved(self) -> dict[str, int]:
        """Return the bytes moved since `load`; zero where a way does not apply.

        The keys are "messenger_sent", "messenger_received", "messenger_shared" (the part of both that went through
        shared memory) and "shuffle_written".
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
    """Run the steps of a pass in order.

    Each column and collection is released after the last step that reads it, unless it is static or named in `keep`.
    The caller releases the columns in `keep`.

    Args:
        engine: The engine, with a graph loaded.
        plan: The plan that the steps belong to.
        steps: One of the plan's passes.
        a_pass: The epoch, the parameters and the seed.
        keep: The names of columns to return in the outcome.
        watch: A function that is called with None at the beginning, and after each step with the step and all columns held.

    Raises:
        EngineError: If a stage fails. Then nothing of the pass stays in memory.
    """
    walk = _Walk(engine, plan)
    engine.begin(plan, steps, a_pass)
    try:
        if watch is not None:
            watch(None, {})
        for number, (step, last_reads) in enumerate(zip(steps, last_uses(steps, keep), strict=True)):
            engine.load_columns(number, walk.held)
            walk.take(step)
            if watch is not None:
                watch(step, walk.held)
            walk.drop(last_reads)
            engine.store_columns(number, walk.held)
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
        """Run one step on the handles that it names, and store its results."""
        engine = self.engine
        match step:
            case PropagateStep():
                self.held[step.output.name] = engine.propagate(step, self.get(step.input))
            case LearnedRowsStep():
                self.held[step.output.name] = engine.learned_rows(step)
            case LearnedRowsGradientStep():
                engine.hand_in_rows(step, self.get(step.gradient))
            case TotalStep():
                self.held[step.output.name] = engine.total(step, {name: self.get(name) for name in step.reads})
            case TotalGradientStep():
                self.held[step.output.name] = engine.total_gradient(step, {name: self.get(name) for name in step.reads})
            case CollectStep():
                self.held[step.output] = engine.collect(step, [self.get(name) for name in step.columns])
            case GatherStep():
                self.held[step.output.name] = engine.gather(step, self.get(step.contributions))
            case ScoreStep():
                self.held[step.output.name] = engine.score(step, self.get(step.input))
            case EdgeStep():
                self.held[step.output.name] = engine.on_edges(step, {name: self.get(name) for name in step.reads})
            case PipeStep():
                self.held.update(engine.pipe(step, {name: self.get(name) for name in step.reads}))

    def get(self, name: str) -> Handle:
        """Return the handle of a column or collection."""
        return self.held[name] if name in self.held or name not in self.static else self.engine.static(name)

    def drop(self, names: Sequence[str]) -> None:
        """Release handles that the pass holds."""
        for name in names:
            if name in self.held:
                self.engine.release(self.held.pop(name))


def last_uses(steps: Sequence[Step], keep: Sequence[str]) -> list[tuple[str, ...]]:
    """Return, for each step, the names among its inputs and outputs that no later step reads."""
    later = set(keep)
    done: list[tuple[str, ...]] = []
    for step in reversed(steps):
        now = [name for name in dict.fromkeys([*step.reads, *step.makes]) if name not in later]
        done.append(tuple(now))
        later.update(now)
    return done[::-1]
