"""The tensors of a trace that stand for edges, and the graph operators that indexing by them becomes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar, cast

import torch
from torch import Tensor

from lotan.errors import ModelError
from lotan.nn.edge_index import EdgeIndex, Edges
from planner.spec import EdgeSet

Meaning = TypeVar("Meaning")

SOURCE_SUMS = "aggregates where edges begin; only where they end is supported (flow='source_to_target')"
WITHOUT_LOOPS = (
    "reads the edges without their self-loops, which is no edge set of a graph; remove the loops from the graph's edges, or "
    "add one to each vertex with add_self_loops"
)


@dataclass(frozen=True)
class Index:
    """The meaning of an edge_index: an edge set, and perhaps some of its edges only."""

    edges: EdgeSet
    chosen: Tensor | None = None  # float32 [num_edges], 1 for an edge that was chosen and 0 for another
    without_loops: bool = False


@dataclass(frozen=True)
class End:
    """The meaning of one row of an edge_index, or of a view of it."""

    index: Index
    end: Literal["source", "destination"]


class Identities(Generic[Meaning]):
    """A map from tensors, by identity. The tensors are kept, so that none of them gets the identity of another."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Tensor, Meaning]] = {}

    def __setitem__(self, tensor: Tensor, meaning: Meaning) -> None:
        self._held[id(tensor)] = tensor, meaning

    def get(self, value: object) -> Meaning | None:
        """Return the meaning of a tensor, or None for any other value."""
        found = self._held.get(id(value))
        return None if found is None else found[1]

    def forget(self, value: object) -> None:
        """Forget a tensor."""
        self._held.pop(id(value), None)

    def __bool__(self) -> bool:
        return bool(self._held)


class EdgeTensors:
    """The edges of one trace.

    Args:
        graph: the graph of fake tensors.
        weighted: if True, the graph has weights.
        refuse: a function from a reason to the error that names the line which is running.
    """

    def __init__(self, graph: EdgeIndex, weighted: bool, refuse: Callable[[str], ModelError]) -> None:
        self.graph = graph
        self.weighted = weighted
        self.refuse = refuse
        self.indices: Identities[Index] = Identities()
        self.ends: Identities[End] = Identities()
        self.weights: Identities[EdgeSet] = Identities()

    # Tensors of edges

    def index(self, meaning: Index) -> Tensor:
        """Return an edge_index of this meaning."""
        index = self.graph.edges(meaning.edges).index
        if self.indices.get(index) not in (None, meaning):
            index = torch.ops.aten.alias(index)  # a tensor of its own, because it has a meaning of its own
        self.indices[index] = meaning
        return index

    def plain(self, index: Tensor) -> Tensor:
        """Return the tensor of an edge_index's edge set, which is an input of the trace."""
        return self.graph.edges(self._index(index).edges).index

    def weight(self, edges: EdgeSet) -> Tensor:
        """Return the weights of an edge set, [num_edges]."""
        weight = cast(Tensor, torch.ops.lotan.edge_weight(self.graph.edges(edges).weight, edges))
        self.weights[weight] = edges
        return weight

    def end(self, index: Tensor, row: int) -> Tensor:
        """Return one row of an edge_index: the sources (0) or the destinations (1)."""
        meaning = self._index(index)
        if meaning.without_loops:
            raise self.refuse(WITHOUT_LOOPS)
        return self.mark(index.select(0, row), End(meaning, "source" if row % 2 == 0 else "destination"))

    def mark(self, tensor: Tensor, end: End) -> Tensor:
        """Give a tensor the meaning of an end, and return it."""
        self.ends[tensor] = end
        return tensor

    def choose(self, index: Tensor, mask: Tensor) -> Tensor:
        """Return the edge_index of the edges that a mask, bool [num_edges], chooses.

        All edges are kept, and aggregating counts those that were not chosen as nothing.
        """
        meaning = self._index(index)
        factor = mask.to(torch.float32)
        return self.index(replace(meaning, chosen=factor if meaning.chosen is None else factor * meaning.chosen))

    def has_edge_rows(self, *tensors: Tensor) -> bool:
        """Return True if the tensors have one row for each edge of the graph."""
        count: Any = self.graph.edges("graph").weight.shape[0]
        sizes: list[Any] = [tensor.shape[0] if tensor.dim() else 0 for tensor in tensors]
        return all(isinstance(size, torch.SymInt) and size.node.expr == count.node.expr for size in sizes)

    def edges(self, end: End) -> Edges:
        """Return the edge set that an end belongs to."""
        return self.graph.edges(end.index.edges)

    def _index(self, index: Tensor) -> Index:
        meaning = self.indices.get(index)
        assert meaning is not None
        return meaning

    # Graph operators

    def scatter(self, x: Tensor, end: End) -> Tensor:
        """Return the row of `x` at one end of each edge, [num_edges, *shape]."""
        return cast(Tensor, torch.ops.lotan.scatter(x, self.edges(end).index, end.end, end.index.edges))

    def aggregate(self, messages: Tensor, end: End, kind: str) -> Tensor:
        """Aggregate edge rows [num_edges, *shape] to the vertices where the edges end."""
        if end.end != "destination":
            raise self.refuse(SOURCE_SUMS)
        chosen = end.index.chosen
        if chosen is None:
            return self._aggregate(messages, end, kind)
        if kind in ("max", "min"):
            worst = -torch.inf if kind == "max" else torch.inf
            found = self._aggregate(torch.where(_beside(chosen, messages) > 0, messages, worst), end, kind)
            return found.masked_fill(found == worst, 0.0)
        total = self._aggregate(messages * _beside(chosen, messages), end, "sum")
        if kind == "sum":
            return total
        return total / _beside(self._aggregate(chosen, end, "sum").clamp(min=1), total)

    def softmax(self, scores: Tensor, end: End) -> Tensor:
        """Return the softmax of edge rows [num_edges, *shape] over the edges that end at the same vertex."""
        if end.end != "destination":
            raise self.refuse(SOURCE_SUMS)
        if end.index.chosen is not None:
            raise self.refuse("softmax over edges that a mask chooses; multiply the scores' exponentials by the mask")
        edges = self.edges(end)
        return cast(Tensor, torch.ops.lotan.edge_softmax(scores, edges.index, edges.num_vertices, edges.name))

    def count(self, end: End) -> Tensor:
        """Return the number of edges that end at each vertex, float32 [num_vertices]."""
        return self.aggregate(torch.ones(self.edges(end).weight.shape[0]), end, "sum")

    def gcn_scale(self, edges: EdgeSet, weight: Tensor | None) -> Tensor:
        """Return (sum of the in-edges' weights)^-1/2, or 0 where that is not finite, [num_vertices]."""
        if (weight is None and not self.weighted) or self.weights.get(weight) == edges:
            return self.graph.column(f"gcn_scale@{edges}")
        destination = End(Index(edges), "destination")
        total = self.count(destination) if weight is None else self.aggregate(weight, destination, "sum")
        root = total.pow(-0.5)
        return root.masked_fill(root == torch.inf, 0.0)

    def _aggregate(self, messages: Tensor, end: End, kind: str) -> Tensor:
        edges = self.edges(end)
        return cast(Tensor, torch.ops.lotan.aggregate(messages, edges.index, edges.num_vertices, kind, edges.name))


def _beside(rows: Tensor, like: Tensor) -> Tensor:
    """Return one number for each row in a shape that broadcasts over `like`, [rows, *shape]."""
    return rows.view(-1, *[1] * (like.dim() - 1))


class _Running(threading.local):
    """The trace that runs in this thread."""

    tensors: EdgeTensors | None = None


_RUNNING = _Running()


def running() -> EdgeTensors | None:
    """Return the edges of the trace that runs in this thread, or None."""
    return _RUNNING.tensors


@contextmanager
def run_with(tensors: EdgeTensors) -> Iterator[None]:
    """Make `tensors` those of the trace that runs in this thread."""
    before: Any = _RUNNING.tensors
    _RUNNING.tensors = tensors
    try:
        yield
    finally:
        _RUNNING.tensors = before
