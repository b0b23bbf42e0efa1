"""A graph as sorted numpy arrays, whose edges name vertices by position. The local engine reads this form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from lotan.graph.faults import EXAMPLES, dangling_edges, doubled_ids, no_vertices
from lotan.graph.given_labels import GivenLabels, settle
from lotan.graph.row_keys import vertex_keys
from lotan.graph.sorted_edges import packed, sort_ends
from lotan.memory.mapped import MappedMemory, give_back, parts
from planner.chunks import EDGES_READ
from planner.degrees import Degrees
from planner.edge_columns import EdgeData
from planner.loss import Task
from planner.spec import SPLITS
from planner.statistics import Profile, Statistics

AnyType = TypeVar("AnyType", bound=np.generic)

Ids = npt.NDArray[Any]
Positions = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]
Attributes = npt.NDArray[np.float32]
Types = npt.NDArray[np.int64]


@dataclass(frozen=True)
class VertexColumns:
    """The columns of the vertices as they were given: in any order, and not yet checked for doubled ids."""

    ids: Ids  # [vertices], an integer dtype, or object holding str
    features: npt.NDArray[np.float32]  # [vertices, width]
    label: GivenLabels
    split: npt.NDArray[np.int8]  # [vertices], -1 = none, else the position in planner.spec.SPLITS
    weight: Weights | None = None  # [vertices], in the loss


@dataclass(frozen=True)
class EdgeColumns:
    """Edges as they were given, with the ids of their ends."""

    src: Ids  # [edges]
    dst: Ids  # [edges]
    weight: Weights | None  # [edges]
    edge_attr: Attributes | None = None  # [edges, width]
    edge_type: Types | None = None  # [edges]
    flat: bool = False  # True if attributes were given as one number for each edge, [edges]
    # what link tasks read: -1 = none, else the position in planner.spec.SPLITS, int8 [edges]
    split: npt.NDArray[np.int8] | None = None
    relation: npt.NDArray[Any] | None = None  # [edges], int64, or object holding str

    def parts(self, rows: int = EDGES_READ) -> Iterator[EdgeColumns]:
        """Yield the edges, some at a time. The pages of those that lie in files are given back when the next are asked for.

        Args:
            rows: the edges of a part, at most.
        """
        columns = self.weight, self.edge_attr, self.edge_type, self.split, self.relation
        for start in range(0, max(1, len(self.src)), rows):
            some = slice(start, start + rows)
            weight, attributes, types, split, relation = (some_of(column, some) for column in columns)
            yield EdgeColumns(self.src[some], self.dst[some], weight, attributes, types, self.flat, split, relation)
            for column in (self.src, self.dst, *columns):
                if column is not None:
                    give_back(column)


@dataclass(frozen=True)
class GraphArrays:
    """A graph in memory. Vertices are sorted by id.

    Edges are sorted by destination, then source, then weight, then type, then attributes one after the other.
    """

    ids: Ids  # [vertices], as given: an integer dtype, or object holding str
    features: npt.NDArray[np.float32]  # [vertices, width]
    label: npt.NDArray[Any]  # int64 [vertices], -1 = none; or float32 [vertices, targets], NaN = none
    split: npt.NDArray[np.int8]  # [vertices], -1 = none, else the position in planner.spec.SPLITS
    src: Positions  # [edges], rows of the vertex arrays
    dst: Positions  # [edges]
    weight: Weights | None  # [edges]
    edge_attr: Attributes | None = None  # [edges, width]
    edge_type: Types | None = None  # [edges]
    classes: tuple[str, ...] = ()  # the texts that stand for classes 0, 1, ...; empty if labels are numbers
    flat: bool = False  # True if attributes were given as one number for each edge, [edges]
    vertex_weight: Weights | None = None  # [vertices], in the loss

    @cached_property
    def keys(self) -> npt.NDArray[np.int64]:
        """The row keys of the vertices (`lotan.graph.row_keys`), int64 [vertices]."""
        return vertex_keys(self.ids)

    @cached_property
    def statistics(self) -> Statistics:
        """The sizes and degrees that the Planner needs."""
        return Statistics(
            vertices=len(self.ids),
            edges=len(self.src),
            width=self.features.shape[1],
            self_loops=sum(int(np.count_nonzero(part.src == part.dst)) for part in self.edges.parts()),
            weighted=self.weight is not None,
            training=len(self.rows_of("train")),
            evaluated=int(np.count_nonzero(self.split >= 0)),
            profile=self._profile(),
            edge_data=self.edge_data,
        )

    @property
    def edges(self) -> EdgeColumns:
        """The edges, with rows as ends."""
        return EdgeColumns(self.src, self.dst, self.weight, self.edge_attr, self.edge_type, self.flat)

    @property
    def edge_data(self) -> EdgeData:
        """The columns that edges have besides the weight."""
        width = None if self.edge_attr is None else self.edge_attr.shape[1]
        return EdgeData(width, self.edge_type is not None, self.flat)

    def _profile(self) -> Profile:
        out, into = (counted(ends, len(self.ids)) for ends in (self.src, self.dst))
        return Profile(
            out_degrees=_in_classes(out),
            in_degrees=_in_classes(into),
            density=sum(int(np.count_nonzero(self.features[some])) for some in parts(self.features))
            / max(1, self.features.size),
            in_edges=tuple(np.bincount(np.frexp(out)[1], weights=into).astype(int).tolist()),
        )

    def rows_of(self, split: str) -> Positions:
        """Return the positions of the vertices of a split, which is "train", "val" or "test"."""
        return np.flatnonzero(self.split == SPLITS.index(split))


def counted(ends: Positions, vertices: int) -> Positions:
    """Return how often each vertex is an end. Ends that lie in a file are read part by part.

    Args:
        ends: one end of each edge, as positions of vertices [edges].
        vertices: number of vertices.
    """
    found = np.zeros(vertices, dtype=np.int64)
    for some in parts(ends):
        found += np.bincount(ends[some], minlength=vertices)
    return found


def degrees(ends: Positions, vertices: int) -> Degrees:
    """Return the degrees of all vertices, in classes.

    Args:
        ends: one end of each edge, as positions of vertices [edges].
        vertices: number of vertices.
    """
    return _in_classes(np.bincount(ends, minlength=vertices))


def _in_classes(counts: Positions) -> Degrees:
    """Return the degrees in classes. `counts` has each vertex's degree, [vertices]."""
    classes = np.frexp(counts)[1]  # the number of bits of a degree, 0 for degree 0
    of_class = np.bincount(classes), np.bincount(classes, weights=counts)
    rows = ((number, int(of_class[0][number]), int(of_class[1][number])) for number in range(1, len(of_class[0])))
    return Degrees.of_classes(rows, len(counts))


def assemble(
    vertices: VertexColumns, edges: EdgeColumns, undirected: bool = False, task: Task | None = None
) -> GraphArrays:
    """Sort vertices and edges, replace the ids of edges by positions, and make classes or targets of the labels.

    Args:
        vertices: the vertices as they were given.
        edges: the edges as they were given.
        undirected: if True, missing reverses of edges are added (default: False).
        task: the user's task, which says what labels are; None if labels are to tell (default: None).

    Raises:
        GraphError: there are no vertices, an id occurs twice, an edge's end is no vertex, or labels do not fit the task.
    """
    return assembled(vertices, lambda ids: _sorted(ids, edges, undirected), task)


def assembled(
    vertices: VertexColumns,
    edges: Callable[[Ids], EdgeColumns],
    task: Task | None = None,
    mapped: MappedMemory | None = None,
) -> GraphArrays:
    """Return the arrays of a graph, with sorted vertices.

    Args:
        vertices: the vertices as they were given.
        edges: a function from the ids, ascending, to the edges, which are sorted and have rows as ends.
        task: as for `assemble` (default: None).
        mapped: files, in which the features shall lie; None: they lie in memory (default: None).

    Raises:
        EngineError: the disk is full.
        GraphError: as `assemble`.
    """
    if len(vertices.ids) == 0:
        raise no_vertices()
    order = order_of_ids(vertices.ids)
    settled = settle(vertices.label, task, vertices.ids)
    ids = _own(vertices.ids[order])
    placed = edges(ids)
    if mapped is None or isinstance(order, slice):
        features = vertices.features[order]
    else:
        features = mapped.stored(vertices.features, order)
    return GraphArrays(
        ids=ids,
        features=features,
        label=_own(settled.label[order]),
        split=_own(vertices.split[order]),
        src=placed.src,
        dst=placed.dst,
        weight=placed.weight,
        edge_attr=placed.edge_attr,
        edge_type=placed.edge_type,
        classes=settled.classes,
        flat=placed.flat,
        vertex_weight=None if vertices.weight is None else _own(vertices.weight[order]),
    )


def _sorted(ids: Ids, edges: EdgeColumns, undirected: bool) -> EdgeColumns:
    """Return edges with rows as ends, sorted by destination, then source, then what they have beside their ends."""
    src, dst = _find_ends(ids, edges)
    columns: list[Any] = [edges.weight, edges.edge_attr, edges.edge_type]
    if undirected:
        src, dst, missing = add_reverses(src, dst, len(ids))
        columns = [None if column is None else np.concatenate([column, column[missing]]) for column in columns]
    weight, attributes, types = columns
    return sort_edges(EdgeColumns(src, dst, weight, attributes, types, edges.flat), len(ids))


def sort_edges(edges: EdgeColumns, vertices: int, alike_in_order: bool = False) -> EdgeColumns:
    """Return edges by destination, then source, then weight, then type, then attributes, without splits and relations.

    Args:
        edges: the edges, with rows as ends.
        vertices: the number of vertices.
        alike_in_order: True if parallel edges are in this order already (default: False).
    """
    src, dst, weight, attributes, types = edges.src, edges.dst, edges.weight, edges.edge_attr, edges.edge_type
    keys = None
    if weight is None and attributes is None:
        if types is None:
            dst, src = sort_ends(dst, src, vertices)
            return EdgeColumns(src, dst, None, flat=edges.flat)
        if types.min(initial=0) >= 0:
            keys = packed((dst, src, types), (vertices, vertices, int(types.max(initial=0)) + 1))
    if keys is None:
        order = np.lexsort((*([] if alike_in_order else edge_order(weight, attributes, types)), src, dst))
    else:
        order = np.argsort(keys)  # in any way, for edges that are alike have nothing that tells them apart
    beside = some_of(weight, order), some_of(attributes, order), some_of(types, order)
    return EdgeColumns(src[order], dst[order], *beside, flat=edges.flat)


def some_of(column: npt.NDArray[AnyType] | None, rows: slice | Positions) -> npt.NDArray[AnyType] | None:
    """Return some rows of a column that a graph may lack.

    Args:
        column: the column, or None.
        rows: the rows, as a slice or as positions.
    """
    return None if column is None else column[rows]


def with_reverses(ids: Ids, edges: EdgeColumns, undirected: bool) -> EdgeColumns:
    """Return edges as they were given, followed by missing reverses with the columns of their edges if `undirected` adds them.

    Args:
        ids: the ids of the vertices, ascending.
        edges: the edges.
        undirected: if False, the edges are returned as they are.
    """
    if not undirected:
        return edges
    src, dst, missing = add_reverses(*_find_ends(ids, edges), len(ids))
    names = ("weight", "edge_attr", "edge_type", "split", "relation")
    given = {name: getattr(edges, name) for name in names}
    every = {name: None if one is None else np.concatenate([one, one[missing]]) for name, one in given.items()}
    return EdgeColumns(ids[src], ids[dst], flat=edges.flat, **every)


def as_given(graph: GraphArrays) -> tuple[VertexColumns, EdgeColumns]:
    """Return the columns of which `assemble` makes these arrays: with ids in place of positions."""
    label = graph.label
    missing = label == -1 if label.ndim == 1 else np.isnan(label).all(axis=1)
    vertices = VertexColumns(graph.ids, graph.features, GivenLabels(label, missing), graph.split, graph.vertex_weight)
    ends = graph.ids[graph.src], graph.ids[graph.dst]
    return vertices, EdgeColumns(*ends, graph.weight, graph.edge_attr, graph.edge_type, graph.flat)


def edge_order(
    weight: Weights | None, attributes: Attributes | None, types: Types | None
) -> list[npt.NDArray[np.generic]]:
    """Return the keys by which parallel edges are sorted, for `np.lexsort`: the last key counts first.

    Args:
        weight: weights [edges], or None.
        attributes: attributes [edges, width], or None.
        types: types [edges], or None.
    """
    of_attributes = [] if attributes is None else list(attributes.T[::-1])
    return [*of_attributes, *(key for key in (types, weight) if key is not None)]


def order_of_ids(ids: Ids) -> Positions | slice:
    """Return the order that sorts ids. If they are sorted already it is a slice, which copies nothing."""
    if len(ids) < 2 or bool(np.all(ids[1:] > ids[:-1])):
        return slice(None)
    order = np.argsort(ids, kind="stable")
    ranked = ids[order]
    doubled = ranked[1:][ranked[1:] == ranked[:-1]]
    if len(doubled):
        distinct = np.unique(doubled)
        raise doubled_ids(len(distinct), distinct[:EXAMPLES].tolist())
    return order


def _own(array: npt.NDArray[AnyType]) -> npt.NDArray[AnyType]:
    """Return the array, or a copy if it is a view, for example of a DataFrame's column that the user may write to."""
    return array if array.base is None else array.copy()


def _find_ends(ids: Ids, edges: EdgeColumns) -> tuple[Positions, Positions]:
    src, dst = (positions_of(ids, ends) for ends in (edges.src, edges.dst))
    dangling = np.flatnonzero((src < 0) | (dst < 0))
    if len(dangling):
        raise dangling_edges(len(dangling), [(edges.src[row], edges.dst[row]) for row in dangling[:EXAMPLES]])
    return src, dst


def positions_of(ids: Ids, ends: Ids) -> Positions:
    """Return the position of each end among the ids, or -1 for an end that is not among them.

    >>> positions_of(np.array([7, 3]), np.array([3, 7, 5])).tolist()
    [1, 0, -1]
    """
    return finder(ids)(ends)


def finder(ids: Ids) -> Callable[[Ids], Positions]:
    """Return a function that maps ends to positions as `positions_of` does, for many calls with the same ids."""
    count = len(ids)
    numbered = ids.dtype.kind == "i" and count > 0 and ids[0] == 0 and ids[-1] == count - 1
    numbered = numbered and bool(np.all(ids[1:] > ids[:-1]))
    index: Any = None

    def find(ends: Ids) -> Positions:
        nonlocal index
        if numbered and ends.dtype.kind == "i":
            return np.where((ends < 0) | (ends >= count), -1, ends).astype(np.int64, copy=False)
        import pandas as pd  # not at the top: it takes a third of a second, which numbered vertices spare

        index = pd.Index(ids) if index is None else index
        found: Positions = index.get_indexer(ends).astype(np.int64, copy=False)
        return found

    return find


def places_of(ascending: Positions, asked: Positions) -> Positions:
    """Return the place of each number among ascending ones, or -1 for a number that is not among them.

    >>> places_of(np.array([2, 5, 9]), np.array([5, 1, 12])).tolist()
    [1, -1, -1]
    """
    if not len(ascending):
        return np.full(len(asked), -1)
    places = np.minimum(np.searchsorted(ascending, asked), len(ascending) - 1)
    return np.where(ascending[places] == asked, places, -1)


def runs(first: Positions, lengths: Positions) -> Positions:
    """Return the numbers first, first + 1, ... of each run, one run after the other.

    >>> runs(np.array([5, 0, 9]), np.array([2, 0, 3])).tolist()
    [5, 6, 9, 10, 11]
    """
    ends = lengths.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(first - (ends - lengths), lengths)


def add_reverses(src: Positions, dst: Positions, vertices: int) -> tuple[Positions, Positions, Positions]:
    """Add (dst, src) for every edge whose reverse is not in the graph yet.

    A self-loop therefore gains no reverse, and each of several parallel edges gains one.

    Returns:
        The sources and destinations of all edges, and the positions of the edges whose reverses were added at the end.
    """
    missing = np.flatnonzero(~np.isin(dst * vertices + src, src * vertices + dst))
    return np.concatenate([src, dst[missing]]), np.concatenate([dst, src[missing]]), missing
