"""Lowers a rewritten forward graph to stages and forward steps.

Operators on edges read source rows through `Collect`. Each vertex operator of the DL Engine is assigned to a stage. A
stage also computes the values that it needs and that no column holds: edge rows, and values computed from parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from planner.edge_columns import EDGE_COLUMN
from planner.graph_steps import graph_step
from planner.loss import TARGETS, LossSpec
from planner.neighbours import OnNeighbours
from planner.nodes import (
    Aggregate,
    Apply,
    Collect,
    Dropout,
    EdgeColumn,
    EdgeSoftmax,
    EdgeWeight,
    GraphOperator,
    Node,
    NodeArgument,
    Parameter,
    Random,
    Scatter,
    StaticColumn,
    topological,
)
from planner.physical import Column, Stage, StageInput, StageOutput, collection_name
from planner.schedule import in_turn
from planner.spec import CHUNK_MAX, CHUNK_SUM, Argument, Call, EdgeSet, ParameterSpec, Ref, operator_name
from planner.steps.collect import CollectStep
from planner.steps.pipe import PipeStep
from planner.steps.score import GIVEN, ScoreStep
from planner.steps.step import Step
from planner.steps.total import ChunkSum, Total

OUTPUT = "output"
"""The name of the column that holds the model's output rows."""


@dataclass(frozen=True)
class Forward:
    """A forward pass. Its last step is the turn: it runs the last stage, or for a link task scores that stage's rows."""

    stages: tuple[Stage, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Cut:
    """A forward graph whose operators of the DL Engine are assigned to stages."""

    roots: tuple[Node, ...]  # the operators whose values are wanted
    names: Mapping[Node, str]  # a name for every node, children first
    assignment: Mapping[Node, int]  # the stage of each operator that yields rows of vertices; lower numbers run first
    repeated: Set[Node]  # the result of `repeated_values`
    read_by_graph_operators: Set[Node]

    @cached_property
    def refs(self) -> Mapping[Node, Ref]:
        """Every node as an argument of a call."""
        return {node: Ref(name) for node, name in self.names.items()}

    @cached_property
    def drafts(self) -> Mapping[int, _Draft]:
        """The stages of a model's graph without their names. Training and evaluation share them if they are one graph."""
        making, (root,) = _Making(self), self.roots
        last = self.last_stage
        return {
            index: _draft(index, root if index == last else None, making)
            for index in sorted({*self.assignment.values(), last})
        }

    @property
    def last_stage(self) -> int:
        """The stage that yields the output of a model's graph."""
        return self.assignment.get(self.roots[0], max(self.assignment.values(), default=-1) + 1)


def cut(root: Node) -> Cut:
    """Assign a stage to each operator of a model's graph, after `planner.collects.insert_collects`."""
    order = topological(root)
    return _cut(order, (root,), _names(order))


def cut_columns(columns: Mapping[Node, str], prefix: str) -> Cut:
    """Assign a stage to each operator of the columns that are computed once.

    Args:
        columns: The roots of the graph, after `planner.collects.insert_collects`, each with the name of its column.
        prefix: The first part of the names of other columns.
    """
    order = topological(*columns)
    own = {node: name if isinstance(node, StaticColumn) else f"{prefix}.{name}" for node, name in _names(order).items()}
    return _cut(order, tuple(columns), own | dict(columns))


def _cut(order: Sequence[Node], roots: tuple[Node, ...], names: Mapping[Node, str]) -> Cut:
    repeated, read = repeated_values(order), _read_by_graph_operators(order)
    piped = _piped(order, repeated, read.union(roots))
    return Cut(roots, names, {node: index for index, node in enumerate(piped)}, repeated, read)


def lower(cut: Cut, loss: LossSpec, prefix: str) -> Forward:
    """Make the stages of a model's forward graph and order its steps.

    Args:
        cut: The graph, with its operators assigned to stages.
        loss: The loss of the last stage.
        prefix: The first part of the names of stages: "train" or "evaluate".
    """
    (root,), last, drafts = cut.roots, cut.last_stage, cut.drafts
    exported = {node for draft in drafts.values() for node in draft.inputs} | cut.read_by_graph_operators
    stages = {index: _stage(index, draft, cut, exported, f"{prefix}.{number}", loss if index == last else None, root)
              for number, (index, draft) in enumerate(drafts.items())}  # fmt: skip
    steps = _schedule(cut, stages, last, loss.outputs if loss.of_pairs else None)
    return Forward(tuple(stages[index] for index in sorted(stages)), steps)


def lower_columns(cut: Cut, prefix: str) -> Forward:
    """Make the stages of columns that are computed once and order its steps.

    Args:
        cut: The result of `cut_columns`.
        prefix: The first part of the names of stages.
    """
    making = _Making(cut)
    drafts = {index: _draft(index, None, making) for index in sorted(set(cut.assignment.values()))}
    inputs = {node for draft in drafts.values() for node in draft.inputs}
    exported = inputs | cut.read_by_graph_operators | set(cut.roots)
    stages = {index: _stage(index, draft, cut, exported, f"{prefix}.{number}")
              for number, (index, draft) in enumerate(drafts.items())}  # fmt: skip
    return Forward(tuple(stages.values()), _schedule(cut, stages))


def _piped(order: Sequence[Node], repeated: set[Node], read_as_column: set[Node]) -> list[Node]:
    """Return the operators of the DL Engine that yield vertex rows of their own.

    A repeated value is computed again in each stage that reads it. It gets a stage only if a graph operator or the loss
    reads it.
    """
    return [
        node
        for node in order
        if node.output.rows == "vertex"
        and not isinstance(node, (StaticColumn, GraphOperator))
        and (node not in repeated or node in read_as_column)
    ]


def _read_by_graph_operators(order: Sequence[Node]) -> set[Node]:
    return {child for node in order if isinstance(node, GraphOperator) for child in node.children}


def repeated_values(order: Sequence[Node]) -> set[Node]:
    """Return vertex values without a gradient that are cheaper to compute again than to hand on as a column.

    These are values computed from static columns and constants alone, because every worker has their inputs. Values
    that are not floats, such as the positions of maxima, are among them too, because columns hold float32.
    """
    repeated: set[Node] = set()
    for node in order:
        if isinstance(node, StaticColumn) or (isinstance(node, Apply) and _is_repeated(node, repeated)):
            repeated.add(node)
    return repeated


def _is_repeated(node: Apply, repeated: set[Node]) -> bool:
    whole = node.output.rows == "vertex" and not node.output.dtype.startswith("float")
    return whole or (bool(node.children) and repeated.issuperset(node.children))


@dataclass
class _Draft:
    """A stage while it is built."""

    members: list[Node] = field(default_factory=list)  # the nodes that its calls compute, children first
    inputs: list[Node] = field(default_factory=list)  # the vertex rows that it reads
    collected: list[Collect] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    edge_sets: list[EdgeSet] = field(default_factory=list)
    calls: tuple[Call, ...] = ()  # the calls that compute the members


class _Making:
    """The stages of a cut graph while they are made."""

    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        self.places = {node: place for place, node in enumerate(cut.names)}
        self.members: dict[int, list[Node]] = {}
        for node, stage in cut.assignment.items():
            self.members.setdefault(stage, []).append(node)


def _names(order: Sequence[Node]) -> dict[Node, str]:
    """Return a readable name for every node: the name of its operator, with a number."""
    names: dict[Node, str] = {}
    counts: dict[str, int] = {}
    for node in order:
        if isinstance(node, (StaticColumn, Parameter)):
            names[node] = node.name
            continue
        base = operator_name(node.op) if isinstance(node, Apply | OnNeighbours) else type(node).__name__.lower()
        counts[base] = counts.get(base, 0) + 1
        names[node] = f"{base}_{counts[base]}"
    return names


def _draft(index: int, root: Node | None, making: _Making) -> _Draft:
    """Return the stage with an index. `root` is given for the last stage, which ends in the model's output."""
    draft = _Draft()
    inside = _inside(making.members.get(index, []), index, making.cut)
    for node in sorted(inside, key=making.places.__getitem__):
        if inside[node]:
            draft.inputs.append(node)
        else:
            _place(node, draft)
    if root is not None and root not in inside:
        draft.inputs.append(root)
    draft.calls = tuple(_call(node, making.cut) for node in draft.members)
    return draft


def _inside(targets: list[Node], index: int, cut: Cut) -> dict[Node, bool]:
    """Return the nodes that a stage computes or reads, each with True if the stage reads it as a column.

    The walk stops at columns and at collections.
    """
    found: dict[Node, bool] = {}
    stack = list(targets)
    while stack:
        node = stack.pop()
        if node in found:
            continue
        found[node] = is_column = _is_column(node, index, cut)
        if not is_column and not isinstance(node, Collect):
            stack.extend(node.children)
    return found


def _is_column(node: Node, index: int, cut: Cut) -> bool:
    """Return True if the stage reads this vertex value as a column that another step makes."""
    if node.output.rows != "vertex" or isinstance(node, Collect):
        return False
    if node in cut.repeated and not isinstance(node, StaticColumn):
        return False
    return cut.assignment.get(node) != index


def _place(node: Node, draft: _Draft) -> None:
    """Add a node to the collections, parameters or members of a stage."""
    if isinstance(node, Parameter):
        draft.parameters.append(node)
        return
    if isinstance(node, Collect):
        draft.collected.append(node)
    else:
        draft.members.append(node)
    if isinstance(node, (Collect, Scatter, Aggregate, EdgeSoftmax, EdgeWeight, EdgeColumn, OnNeighbours)):
        draft.edge_sets += [node.edges] * (node.edges not in draft.edge_sets)


def _stage(
    index: int,
    draft: _Draft,
    cut: Cut,
    exported: set[Node],
    name: str,
    loss: LossSpec | None = None,
    root: Node | None = None,
) -> Stage:
    vertex = [_input(node, cut) for node in draft.inputs]
    source = [_source_input(node, cut) for node in draft.collected]
    parameters = tuple(ParameterSpec(node.name, node.shape, node.trainable, node.dtype) for node in draft.parameters)
    leaving = [node for node in draft.members if node in exported and cut.assignment.get(node) == index]
    outputs = [_output(node, cut.names[node]) for node in leaving]
    if loss is not None and root is not None:
        outputs = [StageOutput(cut.names[root], OUTPUT, root.output.shape)]
        loss = None if loss.of_pairs else loss
    return Stage(name, (*vertex, *source), parameters, draft.calls, tuple(outputs), loss, tuple(draft.edge_sets))


def _output(node: Node, name: str) -> StageOutput:
    return StageOutput(name, name, node.output.shape, few=isinstance(node, ChunkSum))


def _input(node: Node, cut: Cut) -> StageInput:
    name = cut.names[node]
    static = isinstance(node, StaticColumn)
    role: Literal["vertex", "total"] = "total" if isinstance(node, Total) else "vertex"
    return StageInput(name, name, node.output.shape, role, dtype=node.output.dtype, static=static)


def _source_input(node: Collect, cut: Cut) -> StageInput:
    column = cut.names[node.x]
    static = isinstance(node.x, StaticColumn)
    return StageInput(cut.names[node], column, node.output.shape, "source", node.edges, node.output.dtype, static)


def _call(node: Node, cut: Cut) -> Call:
    name, output = cut.names[node], node.output
    match node:
        case Apply():
            arguments = tuple(_argument(argument, cut) for argument in node.arguments)
            keywords = tuple((key, _argument(argument, cut)) for key, argument in node.keywords)
            return Call(name, node.op, arguments, output, keywords, node.layer)
        case OnNeighbours():
            arguments = tuple(_argument(argument, cut) for argument in node.arguments)
            return Call(name, node.op, arguments, output, layer=node.layer)
        case Dropout():
            return Call(name, "lotan.dropout", (cut.refs[node.x], node.p, node.key), output, layer=node.layer)
        case Random():
            arguments = (cut.refs[node.x], node.kind, node.p, node.key)
            return Call(name, "lotan.random", arguments, output, layer=node.layer)
        case ChunkSum():
            rows = tuple(cut.refs[child] for child in node.children)
            arguments = rows if node.group is None else (*rows, node.groups)
            return Call(name, CHUNK_MAX if node.greatest else CHUNK_SUM, arguments, output, layer=node.layer)
        case Scatter():
            return Call(name, "lotan.scatter", (cut.refs[node.x], node.end, node.edges), output, layer=node.layer)
        case Aggregate():
            return Call(
                name, "lotan.aggregate", (cut.refs[node.message], node.kind, node.edges), output, layer=node.layer
            )
        case EdgeSoftmax():
            return Call(name, "lotan.edge_softmax", (cut.refs[node.scores], node.edges), output, layer=node.layer)
        case EdgeWeight():
            return Call(name, "lotan.edge_weight", (node.edges,), output)
        case EdgeColumn():
            return Call(name, EDGE_COLUMN, (node.name, node.edges), output)
    raise TypeError(f"{type(node).__name__} is no operator of a stage")  # every kind of member is listed above


def _argument(argument: NodeArgument, cut: Cut) -> Argument:
    if isinstance(argument, tuple):
        return tuple(_argument(item, cut) for item in argument)
    return cut.refs[argument] if isinstance(argument, Node) else argument


def _schedule(
    cut: Cut, stages: Mapping[int, Stage], last: int | None = None, scored: int | None = None
) -> tuple[Step, ...]:
    """Return a step for every graph operator and stage, each as soon as its inputs are made.

    Stage `last` is the turn. If `scored` is given, the turn is a step that scores pairs of its rows of that width.
    """
    waiting: list[Step] = [
        graph_step(node, cut.names)
        for node in cut.names
        if isinstance(node, GraphOperator) and not isinstance(node, Collect)
    ]
    for index in sorted(stages):
        collects = _collects(stages[index])
        waiting += collects
        waiting.append(_pipe(stages[index], collects, "turn" if index == last and scored is None else "forward"))
    if scored is not None:
        waiting.append(ScoreStep(OUTPUT, Column(GIVEN, (scored,))))
    there = {node.name for node in cut.names if isinstance(node, StaticColumn)} | set(TARGETS)
    return in_turn(waiting, there)


def _collects(stage: Stage) -> list[CollectStep]:
    return [
        CollectStep(
            tuple(value.column for value in stage.inputs if value.role == "source" and value.edges == edges),
            edges,
            collection_name(edges, stage.name),
        )
        for edges in stage.edge_sets
    ]


def _pipe(stage: Stage, collects: list[CollectStep], mode: Literal["forward", "turn"]) -> PipeStep:
    inputs = tuple(value.column for value in stage.inputs if value.role != "source")
    collections = tuple(collect.output for collect in collects)
    if stage.loss is not None:
        return PipeStep(stage.name, mode, (*inputs, *stage.loss.targets), collections, (), ())
    outputs = tuple(Column(output.column, output.shape, few=output.few) for output in stage.outputs)
    return PipeStep(stage.name, mode, inputs, collections, (), outputs)


def static_columns(root: Node) -> tuple[Column, ...]:
    """Return the graph's columns that a forward graph reads."""
    found = (node for node in topological(root) if isinstance(node, StaticColumn))
    return tuple(Column(node.name, node.output.shape, node.output.dtype, static=True) for node in found)
