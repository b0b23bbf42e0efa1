"""The tensors of a trace that stand for edges, and the graph operators that indexing by them becomes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from lotan.errors import ModelError
from lotan.nn.edge_index import EdgeIndex
from lotan.tracing.pyg.drawing import drawing_node, note_same
from lotan.tracing.pyg.group_tensors import GroupTensors
from lotan.tracing.pyg.meanings import End, Identities, Index, beside
from lotan.tracing.pyg.recipes import Recipe, recipe_of
from planner.edge_columns import LOOP
from planner.edge_sets import is_reversed, relation_of, reversed_set
from planner.spec import SOFTMAX_EPSILON, EdgeSet

NOT_AGAIN = (
    "adds self-loops to edges with values that cannot be computed for a self-loop, such as those that are normalised over the "
    "edges of a vertex. Add the self-loops before"
)
NOT_TURNED = (
    "aggregates values where edges begin that cannot be computed there, because it is not known how they were made; compute "
    "them from rows of x, weights, attributes and types of edges by functions of torch"
)
CHOSEN_QUANTILE = (
    "takes a quantile over some of the edges, or over edges that count several times; take it over all edges of the graph, or "
    "give the graph fewer"
)
OTHER_EDGES = "reads edges that are not those of the graph; pass on the edge_index that forward is given"
OTHER_ROWS = "reads rows of another type of vertices than these edges have at their {}, or rows of edges"
LEAST_SCORE = -1e30
"""The score of an edge that does not count. Its exponential is 0 beside that of any other edge."""


class EdgeTensors(GroupTensors):
    """The edges of one trace, and its groups of vertices.

    Args:
        graph: the graph of fake tensors.
        weighted: if True, the graph has weights.
        refuse: a function that returns the error for a reason, with the line that is running.
        number_of_groups: the number of groups of vertices, or None if the graph has none (default: None).
        order: the number of the attribute of edges by which neighbours are in order, or None for that of ids (default: None).
    """

    def __init__(
        self,
        graph: EdgeIndex,
        weighted: bool,
        refuse: Callable[[str], ModelError],
        number_of_groups: int | None = None,
        order: int | None = None,
    ) -> None:
        super().__init__(graph, refuse, number_of_groups)
        self.order, self.weighted = order, weighted
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
        if held is not None and not (held.same(meaning) and held.turned == meaning.turned):
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
        """Return one row of an edge_index: the first (0 or -2) or the second (1 or -1)."""
        meaning = self.meaning(index)
        return self.mark(index.select(0, row), meaning.starts if row % 2 == 0 else meaning.ends)

    def turned(self, index: Tensor) -> Tensor:
        """Return the edge_index with its two rows exchanged."""
        meaning = self.meaning(index)
        return self.index(replace(meaning, turned=not meaning.turned))

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
        return self.index(replace(self._chosen(before, mask), without_loops=without_loops))

    def choose_end(self, tensor: Tensor, mask: Tensor) -> Tensor:
        """Return one end of the edges that a mask chooses."""
        end = self.ends.get(tensor)
        assert end is not None
        return self.mark(torch.ops.aten.alias(tensor), replace(end, index=self._chosen(end.index, mask)))

    def have_equal_ends(self, end: End) -> Tensor:
        """Return True for each edge with two equal ends, which is a self-loop, bool [num_edges]."""
        return self.is_loop(end.index.edges)

    def have_different_ends(self, end: End) -> Tensor:
        """Return True for each edge with two different ends, bool [num_edges]. Later, `choose` knows this mask."""
        mask = self._is_no_loop(end.index.edges)
        self._no_loops[mask] = True
        return mask

    def edges_of(self, *values: Any) -> EdgeSet | None:
        """Return the edge set to which values belong: tensors with a row for each of its edges, or their number."""
        found = {self._edge_set(value) for value in values}
        return found.pop() if len(found) == 1 else None

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
        return self._computed(self.column(LOOP, edges, 1).squeeze(-1) > 0, self.is_loop)

    def _is_no_loop(self, edges: EdgeSet) -> Tensor:
        return self._computed(~self.is_loop(edges), self._is_no_loop)

    def times_without_loops(self, edges: EdgeSet, before: Tensor | None = None) -> Tensor:
        """Return how often each edge counts if self-loops do not, and others as `before`, float32 [num_edges]."""

        def times(edges: EdgeSet) -> Tensor:
            found = self._is_no_loop(edges).to(torch.float32)
            return found if before is None else found * self.on(before, edges)

        return self._computed(times(edges), times)

    def times_with_loops(self, edges: EdgeSet, before: Tensor) -> Tensor:
        """Return how often each edge counts if each self-loop counts once, and others as `before`, float32 [num_edges]."""

        def times(edges: EdgeSet) -> Tensor:
            return torch.where(self.is_loop(edges), 1.0, self.on(before, edges))

        return self._computed(times(edges), times)

    def on(self, value: Tensor, edges: EdgeSet) -> Tensor:
        """Return a value on edges, computed again for the edges of another set.

        The values of self-loops that the set adds mean nothing.

        Raises:
            ModelError: the value cannot be computed again.
        """
        given = self._edge_set(value)
        if given == edges:
            return value
        recipe = self._recipes.get(value)
        if recipe is None:
            turned = given is not None and edges == reversed_set(given)
            raise self.refuse(NOT_TURNED if turned else NOT_AGAIN)
        return recipe(edges)

    def remember(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Recipe | None:
        """Return how a function computes its result, if that is a value on edges which can be computed again."""
        return recipe_of(func, args, kwargs, self._recipes.get, self._is_of_edges, self.edge_count)

    def keep(self, value: Any, recipe: Recipe | None, drawn: bool = False) -> None:
        """Keep how a value was computed.

        Args:
            value: the value, or anything else, of which nothing is kept.
            recipe: how it was computed, or None if it cannot be computed again.
            drawn: if True, the value itself was drawn at random (default: False).
        """
        if isinstance(value, Tensor):
            if recipe is None or self.edges_of(value) is None:
                self._recipes.forget(value)
            else:
                self._recipes[value] = self._drawing(value, recipe) if drawn else recipe

    def is_drawn(self, value: Tensor) -> bool:
        """Return True if a value on edges depends on random numbers."""
        recipe = self._recipes.get(value)
        return recipe is not None and recipe.drawn

    def _drawing(self, value: Tensor, recipe: Recipe) -> Recipe:
        """Return how a value that was drawn is drawn again, with the same random numbers for the same edges."""
        first, relation = drawing_node(value), relation_of(str(self._edge_set(value)))

        def draw_again(edges: EdgeSet) -> Tensor:
            found = recipe(edges)
            again = drawing_node(found)
            if first is None or again is None or relation != relation_of(edges):
                raise self.refuse(NOT_AGAIN)
            note_same(first, again)
            return found

        return Recipe(draw_again, drawn=True)

    def _is_of_edges(self, value: Any) -> bool:
        return isinstance(value, Tensor | torch.SymInt) and self._edge_set(value) is not None

    def _own(self, value: Tensor, name: str, edges: EdgeSet, make: Callable[[EdgeSet], Tensor]) -> Tensor:
        self.columns[value] = name, edges
        return self._computed(value, make)

    def _computed(self, value: Tensor, make: Callable[[EdgeSet], Tensor], drawn: bool = False) -> Tensor:
        """Note how a value on edges is computed for an edge set, and if it depends on random numbers, and return it."""
        self._recipes[value] = Recipe(make, drawn)
        return value

    def _chosen(self, index: Index, mask: Tensor) -> Index:
        """Return the meaning of an edge_index of which a mask, bool [num_edges], chooses edges."""

        def times(edges: EdgeSet) -> Tensor:
            factor = self.on(mask, edges).to(torch.float32)
            return factor if index.times is None else factor * self.on(index.times, edges)

        drawn = self.is_drawn(mask) or (index.times is not None and self.is_drawn(index.times))
        return replace(index, times=self._computed(times(index.edges), times, drawn), without_loops=False, chosen=None)

    def _landing(self, end: End) -> End:
        """Return the ends of edges at the same vertices, of the edges turned round if need be."""
        if end.end == "destination":
            return end
        edges, times = reversed_set(end.index.edges), end.index.times
        return End(Index(edges, None if times is None else self.on(times, edges)), "destination")

    def bounded(self, numbers: Tensor, limit: int) -> Tensor:
        """Return `numbers` [rows], which a layer takes as types below `limit`. The graph is checked for larger ones."""
        found = cast(Tensor, torch.ops.lotan.bounded(numbers, limit))
        recipe = self._recipes.get(numbers)
        return found if recipe is None else self._computed(found, lambda edges: self.bounded(recipe(edges), limit))

    # Graph operators

    def scatter(self, x: Tensor, end: End) -> Tensor:
        """Return the row of `x` at one end of each edge, [num_edges, *shape]."""
        return self._scatter(x, end.end, end.index.edges)

    def _scatter(self, x: Tensor, end: str, edges: EdgeSet) -> Tensor:
        self._require_ends(x, end, edges)
        rows = cast(Tensor, torch.ops.lotan.scatter(x, self.graph.edges(edges).index, end, edges))
        other = "destination" if end == "source" else "source"

        def again(there: EdgeSet) -> Tensor:
            return self._scatter(x, end if is_reversed(there) == is_reversed(edges) else other, there)

        return self._computed(rows, again)

    def _require_ends(self, x: Tensor, end: str, edges: EdgeSet) -> None:
        """Refuse rows of vertices of another type than edges have at an end."""
        if relation_of(edges) is None:
            return
        count = self._vertices(end, edges)
        rows: Any = x.shape[0] if x.dim() else None
        if isinstance(rows, torch.SymInt) and isinstance(count, torch.SymInt) and rows.node.expr != count.node.expr:
            raise self.refuse(OTHER_ROWS.format(end))

    def _vertices(self, end: str, edges: EdgeSet) -> Any:
        """Return the number of vertices of the type that edges have at an end, a torch.SymInt."""
        of = self.graph.edges(edges)
        return of.num_vertices if end == "destination" or of.num_sources is None else of.num_sources

    def aggregate(self, messages: Tensor, end: End, kind: str) -> Tensor:
        """Aggregate edge rows [num_edges, *shape] to the vertices at one end, [num_vertices, *shape].

        Args:
            messages: the rows.
            end: the end of the edges. Where edges begin, the messages are computed again for the edges turned round.
            kind: "sum", "mean", "max" or "min".

        Raises:
            ModelError: the messages cannot be computed for the edges turned round.
        """
        landing = self._landing(end)
        if landing is not end:
            messages = self.on(messages, landing.index.edges)
        end, times = landing, landing.index.times
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

    def quantile(self, messages: Tensor, end: End, kind: str) -> Tensor:
        """Aggregate edge rows [num_edges, *shape] to the vertices at one end by a quantile, [num_vertices, *shape].

        Args:
            messages: the rows.
            end: the end of the edges.
            kind: the quantile, as in `planner.spec.quantile_of`.

        Raises:
            ModelError: some edges are left out or count several times, or the messages cannot be computed for the edges turned
                round.
        """
        landing = self._landing(end)
        if landing.index.times is not None:
            raise self.refuse(CHOSEN_QUANTILE)
        messages = messages if landing is end else self.on(messages, landing.index.edges)
        edges = self.graph.edges(landing.index.edges)
        return cast(Tensor, torch.ops.lotan.quantile(messages, edges.index, edges.num_vertices, kind, edges.name))

    def softmax(self, scores: Tensor, end: End) -> Tensor:
        """Return the softmax of edge rows [num_edges, *shape] over the edges that share the vertex at the given end.

        An edge that counts several times stands for as many edges with the same score and the same share.
        """
        landing = self._landing(end).index

        def shares(edges: EdgeSet) -> Tensor:
            if edges not in (landing.edges, reversed_set(landing.edges)):
                raise self.refuse(NOT_AGAIN)
            times = None if landing.times is None else beside(self.on(landing.times, edges), scores)
            found = self._shares(scores, times, landing.edges, edges)
            return found if times is None else torch.where(times > 0, found / times.clamp(min=1), 0.0)

        return self._computed(shares(end.index.edges), shares)

    def _shares(self, scores: Tensor, times: Tensor | None, at: EdgeSet, edges: EdgeSet) -> Tensor:
        """Return the softmax over the in-edges of an edge set, for each edge of that set or of the set turned round.

        Args:
            scores: the scores [num_edges, *shape].
            times: how often each of `edges` counts, or None if each counts once.
            at: the edge set over whose in-edges scores are normalised.
            edges: the edge set of the result.
        """

        def counted(edges: EdgeSet, times: Tensor | None) -> Tensor:
            found = self.on(scores, edges)
            return found if times is None else torch.where(times > 0, found + times.clamp(min=1).log(), LEAST_SCORE)

        if at == edges:
            there = self.graph.edges(at)
            given = counted(at, times), there.index, there.num_vertices, at
            return cast(Tensor, torch.ops.lotan.edge_softmax(*given))
        ends = Index(at).ends
        here = counted(at, None if times is None else self.on(times, at))
        greatest = self._aggregate(here.detach(), ends, "max")  # it cancels out, and so needs no gradient
        total = self._aggregate((here - self._scatter(greatest, "destination", at)).exp(), ends, "sum")
        powers = (counted(edges, times) - self._scatter(greatest, "source", edges)).exp()
        return powers / (self._scatter(total, "source", edges) + SOFTMAX_EPSILON)

    def count(self, end: End) -> Tensor:
        """Return the number of edges that have each vertex at one end, float32 [num_vertices]."""
        landing = self._landing(end)
        if landing is end:
            ones = torch.ones(self.edge_count(end.index.edges))
        else:  # copies of vertices' rows, which every engine sums against the edges
            ones = self._scatter(
                torch.ones(self._vertices("source", landing.index.edges)), "source", landing.index.edges
            )
        return self.aggregate(ones, landing, "sum")

    def gcn_scale(self, end: End, weight: Tensor | None) -> Tensor:
        """Return (sum of the weights of the edges at each vertex)^-1/2, or 0 where that is not finite, [num_vertices]."""
        index = end.index
        own = (weight is None and not self.weighted) or self.columns.get(weight) == ("edge_weight", index.edges)
        if own and index.times is None and end.end == "destination":
            return self.graph.column(f"gcn_scale@{index.edges}")
        total = self.count(end) if weight is None else self.aggregate(weight, end, "sum")
        root = total.pow(-0.5)
        return root.masked_fill(root == torch.inf, 0.0)

    def _aggregate(self, messages: Tensor, end: End, kind: str) -> Tensor:
        edges = self.graph.edges(end.index.edges)
        if kind == "mean" and is_reversed(edges.name):  # no static column has the out-degrees
            given = End(Index(reversed_set(edges.name)), "source")
            total, count = self._aggregate(messages, end, "sum"), self.count(given)
            return total / beside(count.clamp(min=1), total)
        return cast(Tensor, torch.ops.lotan.aggregate(messages, edges.index, edges.num_vertices, kind, edges.name))


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
