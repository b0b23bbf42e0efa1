"""The fake inputs of a recording, whose numbers of rows are symbols by which rows are told apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from lotan.nn.edge_index import EdgeIndex, Edges
from lotan.tracing.graph_columns import GraphColumns
from planner.edge_columns import LOOP, EdgeData
from planner.edge_sets import BASES, edge_set
from planner.spec import EdgeSet, Rows
from planner.vertex_types import VertexTypes

FIRST_COUNT = 10007
"""The first number of rows of a fake graph. It and all others are different primes, so that no width divides them."""

GROUP = "batch"
"""The column with the number of each vertex's group. It is the last of the features, and models see it apart from them."""

SEEN = "seen_label"
"""The column with the class of each training vertex, and -1 of any other. It is the last of the features as well."""

_COLUMNS = ("in_degree", "gcn_scale@graph", "gcn_scale@self_loops")


@dataclass(frozen=True)
class Symbols:
    """The row counts of a recording, by which the rows of a tensor are recognised."""

    vertices: tuple[Any, ...]  # torch.SymInt: of all vertices, or of each type of vertices
    edges: Mapping[EdgeSet, Any]

    def rows(self, size: Any) -> tuple[Rows, EdgeSet | None] | None:
        """Return the kind of rows of a tensor whose first dimension is `size`.

        The result is None if `size` is neither a number nor one of the row counts.
        """
        if isinstance(size, int):
            return "none", None
        if self.number_of(size) is not None:
            return "vertex", None
        for name, count in self.edges.items():
            if size.node.expr == count.node.expr:
                return "edge", name
        return None

    def number_of(self, size: Any) -> int | None:
        """Return the number of the type whose vertices `size` counts, or None if it counts something else."""
        if isinstance(size, int):
            return None
        found = (number for number, count in enumerate(self.vertices) if size.node.expr == count.node.expr)
        return next(found, None)


class Fakes:
    """The fake inputs of a recording: parameters, features, edge sets with their columns, and static columns.

    Args:
        environment: the environment of the symbols.
        parameters: all parameters and buffers of the model, by name.
        given: the columns of the graph.
    """

    def __init__(self, environment: ShapeEnv, parameters: Mapping[str, Tensor], given: GraphColumns) -> None:
        self._mode = fake_mode(environment)
        self._counts = _primes(FIRST_COUNT)
        self._types = given.types
        self._parts = _one_type(given) if given.types is None else _several_types(given.types)
        self._names = list(self._parts.edge_columns)
        counts = [next(self._counts) for _ in self._parts.widths]
        learned = dict(given.learned)
        fixed = [
            self._fake(torch.empty(counts[learned[name]], *value.shape[1:]).requires_grad_(value.requires_grad), 0)
            if name in learned
            else self._mode.from_tensor(value, static_shapes=True)
            for name, value in parameters.items()
        ]
        features = [
            self._fake(torch.empty(count, width if given.types is None else max(1, width)), 0)
            for count, width in zip(counts, self._parts.widths, strict=True)
        ]
        of_sets = [self._edges(next(self._counts), given.data) for _ in self._parts.sets]
        columns = [self._fake(_empty(name, counts[at]), 0) for name, at in self._parts.columns.items()]
        self.inputs: list[Tensor] = [*fixed, *features, *(one for edges in of_sets for one in edges), *columns]
        self.meanings: tuple[str | None, ...] = (
            *(f"learned:{name}" if name in learned else name for name in parameters),
            *(f"features:{at}" if given.types else "features" for at in range(len(features))),
            *[None] * (len(self.inputs) - len(fixed) - len(features)),
        )
        self.symbols = Symbols(
            tuple(one.shape[0] for one in features),
            {name: edges[1].shape[0] for name, edges in zip(self._parts.sets, of_sets, strict=True)},
        )

    def graph(self, values: Sequence[Tensor]) -> tuple[Any, EdgeIndex, list[Any]]:
        """Return the features and the graph that a model sees, made of the inputs after the parameters.

        For a graph of several types of vertices, the features are a dictionary by type, without types that have none. The
        number of vertices of each type comes last.
        """
        parts = self._parts
        features, rest = values[: len(parts.widths)], values[len(parts.widths) :]
        counts = [rows.shape[0] for rows in features]
        of_set = 2 + len(self._names)
        sets: dict[EdgeSet, Edges] = {}
        for number, (name, (source, destination)) in enumerate(parts.sets.items()):
            index, weight, *data = rest[number * of_set : (number + 1) * of_set]
            ends = counts[destination], counts[source]
            sets[name] = Edges(name, index, weight, ends[0], dict(zip(self._names, data, strict=True)), ends[1])
        columns = dict(zip(parts.columns, rest[len(parts.sets) * of_set :], strict=True))
        graph = EdgeIndex.of(sets, columns, counts[0])
        if self._types is None:
            return features[0], graph, counts
        names = zip(self._types.names, self._types.widths, features, strict=True)
        return {name: rows for name, width, rows in names if width}, graph, counts

    def _edges(self, count: int, data: EdgeData) -> list[Tensor]:
        """Return the index and the weights of an edge set, then its columns."""
        made = {
            "edge_attr": lambda: torch.empty(count, data.width or 0),
            "edge_type": lambda: torch.empty(count, dtype=torch.int64),
            LOOP: lambda: torch.empty(count, 1),
        }
        found = [self._fake(torch.empty(2, count, dtype=torch.int64), 1), self._fake(torch.empty(count), 0)]
        return [*found, *(self._fake(made[name](), 0) for name in self._names)]

    def _fake(self, value: Tensor, rows: int) -> Tensor:
        return fake(self._mode, value, rows)


@dataclass(frozen=True)
class _Parts:
    """The parts of a fake graph. Types of vertices are named by their numbers."""

    widths: tuple[int, ...]  # the width of the features of each type
    sets: Mapping[EdgeSet, tuple[int, int]]  # with the types of sources and destinations
    columns: Mapping[str, int]  # the static columns that follow from edges, each with its type of vertices
    edge_columns: tuple[str, ...]  # the columns of each edge set


def _one_type(given: GraphColumns) -> _Parts:
    columns = (*["edge_attr"] * (given.data.width is not None), *["edge_type"] * given.data.typed, LOOP)
    sets: dict[EdgeSet, tuple[int, int]] = dict.fromkeys(BASES, (0, 0))
    further = [*[GROUP] * (given.groups is not None), *[SEEN] * (given.label_rate is not None)]
    names, width = (*_COLUMNS, *further), given.width - len(further)
    return _Parts((width,), sets, dict.fromkeys(names, 0), columns)


def _empty(column: str, count: int) -> Tensor:
    return torch.empty(count, dtype=torch.int64 if column == GROUP else torch.float32)


def _several_types(types: VertexTypes) -> _Parts:
    """Return the parts of a graph with an edge set for each relation and one for it turned round.

    Where both ends are alike, there are the same two with self-loops.
    """
    sets: dict[EdgeSet, tuple[int, int]] = {}
    columns: dict[str, int] = {}
    for relation in range(len(types.relations)):
        ends = source, destination = types.ends(relation)
        sets |= {edge_set("graph", relation): ends, edge_set("reversed", relation): ends[::-1]}
        columns[f"in_degree@{edge_set('graph', relation)}"] = destination
        if source == destination:
            sets |= {edge_set("self_loops", relation): ends, edge_set("reversed_self_loops", relation): ends}
            for name in (edge_set("graph", relation), edge_set("self_loops", relation)):
                columns[f"gcn_scale@{name}"] = destination
    return _Parts(types.widths, sets, columns, (*["edge_attr"] * bool(types.edge_widths), LOOP))


def fake_mode(environment: ShapeEnv) -> FakeTensorMode:
    """Return the mode of a recording's fake tensors, which remembers no operators: few are called twice on equal shapes."""
    mode = FakeTensorMode(shape_env=environment)
    mode.cache_enabled = False
    return mode


def fake(mode: FakeTensorMode, value: Tensor, rows: int) -> Tensor:
    """Return a fake of `value` whose dimension `rows` is a symbol. Equal sizes have the same symbol."""
    sizes = [DimDynamic.DUCK if dim == rows else DimDynamic.STATIC for dim in range(value.dim())]
    return mode.from_tensor(value, symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes))


def other_counts(symbols: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return other row counts for so many symbols, in two orders of size. They must lead to the same trace."""
    small = [3 + 2 * at for at in range(symbols)]
    large = [1_000_003 + 14 * (at * 50_021 % 99_991) for at in range(symbols)]
    return small, large[::-1]


def _primes(first: int) -> Iterator[int]:
    """Yield primes from one on, with gaps between them."""
    number = first
    while True:
        if all(number % factor for factor in range(3, int(number**0.5) + 1, 2)):
            yield number
            number += 1000
        number += 2
