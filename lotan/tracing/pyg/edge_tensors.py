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
from lotan.tracing.pyg.recipes import Recipe, recipe_of
from planner.edge_columns import LOOP
from planner.edge_sets import relation_of
from planner.spec import EdgeSet

Meaning = TypeVar("Meaning")

SOURCE_SUMS = "aggregates where edges begin; only where they end is supported (flow='source_to_target')"
NOT_AGAIN = (
    "adds self-loops to edges with values that cannot be computed for a self-loop: values after dropout, or those that are "
    "normalised over the edges of a vertex. Add the self-loops before"
)
OTHER_EDGES = "reads edges that are not those of the graph; pass on the edge_index that forward is given"
OTHER_ROWS = "reads rows of another type of vertices than these edges have at their {}, or rows of edges"
LEAST_SCORE = -1e30
"""The score of an edge that does not count. Its exponential is 0 beside that of any other edge."""


@dataclass(frozen=True, eq=False)
class Index:
    """The meaning of an edge_index, which is an edge set and how often each of its edges counts.

    Attributes:
        edges: the edge set.
        times: how often each edge counts, float32 [num_edges]: 1 for an edge that a mask chose, 0 for one that it left
            out; None if each counts once.
        without_loops: if True, all edges but the self-loops count.
    """

    edges: EdgeSet
    times: Tensor | None = None
    without_loops: bool = False

    def same(self, other: Index) -> bool:
        """Return True if another index has the same meaning."""
        return (self.edges, self.without_loops) == (other.edges, other.without_loops) and self.times is other.times


@dataclass(frozen=True, eq=False)
class End:
    """The meaning of one row of an edge_index, or of a view of it."""

    index: Index
    end: Literal["source", "destination"]


class Identities(Generic[Meaning]):
    """A map whose keys are tensors, which are compared by identity. They are kept, so that no identity is used twice."""

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
        refuse: a function that returns the error for a reason, with the line that is running.
    """

    def __init__(self, graph: EdgeIndex, weighted: bool, refuse: Callable[[str], ModelError]) -> None:
        self.graph = graph
        self.weighted = weighted
        self.refuse = refuse
        self.indices: Identities[Index] = Identities()
        self.ends: Identities[End] = Identities()
        self.columns: Identities[tuple[str, EdgeSet]] = Identities()  # the graph's own columns of edges
        self._recipes: Identities[Recipe] = Identities()
        self._no_loops: Identities[bool] = Identities()  # the masks that choose all edges but the self-loops
        self._by_count = {self.edge_count(name).node.expr: name for name in graph.edge_sets}

    # Tensors of edges

    def index(self, meaning: Index) -> Tensor:
        """Return an edge_index of this meaning."""
        index = self.graph.edges(meaning.edges).index
        held = self.indices.get(index)
        if held is not None and not held.same(meaning):
            index = torch.ops.aten.alias(index)  # a tensor of its own, because it has a meaning of its own
        self.indices[index] = meaning
        return index

    def meaning(self, index: Tensor) -> Index:
        """Return the meaning of an edge_index.

        Raises:
            ModelError: the tensor is no edge_index of the trace.
        """
        found = self.indices.get(index)
        if found is None:
            raise self.refuse(OTHER_EDGES)
        return found

    def plain(self, index: Tensor) -> Tensor:
        """Return the tensor of an edge_index's edge set, which is an input of the trace."""
        return self.graph.edges(self.meaning(index).edges).index

    def end(self, index: Tensor, row: int) -> Tensor:
        """Return one row of an edge_index: the sources (0 or -2) or the destinations (1 or -1)."""
        return self.mark(index.select(0, row), End(self.meaning(index), "source" if row % 2 == 0 else "destination"))

    def mark(self, tensor: Tensor, end: End) -> Tensor:
        """Give a tensor the meaning of an end, and return it."""
        self.ends[tensor] = end
        return tensor

    def choose(self, index: Tensor, mask: Tensor) -> Tensor:
        """Return the edge_index of the edges that a mask, bool [num_edges], chooses.

        All edges are kept, and aggregating counts those that were not chosen as nothing.
        """
        before = self.meaning(index)
        without_loops = self._no_loops.get(mask) is not None and before.times is None
        return self.index(replace(_chosen(before, mask), without_loops=without_loops))

    def choose_end(self, tensor: Tensor, mask: Tensor) -> Tensor:
        """Return one end of the edges that a mask chooses."""
        end = self.ends.get(tensor)
        assert end is not None
        return self.mark(torch.ops.aten.alias(tensor), replace(end, index=_chosen(end.index, mask)))

    def have_equal_ends(self, end: End) -> Tensor:
        """Return True for each edge with two equal ends, which is a self-loop, bool [num_edges]."""
        return self.is_loop(end.index.edges)

    def have_different_ends(self, end: End) -> Tensor:
        """Return True for each edge with two different ends, bool [num_edges]. Later, `choose` knows this mask."""
        mask = ~self.is_loop(end.index.edges)
        self._no_loops[mask] = True
        return mask

    def edges_of(self, *values: Any) -> EdgeSet | None:
        """Return the edge set to which values belong: tensors with a row for each of its edges, or their number."""
        found = {self._edge_set(value) for value in values}
        return found.pop() if len(found) == 1 else None

    def edges(self, end: End) -> Edges:
        """Return the edge set that an end belongs to."""
        return self.graph.edges(end.index.edges)

    def edge_count(self, edges: EdgeSet) -> Any:
        """Return the number of edges, a torch.SymInt."""
        return self.graph.edges(edges).weight.shape[0]

    def _edge_set(self, value: Any) -> EdgeSet | None:
        if isinstance(value, Tensor):
            value = value.shape[0] if value.dim() else None
        if not isinstance(value, torch.SymInt):
            return None
        return self._by_count.get(value.node.expr)

    # Values on edges

    def weight(self, edges: EdgeSet) -> Tensor:
        """Return the weights of an edge set, [num_edges]."""
        weight = cast(Tensor, torch.ops.lotan.edge_weight(self.graph.edges(edges).weight, edges))
        return self._own(weight, "edge_weight", edges, self.weight)

    def column(self, name: str, edges: EdgeSet, fill: float | str = 0) -> Tensor:
        """Return a column of an edge set, by its name in `planner.edge_columns`.

        Args:
            name: the column.
            edges: the edge set.
            fill: the value of added self-loops (default: 0).
        """
        column = self.graph.edge_column(name, edges, fill)
        return self._own(column, name, edges, lambda edges: self.column(name, edges, fill))

    def is_loop(self, edges: EdgeSet) -> Tensor:
        """Return True for each self-loop, bool [num_edges]."""
        return self.column(LOOP, edges, 1).squeeze(-1) > 0

    def on(self, value: Tensor, edges: EdgeSet) -> Tensor:
        """Return a value on edges, computed again for the edges of another set.

        The values of self-loops that the set adds mean nothing.

        Raises:
            ModelError: the value cannot be computed again.
        """
        recipe = self._recipes.get(value)
        if recipe is None:
            raise self.refuse(NOT_AGAIN)
        return recipe(edges)

    def remember(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Recipe | None:
        """Return how a function computes its result, if that is a value on edges which can be computed again."""
        return recipe_of(func, args, kwargs, self._recipes.get, self._is_of_edges, self.edge_count)

    def keep(self, value: Any, recipe: Recipe | None) -> None:
        """Keep how a value was computed."""
        if isinstance(value, Tensor):
            if recipe is None or self.edges_of(value) is None:
                self._recipes.forget(value)
            else:
                self._recipes[value] = recipe

    def _is_of_edges(self, value: Any) -> bool:
        return isinstance(value, Tensor | torch.SymInt) and self._edge_set(value) is not None

    def _own(self, value: Tensor, name: str, edges: EdgeSet, make: Callable[[EdgeSet], Tensor]) -> Tensor:
        self.columns[value] = name, edges
        self._recipes[value] = Recipe(make)
        return value

    # Graph operators

    def scatter(self, x: Tensor, end: End) -> Tensor:
        """Return the row of `x` at one end of each edge, [num_edges, *shape]."""
        return self._scatter(x, end.end, end.index.edges)

    def _scatter(self, x: Tensor, end: str, edges: EdgeSet) -> Tensor:
        self._require_ends(x, end, edges)
        rows = cast(Tensor, torch.ops.lotan.scatter(x, self.graph.edges(edges).index, end, edges))
        self._recipes[rows] = Recipe(lambda edges: self._scatter(x, end, edges))
        return rows

    def _require_ends(self, x: Tensor, end: str, edges: EdgeSet) -> None:
        """Refuse rows of vertices of another type than edges have at an end."""
        if relation_of(edges) is None:
            return
        of = self.graph.edges(edges)
        count: Any = of.num_vertices if end == "destination" or of.num_sources is None else of.num_sources
        rows: Any = x.shape[0] if x.dim() else None
        if isinstance(rows, torch.SymInt) and isinstance(count, torch.SymInt) and rows.node.expr != count.node.expr:
            raise self.refuse(OTHER_ROWS.format(end))

    def aggregate(self, messages: Tensor, end: End, kind: str) -> Tensor:
        """Aggregate edge rows [num_edges, *shape] to the vertices where they end, [num_vertices, *shape].

        Args:
            messages: the rows.
            end: the ends of the edges, which must be the destinations.
            kind: "sum", "mean", "max" or "min".

        Raises:
            ModelError: the ends are the sources.
        """
        if end.end != "destination":
            raise self.refuse(SOURCE_SUMS)
        times = end.index.times
        if times is None:
            return self._aggregate(messages, end, kind)
        if kind in ("max", "min"):
            worst = -torch.inf if kind == "max" else torch.inf
            found = self._aggregate(torch.where(beside(times, messages) > 0, messages, worst), end, kind)
            return found.masked_fill(found == worst, 0.0)
        total = self._aggregate(messages * beside(times, messages), end, "sum")
        if kind == "sum":
            return total
        return total / beside(self._aggregate(times, end, "sum").clamp(min=1), total)

    def softmax(self, scores: Tensor, end: End) -> Tensor:
        """Return the softmax of edge rows [num_edges, *shape] over the edges that end at the same vertex.

        An edge that counts several times is several edges of the same score, each of which has the result.
        """
        if end.end != "destination":
            raise self.refuse(SOURCE_SUMS)
        edges = self.edges(end)
        if end.index.times is None:
            return cast(Tensor, torch.ops.lotan.edge_softmax(scores, edges.index, edges.num_vertices, edges.name))
        times = beside(end.index.times, scores)
        together = torch.where(times > 0, scores + times.clamp(min=1).log(), LEAST_SCORE)
        shares = torch.ops.lotan.edge_softmax(together, edges.index, edges.num_vertices, edges.name)
        return torch.where(times > 0, shares / times.clamp(min=1), 0.0)

    def count(self, end: End) -> Tensor:
        """Return the number of edges that end at each vertex, float32 [num_vertices]."""
        return self.aggregate(torch.ones(self.edge_count(end.index.edges)), end, "sum")

    def gcn_scale(self, index: Index, weight: Tensor | None) -> Tensor:
        """Return (sum of the in-edges' weights)^-1/2, or 0 where that is not finite, [num_vertices]."""
        own = (weight is None and not self.weighted) or self.columns.get(weight) == ("edge_weight", index.edges)
        if own and index.times is None:
            return self.graph.column(f"gcn_scale@{index.edges}")
        destination = End(index, "destination")
        total = self.count(destination) if weight is None else self.aggregate(weight, destination, "sum")
        root = total.pow(-0.5)
        return root.masked_fill(root == torch.inf, 0.0)

    def _aggregate(self, messages: Tensor, end: End, kind: str) -> Tensor:
        edges = self.edges(end)
        return cast(Tensor, torch.ops.lotan.aggregate(messages, edges.index, edges.num_vertices, kind, edges.name))


def beside(rows: Tensor, like: Tensor) -> Tensor:
    """Return one number for each row in a shape that broadcasts over `like`, [rows, *shape]."""
    return rows.view(-1, *[1] * (like.dim() - 1))


def _chosen(index: Index, mask: Tensor) -> Index:
    factor = mask.to(torch.float32)
    return Index(index.edges, factor if index.times is None else factor * index.times)


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
