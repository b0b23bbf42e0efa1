"""The physical plan: stages as data and the steps of an epoch over named columns. Engines run it, explain prints it.

A *column* is one vector per vertex, known by name; an *edge column* one per edge of an edge set. A *step* makes columns out
of columns. Steps stand in execution order; every column is made once. A *stage* is a piece of the model between two graph
operators, run by the DL Engine chunk by chunk; its backward is the vector-Jacobian product of its forward.

What is *within* a level is about the vertices so many hops or fewer, along edges, from a target (a training vertex, or one in
any split), and the edges that end there. A gradient has the level of the column that it is of; where its step is within a
lower one, its last rows are zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import ClassVar, Literal

from planner.expressions import Expression, columns, leaves
from planner.spec import Call, EdgeSet, LossSpec, ParameterSpec, Targets

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
    """The model that a parameter of a batch belongs to, and its name there: the inverse of `of_model`.

    >>> model_and_parameter("3/convs.0.bias")
    (3, 'convs.0.bias')
    """
    model, _, parameter = name.partition("/")
    return int(model), parameter


@dataclass(frozen=True)
class Gradients:
    """The gradient of one stage output: the columns whose sum it is, added in this order."""

    value: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class PipeStep:
    """Run a stage over all vertices: Graph Engine -> DL Engine -> Graph Engine, joined by vertex.

    outputs: forward and predict: the stage's outputs. turn and backward: for each input with needs_gradient, its gradient;
    of a "vertex" input a column, of a "source" input *contributions* for a GatherStep (`contributions` names those).
    turn and backward also commit the gradients of the stage's parameters; turn and evaluate commit loss and metrics.
    """

    stage: str
    mode: Mode
    inputs: tuple[str, ...]  # columns for the inputs with role "vertex" (plus "label", "split" for turn and evaluate)
    collections: tuple[str, ...]  # made by CollectSteps, for the inputs with role "source"
    gradients: tuple[Gradients, ...]  # backward only
    outputs: tuple[Column, ...]
    contributions: tuple[str, ...] = ()  # those of `outputs` that are contributions, not columns
    within: int | None = None  # the level up to which it runs

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """See `reads`."""
        gradients = [name for gradient in self.gradients for name in gradient.columns]
        return tuple(dict.fromkeys([*self.inputs, *self.collections, *gradients]))

    @cached_property
    def makes(self) -> tuple[str, ...]:
        """See `makes`."""
        return tuple(column.name for column in self.outputs)

    @property
    def emits(self) -> bool:
        """Whether it yields the stage's outputs, not gradients of its inputs."""
        return self.mode in ("forward", "predict")


@dataclass(frozen=True)
class PropagateStep:
    """output[v] = sum over in-edges (u, v) of [weight *] input[u]; with reverse, over out-edges (v, u) instead.

    combine: whether messages for one destination are summed on their own side before they cross a partition boundary
    (always in forward; in backward this is Reverse Graph Backpropagation, and False is the naive way).
    """

    input: str
    output: Column
    edges: EdgeSet
    weighted: bool = False
    reverse: bool = False
    combine: bool = True
    within: int | None = None  # the level up to which edges end that it sums over

    @property
    def reads(self) -> tuple[str, ...]:
        """See `reads`."""
        return (self.input,)

    @property
    def makes(self) -> tuple[str, ...]:
        """See `makes`."""
        return (self.output.name,)


@dataclass(frozen=True)
class CollectStep:
    """Bring, for every vertex, its in-edges and the rows of `columns` at their sources to where the vertex is."""

    columns: tuple[str, ...]
    edges: EdgeSet
    output: str  # name of the collection
    within: int | None = None  # the level up to which vertices have theirs collected

    @property
    def reads(self) -> tuple[str, ...]:
        """See `reads`."""
        return self.columns

    @property
    def makes(self) -> tuple[str, ...]:
        """See `makes`."""
        return (self.output,)


@dataclass(frozen=True)
class GatherStep:
    """The adjoint of Collect: sum per vertex what the stage returned for it as a source. combine=False: per edge (naive)."""

    contributions: str
    output: Column
    combine: bool = True
    within: int | None = None  # the level up to which edges end that contributed

    @property
    def reads(self) -> tuple[str, ...]:
        """See `reads`."""
        return (self.contributions,)

    @property
    def makes(self) -> tuple[str, ...]:
        """See `makes`."""
        return (self.output.name,)


@dataclass(frozen=True)
class EdgeStep:
    """A step that reads or makes edge columns, or picks among in-edges; for engines with the ability."""

    output: Column
    edges: EdgeSet
    within: int | None = field(default=None, kw_only=True)  # the level up to which edges end that it is about

    READS: ClassVar[tuple[str, ...]] = ("input",)  # the fields that name columns
    AT_SOURCES: ClassVar[tuple[str, ...]] = ()  # of these, the fields of columns that are read where edges begin

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return tuple(getattr(self, name) for name in self.READS)

    @property
    def at_sources(self) -> tuple[str, ...]:
        """Of the columns it reads, those that it reads where its edges begin."""
        return tuple(getattr(self, name) for name in self.AT_SOURCES)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """See `reads`."""
        return tuple(dict.fromkeys(self.columns))

    @property
    def makes(self) -> tuple[str, ...]:
        """See `makes`."""
        return (self.output.name,)


@dataclass(frozen=True)
class EdgeExpressionStep(EdgeStep):
    """output[e] = an expression over the rows at both ends of e, its weight and other edge columns: planner.expressions."""

    expression: Expression

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return columns(self.expression)

    @property
    def at_sources(self) -> tuple[str, ...]:
        """Of these, those that it reads where its edges begin."""
        return tuple(leaf[1] for leaf in leaves(self.expression) if leaf[0] == "source")


@dataclass(frozen=True)
class SegmentSoftmaxStep(EdgeStep):
    """output[e] = exp(input[e] - max) / (sum + SOFTMAX_EPSILON), max and sum being over the in-edges of e's destination."""

    input: str


@dataclass(frozen=True)
class SegmentSoftmaxGradientStep(EdgeStep):
    """output[e] = softmax[e] * (gradient[e] - sum of softmax * gradient over the in-edges of e's destination)."""

    softmax: str
    gradient: str

    READS = ("softmax", "gradient")


@dataclass(frozen=True)
class EdgeDropoutStep(EdgeStep):
    """Dropout of an edge column, as `lotan.dropout` of a stage; its own adjoint."""

    input: str
    p: float
    key: int
    model: int = 0  # in the batch, whose random numbers are drawn


@dataclass(frozen=True)
class EdgeSumStep(EdgeStep):
    """output[v] = sum of input[e] over the in-edges of v; with end="source", over its out-edges."""

    input: str
    end: Literal["source", "destination"] = "destination"


@dataclass(frozen=True)
class ScaledPropagateStep(EdgeStep):
    """output[v] = sum over in-edges e = (u, v) of scales[e] * input[u]; with reverse, over out-edges (v, u) instead.

    A row of `input` is `heads` runs of equally many numbers, each run scaled by its own one of the `heads` in scales[e].
    """

    input: str
    scales: str
    heads: int
    reverse: bool = False

    READS = ("input", "scales")

    @property
    def at_sources(self) -> tuple[str, ...]:
        """Of these, those that it reads where its edges begin."""
        return () if self.reverse else (self.input,)


@dataclass(frozen=True)
class EdgeDotStep(EdgeStep):
    """output[e, h] = dot product of run h of source[u] and of destination[v], for e = (u, v); a run for each of output."""

    source: str
    destination: str

    READS = ("source", "destination")
    AT_SOURCES = ("source",)


@dataclass(frozen=True)
class ExtremeStep(EdgeStep):
    """output[v] = greatest ("max") or least ("min") of input[u] over in-edges (u, v), number by number; 0 without any."""

    input: str
    kind: str

    AT_SOURCES = ("input",)


@dataclass(frozen=True)
class ExtremeGradientStep(EdgeStep):
    """output[u] = sum over out-edges (u, v) with input[u] = extreme[v] of gradient[v] / how many in-edges of v have that."""

    input: str
    kind: str
    extreme: str
    gradient: str

    READS = ("input", "extreme", "gradient")
    AT_SOURCES = ("input",)


Step = PipeStep | PropagateStep | CollectStep | GatherStep | EdgeStep


def collection_name(edges: EdgeSet, stage: str) -> str:
    """The neighbourhoods along an edge set that are collected for a stage."""
    return f"neighbours@{edges}.{stage}"


def gradient_name(value: str, stage: str) -> str:
    """The gradient of a stage's input, as far as that stage contributes to it."""
    return f"d_{value}.{stage}"


def reads(step: Step) -> tuple[str, ...]:
    """Names of the columns and collections a step reads, each once."""
    return step.reads


def columns_made(step: Step) -> tuple[Column, ...]:
    """The columns a step makes; a collection is none."""
    match step:
        case CollectStep():
            return ()
        case PipeStep():
            return step.outputs
    return (step.output,)


def makes(step: Step) -> tuple[str, ...]:
    """Names of the columns or the collection a step makes."""
    return step.makes


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
        read = {name for steps in self.passes[1:] for step in steps for name in reads(step)}
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
        made = [column for steps in walks for step in steps for column in columns_made(step)]
        return {column.name: column for column in (*self.static_columns, *made)}
