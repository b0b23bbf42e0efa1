"""The operators that a stage may call, and the closures that do the calls.

Names are resolved from an allow-list only. A stage from the wire can therefore compute, and can do nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, get_args

import torch
from torch import Tensor

from lotan.errors import StageError
from lotan.stages import edges as edge_rows
from lotan.stages import neighbours
from lotan.stages.chunk import Chunk, EdgeBlock
from lotan.stages.groups import greatest, greatest_of_groups, group_sums
from lotan.stages.randomness import Randomness, dropout, random_rows
from lotan.stages.recurrent import KINDS, recurrent
from lotan.stages.row_wise import ALLOWED, DTYPES, overload
from lotan.stages.running import Track
from planner.neighbours import ATTENTION, NEIGHBOUR_OPERATORS, ROWS, SEQUENCE, SEQUENCES
from planner.spec import (
    DISTRIBUTIONS,
    DROPOUT,
    RECURRENT,
    Argument,
    Call,
    Distribution,
    EdgeSet,
    Ref,
    RowCount,
    is_aggregate,
)

LOTAN = (
    "lotan.scatter",
    "lotan.aggregate",
    "lotan.edge_softmax",
    "lotan.edge_weight",
    "lotan.edge_column",
    "lotan.dropout",
    "lotan.random",
    "lotan.track",
    "lotan.chunk_sum",
    "lotan.chunk_max",
    "lotan.times_total",
    "lotan.group_rows",
    RECURRENT,
    *NEIGHBOUR_OPERATORS,
)
"""The graph operators that a stage may call. `lotan.vertex_input` reaches a stage as an input."""

TENSOR_OPERATORS = ALLOWED - {DROPOUT, *DISTRIBUTIONS}
"""The tensor operators that a stage may call. Random ones are excluded: they depend on earlier draws."""


@dataclass(slots=True)
class Frame:
    """One run of a stage: its values so far, by name, and the other data that calls look up."""

    values: dict[str, Any]
    chunk: Chunk
    randomness: Randomness
    rows: int  # rows that calls on vertices make: those of the chunk, or 1 for values that all vertices share
    ones: dict[str, Any] = field(default_factory=dict)  # values that all vertices share, as one row
    without_rows: frozenset[str] = frozenset()  # the names of parameters, and of what is computed from them alone

    def row(self, name: str) -> Tensor:
        """Return the one row of a value that all vertices share, [*shape]."""
        value = self.ones.get(name, self.values[name])
        return cast(Tensor, value[0] if len(value) else value.new_zeros(value.shape[1:]))

    def table(self, name: str) -> Tensor:
        """Return the one row of a value that all vertices share, or a value without rows as it is."""
        return cast(Tensor, self.values[name]) if name in self.without_rows else self.row(name)


Evaluate = Callable[[Frame], Any]


def resolve(op: str) -> Callable[..., Any]:
    """Return the torch operator of an allowed name such as "aten.linear.default".

    Raises:
        StageError: If the name is not on the allow-list, or if this torch has no such operator.
    """
    if op not in TENSOR_OPERATORS:
        raise StageError(f"operator {op!r} is not one that a stage may call")
    try:
        return overload(op)
    except AttributeError:
        raise StageError(f"operator {op!r} is unknown to torch {torch.__version__}") from None


def compile_call(call: Call, per_edge: Mapping[str, EdgeSet]) -> Evaluate:
    """Return the closure that computes a call's output.

    Args:
        call: the call.
        per_edge: source inputs that have one row for each edge already, with their edge sets.

    Raises:
        StageError: If the operator or an argument is not allowed.
    """
    match call.op, call.arguments:
        case "lotan.scatter", (Ref(name), "source", str(edges)):
            if per_edge.get(name) == edges:
                return lambda frame: frame.values[name]
            return lambda frame: edge_rows.gather_source(frame.values[name], block(frame, edges))
        case "lotan.scatter", (Ref(name), "destination", str(edges)):
            return lambda frame: edge_rows.gather_destination(frame.values[name], block(frame, edges))
        case "lotan.aggregate", (Ref(name), str(kind), str(edges)) if is_aggregate(kind):
            return lambda frame: edge_rows.aggregate(frame.values[name], kind, block(frame, edges))
        case "lotan.edge_softmax", (Ref(name), str(edges)):
            return lambda frame: edge_rows.edge_softmax(frame.values[name], block(frame, edges))
        case "lotan.edge_weight", (str(edges),):
            return lambda frame: edge_weight(block(frame, edges))
        case "lotan.track", (Ref(name), Ref(buffer)):
            return lambda frame: cast(Tensor, Track.apply(frame.values[name], frame.values[buffer], frame.chunk.rows))
        case "lotan.chunk_sum", (Ref(name),):
            return lambda frame: frame.values[name].sum(0, keepdim=True)
        case "lotan.chunk_sum", (Ref(name), Ref(other)):
            return lambda frame: (frame.values[name].t() @ frame.values[other]).unsqueeze(0)
        case "lotan.chunk_sum", (Ref(name), Ref(group), int(groups)):
            return lambda frame: group_sums(frame.values[name], frame.values[group], groups)
        case "lotan.chunk_max", (Ref(name),):
            return lambda frame: greatest(frame.values[name])
        case "lotan.chunk_max", (Ref(name), Ref(group), int(groups)):
            return lambda frame: greatest_of_groups(frame.values[name], frame.values[group], groups)
        case "lotan.group_rows", (Ref(name), Ref(group)):
            return lambda frame: frame.table(name).index_select(0, frame.values[group])
        case "lotan.times_total", (Ref(name), Ref(total)):
            return lambda frame: frame.values[name] @ frame.row(total)
        case "lotan.recurrent", (Ref(name), tuple(state), str(kind), tuple(weights)) if kind in KINDS:
            return _recurrent(name, _refs(state, call), kind, _refs(weights, call))
        case op, (*_, str()) if op in NEIGHBOUR_OPERATORS:
            return _on_neighbours(call)
        case "lotan.edge_column", (str(name), str(edges)):
            return lambda frame: edge_column(block(frame, edges), name)
        case "lotan.dropout", (Ref(name), int() | float() as p, int() | str() as key):
            return _dropout(name, float(p), key, call)
        case "lotan.random", (Ref(name), str(kind), int() | float() as p, int() | str() as key):
            return _random(name, kind, float(p), key, call)
    if call.op.startswith("lotan."):
        raise StageError(f"{call.output} = {call.op}{call.arguments}: no such graph operator, or not these arguments")
    return _aten(call)


def _recurrent(name: str, state: Sequence[str], kind: str, weights: Sequence[str]) -> Evaluate:
    def evaluate(frame: Frame) -> Tensor:
        before, given = ([frame.values[one] for one in names] for names in (state, weights))
        return recurrent(frame.values[name], before, kind, given)

    return evaluate


def _on_neighbours(call: Call) -> Evaluate:
    match call.op, call.arguments:
        case op, (Ref(name), Ref(order), int(size), str(edges)) if op == ROWS and size > 0:

            def rows(frame: Frame) -> Tensor:
                of = block(frame, edges)
                key = frame.values[order]
                return neighbours.neighbour_rows(frame.values[name], key, of.destinations, of.indptr.diff(), size)

            return rows
        case op, (
            Ref(name),
            Ref(order),
            Ref(steps),
            str(kind),
            int(layers),
            bool(both_ways),
            tuple(weights),
            str(edges),
        ) if op == SEQUENCE and kind in SEQUENCES and layers > 0:
            names = _refs(weights, call)

            def sequence(frame: Frame) -> Tensor:
                of, values = block(frame, edges), frame.values
                of_edges = values[name], values[order], of.destinations, of.indptr.diff()
                length = round(float(frame.row(steps)))
                given = [values[one] for one in names]
                return neighbours.neighbour_sequence(*of_edges, length, kind, layers, both_ways, given)

            return sequence
        case op, (Ref(queries), Ref(keys), Ref(values), str(edges)) if op == ATTENTION:

            def attention(frame: Frame) -> Tensor:
                of = block(frame, edges)
                q, k, v = (frame.values[one] for one in (queries, keys, values))
                return neighbours.neighbour_attention(q, k, v, of.indptr.diff())

            return attention
    raise StageError(f"{call.output} = {call.op}{call.arguments}: not the arguments of this operator")


def _refs(arguments: tuple[Argument, ...], call: Call) -> list[str]:
    """Return the names of values. Raise a StageError if some argument is none."""
    names = [argument.name for argument in arguments if isinstance(argument, Ref)]
    if len(names) < len(arguments):
        raise StageError(f"{call.output} = {call.op}: expected the names of values, but got {arguments}")
    return names


def names_read(call: Call) -> set[str]:
    """Return the names of the values that a call reads."""
    return set(call.reads)


def _aten(call: Call) -> Evaluate:
    op = resolve(call.op)
    arguments = tuple(_argument(argument, call) for argument in call.arguments)
    keywords = {name: _argument(argument, call) for name, argument in call.keywords}
    if keywords:
        return lambda frame: op(*[a(frame) for a in arguments], **{name: a(frame) for name, a in keywords.items()})
    return lambda frame: op(*[a(frame) for a in arguments])


def _argument(argument: Argument, call: Call) -> Evaluate:
    match argument:
        case Ref(name):
            return lambda frame: frame.values[name]
        case RowCount():
            return _row_count(call)
        case tuple():
            parts = tuple(_argument(part, call) for part in argument)
            return lambda frame: [part(frame) for part in parts]
        case str() if argument.startswith("torch."):
            return _dtype(argument, call)
        case _:
            return lambda frame: argument


def _dtype(name: str, call: Call) -> Evaluate:
    if name not in DTYPES:
        raise StageError(f"{call.output} = {call.op}: {name!r} is none of the dtypes {', '.join(DTYPES)}")
    dtype = DTYPES[name]
    return lambda frame: dtype


def _row_count(call: Call) -> Evaluate:
    edges = call.type.edges
    match call.type.rows:
        case "vertex":
            return lambda frame: frame.rows
        case "edge" if edges is not None:
            return lambda frame: block(frame, edges).edges
    raise StageError(f"{call.output} = {call.op}: counts rows, but has none")


def _dropout(name: str, p: float, key: int | str, call: Call) -> Evaluate:
    edges = call.type.edges
    if call.type.rows == "none" or (call.type.rows == "edge" and edges is None):
        raise StageError(f"{call.output} = lotan.dropout: needs rows of vertices or edges to draw for")
    if not 0 <= p <= 1:
        raise StageError(f"{call.output} = lotan.dropout: probability {p} is not between 0 and 1")
    if edges is None:
        return lambda frame: dropout(frame.values[name], p, frame.randomness, key, frame.chunk.keys)
    return lambda frame: dropout(frame.values[name], p, frame.randomness, key, _edge_keys(frame, edges))


def _random(name: str, kind: str, p: float, key: int | str, call: Call) -> Evaluate:
    edges = call.type.edges
    known = [one for one in get_args(Distribution) if one == kind]
    if not known or call.type.rows == "none" or (call.type.rows == "edge" and edges is None):
        raise StageError(
            f"{call.output} = lotan.random: draws {kind!r}, and needs rows of vertices or edges to draw for"
        )
    if not 0 <= p <= 1:
        raise StageError(f"{call.output} = lotan.random: probability {p} is not between 0 and 1")
    if edges is None:
        return lambda frame: random_rows(frame.values[name], known[0], p, frame.randomness, key, frame.chunk.keys)
    return lambda frame: random_rows(frame.values[name], known[0], p, frame.randomness, key, _edge_keys(frame, edges))


def block(frame: Frame, edges: str) -> EdgeBlock:
    """Return the chunk's in-edges of an edge set. Raise a StageError if the chunk has none."""
    try:
        return frame.chunk.edges[edges]
    except KeyError:
        raise StageError(f"the chunk has no edges of the set {edges!r}, but the stage reads them") from None


def _edge_keys(frame: Frame, edges: EdgeSet) -> Tensor:
    keys = block(frame, edges).keys
    if keys is None:
        raise StageError(f"the chunk's edges {edges!r} have no row keys, but the stage draws random numbers on them")
    return keys


def edge_column(edges: EdgeBlock, name: str) -> Tensor:
    """Return a column of the edges, such as "edge_attr". Raise a StageError if the chunk came without it."""
    if name not in edges.columns:
        raise StageError(f"the chunk's edges came without their column {name!r}, but the stage reads it")
    return edges.columns[name]


def edge_weight(edges: EdgeBlock) -> Tensor:
    """Return the weight of each edge, float32 [edges]. It is 1 if the graph has no weights."""
    return torch.ones(edges.edges) if edges.weight is None else edges.weight
