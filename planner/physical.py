"""The physical plan: columns, stages as data, and the plan of an epoch's steps. Engines run it, explain prints it.

A *column* is one vector per vertex, known by name; an *edge column* one per edge of an edge set. A *step* makes columns out
of columns; `planner.steps` has a file for each kind. Steps stand in execution order; every column is made once. A *stage* is
a piece of the model between two graph operators, run by the DL Engine chunk by chunk; its backward is the vector-Jacobian
product of its forward.

What is *within* a level is about the vertices so many hops or fewer, along edges, from a target (a training vertex, or one in
any split), and the edges that end there. A gradient has the level of the column that it is of; where its step is within a
lower one, its last rows are zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Literal

from planner.spec import Call, EdgeSet, LossSpec, ParameterSpec, Targets

if TYPE_CHECKING:
    from planner.steps.step import Step  # which is made of columns

Mode = Literal["forward", "turn", "backward", "evaluate", "predict"]
"""forward: rows to rows. turn: the last stage forward, loss, and at once its gradients. backward: gradients of a stage's
outputs to gradients of its inputs. evaluate: the last stage to metrics only. predict: the last stage to its output rows."""

SourceGradients = Literal["summed", "per_edge"]
"""What a stage returns for a row that it read at the sources of edges: one gradient, or one for each edge."""

Overflow = Literal["file", "recompute"]
"""What becomes of what a forward run keeps for its backward, where a worker's memory for it is full."""

Counts = Literal["train", "all"]
"""The splits whose vertices a turn counts: those that the loss is of, or all, and then it evaluates the weights it is given."""


@dataclass(frozen=True)
class Column:
    """One vector per vertex, or with `edges` per edge of that set; of `shape`, flat on its way."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    static: bool = False  # a column of the graph, the same in every epoch
    edges: EdgeSet | None = None
    within: int | None = None  # the level up to which it has rows, or edges that end there; None: all

    @property
    def width(self) -> int:
        """Numbers per row."""
        return prod(self.shape)


@dataclass(frozen=True)
class StageInput:
    """A value a stage starts from.

    role "vertex": the column's row of each vertex of the chunk. role "source": the column's rows of the distinct source
    vertices of the chunk's in-edges (Collect); `lotan.scatter(_, "source", edges)` in the stage's calls reads those.
    """

    value: str  # name in the stage's calls
    column: str
    shape: tuple[int, ...]
    role: Literal["vertex", "source"] = "vertex"
    edges: EdgeSet | None = None  # for role "source"
    dtype: str = "float32"
    static: bool = False
    needs_gradient: bool = False
    sparse: bool = False  # given as the numbers that are not zero; linear maps alone read it

    @property
    def width(self) -> int:
        """Numbers per row."""
        return prod(self.shape)


@dataclass(frozen=True)
class StageOutput:
    """A value that leaves a stage as a column."""

    value: str
    column: str
    shape: tuple[int, ...]
    needs_gradient: bool = False

    @property
    def width(self) -> int:
        """Numbers per row."""
        return prod(self.shape)


@dataclass(frozen=True)
class Stage:
    """A piece of the model as data: what a worker runs on a chunk. See `lotan.stages` for its execution."""

    name: str
    inputs: tuple[StageInput, ...]
    parameters: tuple[ParameterSpec, ...]  # those its calls read
    calls: tuple[Call, ...]
    outputs: tuple[StageOutput, ...]
    loss: LossSpec | None = None  # of the last stage: its one output is compared with "label" where "split" says so
    edge_sets: tuple[EdgeSet, ...] = ()  # the chunk's in-edges it needs, one CSR for each
    overflow: Overflow = "recompute"
    counts: Counts = "train"  # of the last stage: the splits whose loss and metrics its turn counts
    worth: float = 0.0  # seconds that a byte kept for backward spares: where memory is full, what is worth least goes
    parts: tuple[
        Part, ...
    ] = ()  # of a model batch: what each model runs, on its own numbers of a row; then without calls
    models: int = 1  # in the batch: rows of the statistics that it commits

    @property
    def each(self) -> tuple[Stage, ...]:
        """Those that it runs side by side, or itself."""
        return tuple(part.stage for part in self.parts) or (self,)

    @cached_property
    def on_vertices(self) -> tuple[Call, ...]:
        """Its calls on rows of vertices."""
        return tuple(call for call in self.calls if call.type.rows == "vertex")

    def computed_from(self, names: Iterable[str]) -> set[str]:
        """Those values and parameters, and all that its calls compute from any of them."""
        found = set(names)
        for call in self.calls:
            if not found.isdisjoint(call.reads):
                found.add(call.output)
        return found

    def draws_on(self, edges: EdgeSet) -> bool:
        """Whether it draws random numbers on these edges."""
        return any(
            call.op == "lotan.dropout" and call.type.edges == edges for stage in self.each for call in stage.calls
        )


@dataclass(frozen=True)
class Part:
    """One model's stage, in a stage of a batch: they agree in how many inputs and outputs there are, and in what order.

    A row of the batch's column is the rows of its models' columns one after the other; a column that no model makes, or that
    all would make alike, is there once, and every part reads the whole of it. Names of parameters are the model's own.
    """

    model: int  # its number in the batch
    stage: Stage


def of_model(model: int, parameter: str) -> str:
    """The name of a model's parameter in its batch.

    >>> of_model(3, "convs.0.bias")
    '3/convs.0.bias'
    """
    return f"{model}/{parameter}"


def model_and_parameter(name: str) -> tuple[int, str]:
    """Return the model that a batch's parameter belongs to, and its name there: the inverse of `of_model`.

    >>> model_and_parameter("3/convs.0.bias")
    (3, 'convs.0.bias')
    """
    model, _, parameter = name.partition("/")
    return int(model), parameter


def collection_name(edges: EdgeSet, stage: str) -> str:
    """The neighbourhoods along an edge set that are collected for a stage."""
    return f"neighbours@{edges}.{stage}"


def gradient_name(value: str, stage: str) -> str:
    """The gradient of a stage's input, as far as that stage contributes to it."""
    return f"d_{value}.{stage}"


@dataclass(frozen=True)
class Plan:
    """All that an engine needs to train, evaluate and predict."""

    stages: tuple[Stage, ...]  # of training and of evaluation; names are unique
    train: tuple[Step, ...]
    evaluate: tuple[Step, ...]
    predict: tuple[Step, ...]
    static_columns: tuple[Column, ...]  # the graph's columns that some step or stage reads
    trainable: tuple[str, ...]  # parameters that receive a gradient, in the model's order
    prepare: tuple[Step, ...] = ()  # run once, before all others: no step of it depends on parameters or the epoch
    hoisted: tuple[Column, ...] = ()  # what it makes; static columns to the others
    train_and_evaluate: tuple[
        Step, ...
    ] = ()  # train, and evaluate the weights before the step; () where that is no gain
    fired: tuple[str, ...] = ()  # names of the rules that fired, in order
    source_gradients: SourceGradients = "summed"  # what a stage returns for a collected row
    levels: int | None = None  # up to which vertices lie in the order of their levels; None: in that of their ids
    targets: Targets = "train"  # from which levels are counted
    models: int = 1  # trained together

    @property
    def passes(self) -> tuple[tuple[Step, ...], ...]:
        """The walks over steps there are: `prepare` first."""
        return self.prepare, self.train, self.train_and_evaluate, self.evaluate, self.predict

    @property
    def reuses_evaluation(self) -> bool:
        """Whether a training pass can count what evaluation would, of the weights before its step."""
        return bool(self.train_and_evaluate) or any(stage.counts == "all" for stage in self.stages)

    def training(self, evaluates: bool) -> tuple[Step, ...]:
        """The training pass; where it can, one that counts what evaluation would as well."""
        return self.train_and_evaluate if evaluates and self.train_and_evaluate else self.train

    def epoch(self, evaluates: bool) -> tuple[tuple[Step, ...], ...]:
        """The passes of an epoch: of one before the last, where it evaluates as well."""
        apart = evaluates and not self.reuses_evaluation
        return (self.training(evaluates), self.evaluate) if apart else (self.training(evaluates),)

    @property
    def lasting(self) -> frozenset[str]:
        """The static columns that are read after `prepare`."""
        read = {name for steps in self.passes[1:] for step in steps for name in step.reads}
        return frozenset(read & {column.name for column in (*self.static_columns, *self.hoisted)})

    def stage(self, name: str) -> Stage:
        """The stage of that name; KeyError if there is none."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Stage]:
        return {stage.name: stage for stage in self.stages}

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Every column by its name, static ones included; evaluation makes none that prediction does not."""
        walks = self.prepare, self.train, self.train_and_evaluate, self.predict
        made = [column for steps in walks for step in steps for column in step.columns_made]
        return {column.name: column for column in (*self.static_columns, *made)}
