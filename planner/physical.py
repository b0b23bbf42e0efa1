"""The physical plan: columns, stages as data, and the steps of an epoch. Engines run it, and explain prints it.

- A *column* is one vector per vertex, known by name. An *edge column* is one vector per edge of an edge set.
- A *step* makes columns out of columns. `planner.steps` has a file for each kind. Steps stand in execution order, and
  every column is made once.
- A *stage* is a piece of the model between two graph operators. The DL Engine runs it chunk by chunk. Its backward is
  the vector-Jacobian product of its forward.

The field `within` names a level k. It limits a column or step to the vertices at most k hops, along edges, from a
target, and to the edges that end at those vertices. A target is a training vertex, or a vertex in any split.

A gradient has the level of its column. If its step is within a lower level, the last rows of the gradient are zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Literal

from planner import kernels
from planner.edge_columns import columns_read
from planner.loss import LossSpec
from planner.spec import CHUNK_MAX, DRAWS, OF_CHUNKS, Call, EdgeSet, ParameterSpec, Targets

if TYPE_CHECKING:
    from planner.steps.step import Step  # a step has columns, so it imports this module

Mode = Literal["forward", "turn", "backward", "evaluate", "predict"]
"""The way in which a stage runs.

- forward: input rows to output rows.
- turn: the last stage forward, the loss, and at once the gradients of its inputs.
- backward: the gradients of a stage's outputs to the gradients of its inputs.
- evaluate: the last stage to metrics only.
- predict: the last stage to its output rows.
"""

SourceGradients = Literal["summed", "per_edge"]
"""The gradients that a stage returns for a row that it read at the sources of edges: their sum, or one for each edge."""

Overflow = Literal["file", "recompute"]
"""The fate of saved values of forward runs that exceed a worker's memory for them: a file, or computing them again."""

Counts = Literal["train", "all"]
"""The splits whose vertices a turn counts: the training split, or all. With "all" it also evaluates the weights it is
given."""


@dataclass(frozen=True)
class Column:
    """One vector per vertex, or with `edges` per edge of that set. A vector of shape `shape` is stored and sent flat."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    static: bool = False  # True for a column of the graph, which is the same in every epoch
    edges: EdgeSet | None = None
    within: int | None = None  # level up to which it has rows, or up to which its edges end; None: all
    few: bool = False  # True for few rows: a total, which is one row, or a row for each chunk, which add up

    @property
    def width(self) -> int:
        """The number of numbers in a row."""
        return prod(self.shape)


@dataclass(frozen=True)
class StageInput:
    """A value that a stage reads.

    With role "vertex", it is the column's row of each vertex of the chunk. With role "source", it is the column's rows
    of the distinct source vertices of the chunk's in-edges, brought by a Collect. The stage's `lotan.scatter(_,
    "source", edges)` reads those. With role "total", it is the one row that a Total has for all vertices.
    """

    value: str  # name in the stage's calls
    column: str
    shape: tuple[int, ...]
    role: Literal["vertex", "source", "total"] = "vertex"
    edges: EdgeSet | None = None  # the edge set, for role "source"
    dtype: str = "float32"
    static: bool = False
    needs_gradient: bool = False
    sparse: bool = False  # given as its non-zero numbers, which only linear maps can read

    @property
    def width(self) -> int:
        """The number of numbers in a row."""
        return prod(self.shape)


@dataclass(frozen=True)
class StageOutput:
    """A value that leaves a stage as a column."""

    value: str
    column: str
    shape: tuple[int, ...]
    needs_gradient: bool = False
    few: bool = False  # True for a reduction of the rows of a chunk, which is one row for each chunk

    @property
    def width(self) -> int:
        """The number of numbers in a row."""
        return prod(self.shape)


@dataclass(frozen=True)
class Stage:
    """A piece of the model as data, which a worker runs on a chunk. `lotan.stages` executes it."""

    name: str
    inputs: tuple[StageInput, ...]
    parameters: tuple[ParameterSpec, ...]  # the parameters that its calls read
    calls: tuple[Call, ...]
    outputs: tuple[StageOutput, ...]
    loss: LossSpec | None = (
        None  # only in the last stage: compares its output with "label", on rows that "split" names, see `LossSpec.targets`
    )
    edge_sets: tuple[EdgeSet, ...] = ()  # edge sets whose in-edges a chunk needs, one CSR matrix each
    overflow: Overflow = "recompute"
    counts: Counts = "train"  # for the last stage: the splits whose loss and metrics a turn counts
    worth: float = 0.0  # seconds that a saved byte spares; where memory is full, the values worth least go
    parts: tuple[
        Part, ...
    ] = ()  # for a model batch: the stage of each model, on its own part of a row; `calls` is then empty
    models: int = 1  # models in the batch, each with a row in the statistics that a run commits

    @property
    def each(self) -> tuple[Stage, ...]:
        """The stages that it runs side by side for the models of a batch, or itself."""
        return tuple(part.stage for part in self.parts) or (self,)

    @cached_property
    def readers(self) -> Mapping[str, tuple[Call, ...]]:
        """The calls that read each value or parameter, by its name. Names that no call reads are left out."""
        found: dict[str, list[Call]] = {}
        for call in self.calls:
            for name in dict.fromkeys(call.reads):
                found.setdefault(name, []).append(call)
        return {name: tuple(calls) for name, calls in found.items()}

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of all values and parameters, by name."""
        made = {call.output: call.type.shape for call in self.calls}
        return {i.value: i.shape for i in self.inputs} | {p.name: p.shape for p in self.parameters} | made

    @cached_property
    def row_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the values that have rows of vertices, by name."""
        return {i.value: i.shape for i in self.inputs} | {call.output: call.type.shape for call in self.on_vertices}

    @cached_property
    def parameter_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of parameters and of values computed from parameters alone, by name."""
        own = {parameter.name: parameter.shape for parameter in self.parameters}
        return own | {call.output: call.type.shape for call in self.calls if call.type.rows == "none"}

    @cached_property
    def sparse(self) -> Set[str]:
        """The names of the inputs that are given as their non-zero numbers."""
        return {i.value for i in self.inputs if i.sparse}

    @cached_property
    def on_vertices(self) -> tuple[Call, ...]:
        """The calls whose output has a row for each vertex."""
        return tuple(call for call in self.calls if call.type.rows == "vertex")

    @cached_property
    def alike(self) -> Set[str]:
        """The names of the values that are one row for all vertices: totals, and what is computed from them alone."""
        found = {i.value for i in self.inputs if i.role == "total"}
        for call in self.calls if found else ():
            read = [name for name in call.reads if name not in self.parameter_shapes]
            if call.type.rows == "vertex" and call.op not in (*DRAWS, *OF_CHUNKS) and read and found.issuperset(read):
                found.add(call.output)
        return found

    @cached_property
    def greatest(self) -> Set[str]:
        """The names of the outputs that have the greatest numbers of a chunk's rows."""
        first = self.each[0]
        found = {call.output for call in first.calls if call.op == CHUNK_MAX}
        return {output.value for output, own in zip(self.outputs, first.outputs, strict=True) if own.value in found}

    @cached_property
    def normalisations(self) -> Mapping[str, kernels.Normalisation]:
        """The result of `planner.kernels.normalisations`, which pricing asks for often."""
        return kernels.normalisations(self)

    @cached_property
    def head_dots(self) -> Mapping[str, kernels.HeadDots]:
        """The result of `planner.kernels.head_dots`, which pricing asks for often."""
        return kernels.head_dots(self)

    @cached_property
    def run_by_autograd(self) -> bool:
        """The result of `planner.kernels.run_by_autograd`, which pricing asks for often."""
        return kernels.run_by_autograd(self)

    def computed_from(self, names: Iterable[str]) -> set[str]:
        """Return the names of the given values and parameters, and of all values that are computed from any of them."""
        found = set(names)
        for call in self.calls:
            if not found.isdisjoint(call.reads):
                found.add(call.output)
        return found

    def edge_columns(self, edges: EdgeSet) -> tuple[str, ...]:
        """Return the names of the columns of an edge set that the stage reads, each once."""
        return columns_read((call for stage in self.each for call in stage.calls), edges)

    def draws_on(self, edges: EdgeSet) -> bool:
        """Return True if the stage draws random numbers on the edges of this set."""
        return any(call.op in DRAWS and call.type.edges == edges for stage in self.each for call in stage.calls)


@dataclass(frozen=True)
class Part:
    """The stage of one model, inside a stage of a model batch.

    All parts have the same number of inputs and outputs, in the same order. A row of the batch's column has the rows of
    its models' columns one after the other. Some columns are there only once, and every part reads the whole row: those
    that no model makes, and those that all models would make alike. Names of parameters are the model's own.
    """

    model: int  # the model's number in the batch
    stage: Stage


def of_model(model: int, parameter: str) -> str:
    """Return the name of a model's parameter in its batch.

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
    """Return the name of the neighbourhoods along an edge set that are collected for a stage."""
    return f"neighbours@{edges}.{stage}"


def gradient_name(value: str, stage: str) -> str:
    """Return the name of a stage's contribution to the gradient of one of its inputs."""
    return f"d_{value}.{stage}"


@dataclass(frozen=True)
class Plan:
    """Everything that an engine needs to train, evaluate and predict."""

    stages: tuple[Stage, ...]  # the stages of all passes; their names are unique
    train: tuple[Step, ...]
    evaluate: tuple[Step, ...]
    predict: tuple[Step, ...]
    static_columns: tuple[Column, ...]  # the graph's columns that some step or stage reads
    trainable: tuple[str, ...]  # names of the parameters that receive a gradient, in the model's order
    prepare: tuple[Step, ...] = ()  # runs once, before all other passes; depends on no parameter and no epoch
    hoisted: tuple[Column, ...] = ()  # columns that `prepare` makes; static for the other passes
    train_and_evaluate: tuple[
        Step, ...
    ] = ()  # trains, and evaluates the weights from before the step; () if that saves nothing
    fired: tuple[str, ...] = ()  # names of the rules that fired, in order
    source_gradients: SourceGradients = "summed"  # form of the gradients of a collected row
    levels: int | None = None  # level up to which vertices are ordered by level; None: all are ordered by id
    targets: Targets = "train"  # the vertices from which levels are counted
    models: int = 1  # number of models trained together

    @property
    def passes(self) -> tuple[tuple[Step, ...], ...]:
        """The passes of the plan, `prepare` first."""
        return self.prepare, self.train, self.train_and_evaluate, self.evaluate, self.predict

    @property
    def reuses_evaluation(self) -> bool:
        """True if a training pass can also evaluate the weights from before its step."""
        return bool(self.train_and_evaluate) or any(stage.counts == "all" for stage in self.stages)

    def training(self, evaluates: bool) -> tuple[Step, ...]:
        """Return the training pass. If it is to evaluate as well, return the pass that does both, if there is one."""
        return self.train_and_evaluate if evaluates and self.train_and_evaluate else self.train

    def epoch(self, evaluates: bool) -> tuple[tuple[Step, ...], ...]:
        """Return the passes of an epoch that is not the last, with or without an evaluation."""
        apart = evaluates and not self.reuses_evaluation
        return (self.training(evaluates), self.evaluate) if apart else (self.training(evaluates),)

    @property
    def lasting(self) -> frozenset[str]:
        """The names of the static columns, hoisted ones among them, that a pass after `prepare` reads."""
        read = {name for steps in self.passes[1:] for step in steps for name in step.reads}
        return frozenset(read & {column.name for column in (*self.static_columns, *self.hoisted)})

    @property
    def only_preparing(self) -> Plan:
        """The same plan with the pass `prepare` alone, for vertices in the graph's own order."""
        return replace(self, levels=None, train=(), train_and_evaluate=(), evaluate=(), predict=())

    def stage(self, name: str) -> Stage:
        """Return the stage with a name. Raises KeyError if there is none."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Stage]:
        return {stage.name: stage for stage in self.stages}

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Every column by its name, static columns included. Evaluation makes no column that prediction does not make."""
        walks = self.prepare, self.train, self.train_and_evaluate, self.predict
        made = [column for steps in walks for step in steps for column in step.columns_made]
        return {column.name: column for column in (*self.static_columns, *made)}
