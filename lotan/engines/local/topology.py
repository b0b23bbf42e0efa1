"""The edges of a graph in memory: edge sets, static columns that follow from edges, and the matrices of propagate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lotan.engines.local.entry_sums import EntrySums
from lotan.errors import EngineError
from lotan.graph.arrays import counted
from lotan.graph.edge_sets import SelfLoops, gcn_scale, inverse_root, self_loops
from lotan.graph.row_keys import edge_keys, occurrences
from lotan.graph.sorted_edges import runs_of_ends, sort_ends
from lotan.memory.mapped import MappedMemory, give_back
from lotan.stages.chunk import EdgeBlock, prefix_sum, sparse_rows
from planner.chunks import EDGES_READ
from planner.edge_columns import LOOP, ORDER, fill_of
from planner.edge_sets import as_given, is_reversed, relation_of, reversed_set
from planner.spec import EdgeSet

Positions = NDArray[np.int64]


def no_column(name: str) -> Tensor:
    """Raise the error for a column that edges lack."""
    raise EngineError(f"the plan reads the column {name!r} of edges, which the graph lacks")


@dataclass(eq=False)
class Edges:
    """Edges among all vertices of a graph, or those that end in the first vertices.

    They are sorted by destination, then source; parallel edges have the order of `lotan.graph.GraphArrays`.
    """

    vertices: int
    src: Positions  # int64 [edges]
    dst: Positions  # int64 [edges]
    weight: NDArray[np.float32] | None  # [edges]; None: each weight is 1
    first_ends: int | None = None  # the number of first vertices that edges may end in; None: all
    data: Mapping[str, Tensor] = field(default_factory=dict)  # attributes and types of the graph's own edges, by name
    columns: Callable[[str], Tensor] = no_column  # makes those that follow from the graph's own
    rows: Tensor | None = None  # the vertices as rows of the whole graph, int64 [vertices]; None: they are in its order
    mapped: MappedMemory | None = None  # the files in which ends and matrices lie; None: they lie in memory
    before: int = 0  # the vertices before the first one that edges may end in, from which `dst` counts

    @property
    def ends(self) -> int:
        """The number of vertices that edges may end in."""
        return self.vertices if self.first_ends is None else self.first_ends

    @cached_property
    def block(self) -> EdgeBlock:
        """All edges as one block, for stages. Its sources are all vertices."""
        counts = counted(self.dst, self.ends)
        weight = None if self.weight is None else torch.from_numpy(self.weight)
        return EdgeBlock(prefix_sum(torch.from_numpy(counts)), torch.from_numpy(self.src), weight)

    def keyed_block(self, keys: NDArray[np.int64]) -> EdgeBlock:
        """Return the block with row keys of the edges, made from the row keys of the vertices: for stages that draw on edges."""
        if self.block.keys is None:
            found = edge_keys(keys[self.src], keys[self.dst], occurrences(self.src, self.dst))
            self.block.keys = torch.from_numpy(found)
        return self.block

    def block_with(self, names: Sequence[str]) -> EdgeBlock:
        """Return the block with columns of edges. Each is made once."""
        for name in names:
            if name not in self.block.columns:
                self.block.columns[name] = self._made(name)
        return self.block

    def _made(self, name: str) -> Tensor:
        if name == LOOP:
            return torch.from_numpy(self.src == self.dst).float().view(-1, 1)
        if name == ORDER:
            return self._order().view(-1, 1)
        return self.data[name] if name in self.data else self.columns(name)

    def _order(self) -> Tensor:
        """Return the number of each edge among those that end at the same vertex, by the order of ids, float32 [edges]."""
        numbers, indptr = torch.arange(len(self.src)), self.block.indptr
        if self.rows is not None:  # parallel edges keep their order
            by_source = self.rows[torch.from_numpy(self.src)].argsort(stable=True)
            order = by_source[self.block.destinations[by_source].argsort(stable=True)]
            numbers = torch.empty_like(order).index_copy(0, order, numbers)
        return (numbers - indptr[:-1][self.block.destinations]).float()

    def column(self, name: str) -> Tensor:
        """Return a column of the edges, float32 [edges, width] or int64 [edges]. It is made once."""
        return self.block_with([name]).columns[name]

    def first(self, ends: int) -> Edges:
        """Return the edges that end in the first `ends` vertices. Nothing is copied."""
        edges = slice(0, int(np.searchsorted(self.dst, ends)))
        weight = None if self.weight is None else self.weight[edges]
        first = edges.stop
        return Edges(
            self.vertices,
            self.src[edges],
            self.dst[edges],
            weight,
            ends,
            columns=lambda name: self.column(name)[:first],
            rows=self.rows,
            mapped=self.mapped,
        )

    def runs(self) -> Iterator[tuple[slice, slice, Edges]]:
        """Yield the edges run by run of the vertices that they end in, `EDGES_READ` at a time if no vertex has more.

        Yields:
            The vertices, the places of the edges that end there, and these edges in memory.
        """
        indptr = self.block.indptr.numpy()
        for run in runs_of_ends(np.diff(indptr) + 1, EDGES_READ):  # and a vertex counts as an edge
            some = slice(int(indptr[run.start]), int(indptr[run.stop]))
            weight = None if self.weight is None else self.weight[some].copy()
            dst = self.dst[some] - run.start
            yield (
                slice(run.start, run.stop),
                some,
                Edges(self.vertices, self.src[some].copy(), dst, weight, len(run), before=run.start),
            )
            for column in (self.src, self.dst, self.weight):
                if column is not None:
                    give_back(column)

    def matrix(self, weighted: bool, reverse: bool) -> Tensor:
        """Return A [ends, vertices], for which A @ x sums x over in-edges, or its transpose with `reverse`. It is built once."""
        return self._reverse[weighted] if reverse else self._forward[weighted]

    def entry_sums(self, reverse: bool, rows: int) -> EntrySums:
        """Return the sums over in-edges (with `reverse`, out-edges) of the first `rows` vertices. They are made once."""
        if (reverse, rows) not in self._entry_sums:
            self._entry_sums[reverse, rows] = EntrySums(first_rows(self.matrix(False, reverse), rows))
        return self._entry_sums[reverse, rows]

    @cached_property
    def _entry_sums(self) -> dict[tuple[bool, int], EntrySums]:
        return {}

    def by_head(self, heads: int, reverse: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return the unweighted matrix with every head of a vertex as a vertex of its own. It is made once.

        Args:
            heads: The number of heads of an edge column [edges, heads].
            reverse: True for the transpose, as in `matrix`.

        Returns:
            The row pointers, int32 [rows * heads + 1]; the columns, int32 [edges * heads]; and the positions of the
            values in the flattened edge column, int32 [edges * heads].
        """
        if (heads, reverse) not in self._by_head:
            matrix = self.matrix(weighted=False, reverse=reverse)
            indptr, columns = matrix.crow_indices().long(), matrix.col_indices().long()
            degrees = indptr.diff().repeat_interleave(heads)  # the degree of every head of every vertex
            by_head = prefix_sum(degrees)
            places = torch.arange(len(columns) * heads)
            row = torch.repeat_interleave(torch.arange(len(degrees)), degrees)
            edge = indptr[row // heads] + places - by_head[row]
            head = row % heads
            own = self.reverse_order[edge] if reverse else edge
            found = by_head, columns[edge] * heads + head, own * heads + head
            pointers, columns_by_head, places_by_head = (one.to(torch.int32) for one in found)
            self._by_head[heads, reverse] = pointers, columns_by_head, places_by_head
        return self._by_head[heads, reverse]

    @cached_property
    def _by_head(self) -> dict[tuple[int, bool], tuple[Tensor, Tensor, Tensor]]:
        return {}

    @cached_property
    def _forward(self) -> tuple[Tensor, Tensor]:
        return self._matrices(self.dst, self.src, (self.ends, self.vertices), slice(None))

    @cached_property
    def _reverse(self) -> tuple[Tensor, Tensor]:
        shape = self.vertices, self.ends
        if self.weight is None:
            return self._matrices(*sort_ends(self.src, self.dst, self.vertices), shape, slice(None))
        order = self.reverse_order.numpy()
        return self._matrices(self.src[order], self.dst[order], shape, order)

    @cached_property
    def reverse_order(self) -> Tensor:
        """The positions of the edges, sorted by source. int64 [edges]."""
        # A stable sort leaves destinations in order: sums have one order in every run.
        return torch.from_numpy(np.argsort(self.src, kind="stable"))

    def _matrices(
        self, rows: Positions, columns: Positions, shape: tuple[int, int], order: Positions | slice
    ) -> tuple[Tensor, Tensor]:
        """Return the unweighted and the weighted matrix, in CSR form."""
        index = torch.int32 if max(self.vertices, len(rows)) < 2**31 else torch.int64
        indptr = prefix_sum(torch.from_numpy(counted(rows, shape[0]))).to(index)
        positions, ones = self._in_place(columns, index), None
        if self.mapped is not None:
            ones = self._in_place(np.broadcast_to(np.float32(1.0), len(columns)), torch.float32)
        plain = sparse_rows(indptr, positions, shape[1], ones)
        if self.weight is None:
            return plain, plain
        return plain, sparse_rows(indptr, positions, shape[1], torch.from_numpy(self.weight[order]))

    def _in_place(self, array: NDArray[Any], dtype: torch.dtype) -> Tensor:
        """Return an array as a tensor of a type, in a file if the ends of edges lie in files."""
        if self.mapped is None:
            return torch.from_numpy(array).to(dtype)
        found = self.mapped.new(len(array), dtype)
        for some in _runs(array):
            found.numpy()[some] = array[some]
            give_back(found.numpy())
        return found

    def with_self_loops(self) -> Edges:
        """Return the edges with exactly one self-loop per vertex, as `planner.spec.EdgeSet` describes it."""
        if self.mapped is not None:
            return self._looped_in_files(self.mapped)
        if self.weight is None and not self.data and self.columns is no_column:
            others, every = self.src != self.dst, np.arange(self.vertices)
            first, then = (np.concatenate([ends[others], every]) for ends in (self.dst, self.src))
            dst, src = sort_ends(first, then, self.vertices)
            return Edges(self.vertices, src, dst, None, columns=self._column_with_loops)
        loops, order = self._looped
        src, dst = loops.index.numpy()
        weight = None if self.weight is None else loops.weights(torch.from_numpy(self.weight)).numpy()[order]
        return Edges(self.vertices, src[order], dst[order], weight, columns=self._column_with_loops)

    def _looped_in_files(self, mapped: MappedMemory) -> Edges:
        """Return the edges with self-loops in files. Those of some vertices are made at a time."""
        ends = np.concatenate([np.zeros(1, dtype=np.int64), counted(self.dst, self.vertices).cumsum()])
        most = len(self.src) + self.vertices
        src, dst = (mapped.new(most, torch.int64).numpy() for _ in range(2))
        weight = None if self.weight is None else mapped.new(most).numpy()
        read = [column for column in (src, dst, weight, self.src, self.dst, self.weight) if column is not None]
        first, made = 0, 0
        length = EDGES_READ // 2  # beside both ends there are those with loops, and what sorts them
        while first < self.vertices:
            last = int(np.searchsorted(ends, ends[first] + length, side="right")) - 1
            last = min(self.vertices, max(first + 1, min(last, first + length)))
            to, of, weighs = self._looped_of(range(first, last), slice(int(ends[first]), int(ends[last])))
            some = slice(made, made + len(to))
            dst[some], src[some] = to, of
            if weight is not None:
                weight[some] = weighs
            first, made = last, some.stop
            for column in read:
                give_back(column)
        weight = None if weight is None else weight[:made]
        return Edges(self.vertices, src[:made], dst[:made], weight, columns=self._column_with_loops)

    def _looped_of(self, vertices: range, some: slice) -> tuple[Positions, Positions, NDArray[np.float32] | None]:
        """Return the sorted destinations and sources, and the weights, of the edges into some vertices with self-loops."""
        src, dst = self.src[some], self.dst[some]
        others, own = src != dst, np.arange(vertices.start, vertices.stop)
        to, of = (np.concatenate([column[others], own]) for column in (dst, src))
        if self.weight is None:
            return *sort_ends(to, of, self.vertices), None
        weight, of_loops = self.weight[some], np.ones(len(vertices), dtype=np.float32)
        of_loops[dst[~others] - vertices.start] = weight[~others]  # of several loops, the last stays
        order = np.lexsort((of, to))
        return to[order], of[order], np.concatenate([weight[others], of_loops])[order]

    @cached_property
    def _looped(self) -> tuple[SelfLoops, Positions]:
        """The edges with exactly one self-loop per vertex, and their order by destination, then source."""
        loops = self_loops(torch.from_numpy(np.stack([self.src, self.dst])), self.vertices)
        src, dst = loops.index.numpy()
        return loops, np.lexsort((src, dst))

    def _column_with_loops(self, name: str) -> Tensor:
        """Return a column of the edges with exactly one self-loop per vertex."""
        base, fill = fill_of(name)
        assert fill is not None  # the planner names the value of added loops
        loops, order = self._looped
        return loops.column(self.column(base), torch.from_numpy(self.dst), fill)[torch.from_numpy(order)]

    def turned(self) -> Edges:
        """Return the edges with both ends exchanged, in the order of their new ends. Parallel edges keep their order."""
        order = np.lexsort((self.dst, self.src))
        weight = None if self.weight is None else self.weight[order]
        places = torch.from_numpy(order)
        return Edges(
            self.vertices, self.dst[order], self.src[order], weight, columns=lambda name: self.column(name)[places]
        )

    def of_type(self, number: int) -> Edges:
        """Return the edges of one type, in the order that they have here."""
        order, types = self._by_type
        first, end = np.searchsorted(types, [number, number + 1])
        kept = order[first:end]
        places = kept.numpy()
        weight = None if self.weight is None else self.weight[places]
        data = {name: column[kept] for name, column in self.data.items()}
        return Edges(self.vertices, self.src[places], self.dst[places], weight, data=data)

    @cached_property
    def _by_type(self) -> tuple[Tensor, Positions]:
        """The positions of the edges, sorted by type, and the types in that order. Both are int64 [edges]."""
        types = self.column("edge_type").numpy()
        order = np.argsort(types, kind="stable")  # edges of one type keep their order
        return torch.from_numpy(order), types[order]

    def in_degree(self) -> Tensor:
        """Return the number of in-edges, at least 1. float32 [vertices]."""
        return self.block.in_degree

    def gcn_scale(self) -> Tensor:
        """Return (sum of the in-edges' weights)^-1/2, or 0 if that is not finite. float32 [vertices]."""
        weight = None if self.weight is None else torch.from_numpy(self.weight)
        if self.mapped is None:
            return gcn_scale(torch.from_numpy(self.dst), weight, self.vertices).float()
        sums = torch.zeros(self.vertices, dtype=torch.float64)
        for some in _runs(self.dst):  # the sums have the same terms in the same order
            dst = torch.from_numpy(self.dst[some])
            sums.index_add_(0, dst, torch.ones(len(dst)).double() if weight is None else weight[some].double())
            if self.weight is not None:
                give_back(self.weight)
        return inverse_root(sums).float()


def _runs(array: NDArray[Any]) -> Iterator[slice]:
    """Yield the rows of an array in runs. The pages of a run are given back when the next one is asked for."""
    for start in range(0, len(array), EDGES_READ):
        yield slice(start, start + EDGES_READ)
        give_back(array)


def first_rows(matrix: Tensor, rows: int) -> Tensor:
    """Return the first rows of a CSR matrix, with ones as values. If it has no more rows, return the matrix itself."""
    if matrix.shape[0] == rows:
        return matrix
    ends = matrix.crow_indices()[: rows + 1]
    return sparse_rows(ends, matrix.col_indices()[: int(ends[-1])], matrix.shape[1])


def _in_files(ends: Positions, mapped: MappedMemory) -> Positions:
    return ends if mapped.holds(torch.from_numpy(ends)) else mapped.stored(ends)


class EdgeSets:
    """A graph's edge sets by name. All but the graph's own edges are made at their first use.

    Args:
        graph: The graph's own edges.
        counts: The number of vertices within each level, if a plan has levels.
        mapped: The files for the ends of edges that are made; None: they are in memory.
    """

    def __init__(self, graph: Edges, counts: Sequence[int] = (), mapped: MappedMemory | None = None) -> None:
        self.graph, self._mapped = graph, mapped
        self._made: dict[EdgeSet, Edges] = {"graph": graph}
        self._counts = counts
        self._first: dict[tuple[EdgeSet, int], Edges] = {}

    def __getitem__(self, name: EdgeSet) -> Edges:
        if name not in self._made:
            made = self._new(name)
            if self._mapped is not None:
                made.src, made.dst = _in_files(made.src, self._mapped), _in_files(made.dst, self._mapped)
                made.mapped = self._mapped
            self._made[name] = made
        return self._made[name]

    def _new(self, name: EdgeSet) -> Edges:
        given, relation = as_given(name), relation_of(name)
        if is_reversed(name):
            return self[reversed_set(name)].turned()
        if name != given:
            return self[given].with_self_loops()
        assert relation is not None, "the graph's own edges are made already"
        return self.graph.of_type(relation)

    def within(self, name: EdgeSet, level: int | None) -> Edges:
        """Return the edges that end within a level; None: all edges. They are made once."""
        if level is None:
            return self[name]
        if (name, level) not in self._first:
            self._first[name, level] = self[name].first(self._counts[level])
        return self._first[name, level]
