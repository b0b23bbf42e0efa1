"""The links of a graph: the ends, relation and split of each, and the graph along which messages pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from lotan.errors import GraphError
from lotan.graph.arrays import (
    EdgeColumns,
    GraphArrays,
    Ids,
    VertexColumns,
    assemble,
    places_of,
    positions_of,
    runs,
    some_of,
)
from lotan.graph.faults import EXAMPLES, dangling_edges, fault, shown
from lotan.graph.graph import Graph
from lotan.graph.row_keys import edge_keys, vertex_keys
from lotan.graph.sorted_edges import packed
from lotan.links.splits import DrawnSplits
from lotan.settings.tasks import LinkPrediction
from planner.explain.sizes import counted
from planner.spec import SPLITS

Positions = NDArray[np.int64]

TRAIN = SPLITS.index("train")


@dataclass(frozen=True)
class Links:
    """The links of a graph. Vertices are rows of its arrays, and relations are numbered from 0."""

    vertices: int
    src: Positions  # [links]
    dst: Positions  # [links]
    relation: Positions | None  # [links]; None: the links have no relations
    split: NDArray[np.int8]  # [links], a position in planner.spec.SPLITS, or -1 for none
    names: tuple[int | str, ...] = ()  # the relations as they were given, by their numbers
    both_ways: bool = False  # True if a link is known in both directions

    @property
    def relations(self) -> int:
        """The number of relations; 1 if the links have none."""
        return max(1, len(self.names))

    def of(self, split: str) -> Links:
        """Return the links of a split, in their order."""
        return self._chosen(np.flatnonzero(self.split == SPLITS.index(split)))

    def _chosen(self, rows: Positions) -> Links:
        relation = None if self.relation is None else self.relation[rows]
        return replace(self, src=self.src[rows], dst=self.dst[rows], relation=relation, split=self.split[rows])

    @property
    def digest(self) -> str:
        """A short text that identifies the links and their splits."""
        digest = xxhash.xxh3_64(repr((self.vertices, self.names, self.both_ways)).encode())
        for column in (self.src, self.dst, self.numbers, self.split):
            digest.update(np.ascontiguousarray(column).data.cast("B") if len(column) else b"")
        return f"{len(self):,} links {digest.hexdigest()}"

    def __len__(self) -> int:
        """Return the number of links."""
        return len(self.src)

    @property
    def numbers(self) -> Positions:
        """The relation of each link as a number, 0 if there are none. [links]."""
        return np.zeros(len(self), dtype=np.int64) if self.relation is None else self.relation

    @cached_property
    def destinations(self) -> Known:
        """The destinations that links have, by source and relation."""
        src, dst, numbers = self._both()
        return Known.of(src, numbers, dst, self.relations)

    @cached_property
    def sources(self) -> Known:
        """The sources that links have, by destination and relation."""
        src, dst, numbers = self._both()
        return Known.of(dst, numbers, src, self.relations)

    def _both(self) -> tuple[Positions, Positions, Positions]:
        if not self.both_ways:
            return self.src, self.dst, self.numbers
        ends = np.concatenate([self.src, self.dst]), np.concatenate([self.dst, self.src])
        return *ends, np.concatenate([self.numbers, self.numbers])


@dataclass(frozen=True)
class Known:
    """The vertices that are known to answer a query: a vertex at one end, and a relation."""

    relations: int
    queries: Positions  # the queries, as vertex x relations + relation, ascending [queries]
    first: Positions  # the first answer of each, and the end of all [queries + 1]
    answers: Positions  # vertices, ascending for each query [answers]

    @classmethod
    def of(cls, vertex: Positions, relation: Positions, answer: Positions, relations: int) -> Known:
        """Return the answers of links. Each is there once, however many links are alike."""
        query = vertex * relations + relation
        order = np.lexsort((answer, query))
        query, answer = query[order], answer[order]
        new = np.ones(len(query), dtype=bool)
        new[1:] = (query[1:] != query[:-1]) | (answer[1:] != answer[:-1])
        query, answer = query[new], answer[new]
        queries, first = np.unique(query, return_index=True)
        return cls(relations, queries, np.append(first, len(query)), answer)

    def look_up(self, vertex: Positions, relation: Positions) -> tuple[Positions, Positions]:
        """Return the answers of some queries.

        Args:
            vertex: The vertex of each query. [asked]
            relation: The relation of each query. [asked]

        Returns:
            For each answer the number of its query among those asked, and the vertex. Both [answers].
        """
        query = vertex * self.relations + relation
        places = places_of(self.queries, query)
        counts = np.where(places >= 0, self.first[places + 1] - self.first[places], 0)
        return np.repeat(np.arange(len(query)), counts), self.answers[runs(self.first[places], counts)]


@dataclass(frozen=True)
class LinkGraph:
    """A graph with its links: those of training are its edges, along which messages pass."""

    graph: Graph  # all its vertices are in the training split, because each may be an end of a link or a negative
    links: Links
    ids: Ids  # of the vertices, ascending [vertices]
    types: Positions | None  # the type of each training link as an edge; None: edges have no types [training links]
    # the training links in the order of edges, and the edge at each: see `edges`; None: the edges are in Spark
    edges_of: tuple[Positions, Positions] | None = None

    @cached_property
    def keys_of_training(self) -> NDArray[np.int64]:
        """The keys of the training links, by which an epoch puts them in order. [training links]."""
        keys, training = vertex_keys(self.ids), self.links.of("train")
        return edge_keys(keys[training.src], keys[training.dst], training.numbers)

    def edges(self, training: Positions) -> Positions:
        """Return the edges of some training links, and of their reverses where edges were added.

        Args:
            training: Positions among the training links. [some]
        """
        assert self.edges_of is not None, "the edges are in this process"
        order, first = self.edges_of
        counts = first[training + 1] - first[training]
        return order[runs(first[training], counts)]


def link_graph(graph: Graph, task: LinkPrediction) -> LinkGraph:
    """Return the links of a graph, and the graph without the links of validation and test.

    Raises:
        GraphError: If links have no splits, the same link is in two splits, there are none of training, or the graph has
            several types of vertices.
    """
    vertices, edges = _columns(graph)
    ids = np.sort(vertices.ids, kind="stable")
    return _with_messages(vertices, edges, links_of(ids, edges, graph.undirected, task), graph.undirected)


def links_of(ids: Ids, edges: EdgeColumns, both_ways: bool, task: LinkPrediction) -> Links:
    """Return the links that edges are, with their splits.

    Args:
        ids: The ids of the vertices, ascending. [vertices]
        edges: The edges, with their splits unless the task draws them.
        both_ways: True if a link is known in both directions.
        task: The task.

    Raises:
        GraphError: If links have no splits, the same link is in two splits, or there are none of training.
    """
    if edges.split is None and task.fractions is None:
        raise GraphError(
            "edges.split: there is no such column, and a link task needs to know which links it learns from. Give each edge "
            "'train', 'val' or 'test' there (edge_split for arrays), or let a hash decide: "
            "lotan.LinkPrediction(fractions=(0.05, 0.1))."
        )
    links = _links(ids, edges, both_ways)
    split = edges.split if edges.split is not None else drawn_splits(links, vertex_keys(ids), task)
    links = replace(links, split=split)
    _check_splits(links, ids)
    return links


def links_for_prediction(
    graph: Graph, fractions: tuple[float, float] | None = None, seed: int = 0, names: tuple[int | str, ...] = ()
) -> Graph:
    """Return the graph along which messages pass when a trained model predicts: its links of training, as in training.

    Args:
        graph: The graph. If its edges have no column `split`, all of them carry messages, unless there are fractions.
        fractions: The shares of validation and test that a hash drew in training; None: none.
        seed: The seed of that hash.
        names: The relations of training, by whose numbers those of the graph are types of its edges.

    Raises:
        GraphError: If the graph has several types of vertices, or its relations are of another kind than those of training.
    """
    vertices, edges = _columns(graph)
    ids = np.sort(vertices.ids, kind="stable")
    links = _links(ids, edges, graph.undirected)
    drawn = drawn_splits(links, vertex_keys(ids), LinkPrediction(fractions=fractions or (0.0, 0.0), seed=seed))
    links = replace(links, split=drawn if edges.split is None else edges.split)
    if links.relation is not None and edges.relation is not None:
        numbered = {name: number for number, name in enumerate(numbered_as_trained(links.names, names))}
        numbers = np.array([numbered[name] for name in links.names], dtype=np.int64)
        links = replace(links, relation=numbers[links.relation], names=tuple(numbered))
    return _with_messages(vertices, edges, links, graph.undirected).graph


def numbered_as_trained(found: tuple[int | str, ...], names: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return the relations of training, and after them those that only a graph for prediction has.

    Args:
        found: The relations of that graph, ascending.
        names: The relations of training; empty: links had none.

    Raises:
        GraphError: If some are texts and others integers.
    """
    if found and names and isinstance(found[0], str) != isinstance(names[0], str):
        given, expected = ("texts" if isinstance(one[0], str) else "integers" for one in (found, names))
        raise fault("edges", "relation", f"holds {given}, and the relations of training were {expected}", "Cast it.")
    return (*names, *(name for name in found if name not in names))


def known_links(graph: Graph, names: tuple[int | str, ...]) -> Links:
    """Return all links of a graph, with relations numbered as in training. Links of other relations are left out.

    Args:
        graph: The graph.
        names: The relations of training; empty: links had none.

    Raises:
        GraphError: If links had relations in training, and those of the graph have none.
    """
    require_one_type(graph)
    in_spark = graph.origin == "spark"
    edges = graph.links_in_spark() if in_spark else graph.linked_columns()[1]
    links = _links(graph.ids, edges, graph.undirected)
    if not names:
        return replace(links, relation=None, names=())
    if links.relation is None and len(links):
        raise GraphError(
            "edges.relation: there is no such column, so it is not known which links of the graph answer a query. Give the "
            "edges the relations of training, or leave exclude_known out."
        )
    numbers = {name: number for number, name in enumerate(names)}
    of_names = np.array([numbers.get(name, -1) for name in links.names] or [-1], dtype=np.int64)
    relation = of_names[links.numbers]
    return replace(links, relation=relation, names=names)._chosen(np.flatnonzero(relation >= 0))


def _columns(graph: Graph) -> tuple[VertexColumns, EdgeColumns]:
    require_one_type(graph)
    return graph.linked_columns()


def require_one_type(graph: Graph) -> None:
    """Check that the vertices of a graph of links have one type.

    Raises:
        GraphError: If they have several.
    """
    if graph.vertex_types is not None:
        raise GraphError(
            f"The graph has several types of vertices ({', '.join(graph.vertex_types.names)}), and links are predicted on graphs "
            "of one type so far: give the vertices in one table, and the kinds of links as the edges' column `relation`."
        )


def _links(ids: Ids, edges: EdgeColumns, both_ways: bool) -> Links:
    src, dst = (
        positions_of(ids, ends) if len(ends) else np.zeros(0, dtype=np.int64) for ends in (edges.src, edges.dst)
    )
    dangling = np.flatnonzero((src < 0) | (dst < 0))
    if len(dangling):
        raise dangling_edges(len(dangling), [(edges.src[row], edges.dst[row]) for row in dangling[:EXAMPLES]])
    given = edges.relation if edges.relation is not None else edges.edge_type
    split = np.full(len(src), -1, dtype=np.int8)
    if given is None:
        return Links(len(ids), src, dst, None, split, both_ways=both_ways)
    names, numbers = np.unique(given, return_inverse=True)
    return Links(len(ids), src, dst, numbers.astype(np.int64), split, tuple(names.tolist()), both_ways)


def drawn_splits(links: Links, keys: NDArray[np.int64], task: LinkPrediction) -> NDArray[np.int8]:
    """Return the splits that a hash draws. Links between the same two vertices are in the same split. int8 [links].

    Args:
        links: The links.
        keys: The row keys of the vertices. [vertices]
        task: The task, with its fractions and its seed.
    """
    return DrawnSplits(task.shares or (0.0, 0.0), task.seed)(keys[links.src], keys[links.dst])


def _check_splits(links: Links, ids: Ids) -> None:
    if not (links.split == TRAIN).any():
        raise GraphError("edges.split: no link is of split 'train'. Give some, which the model learns from.")
    used = links._chosen(np.flatnonzero(links.split >= 0))
    src, dst = used.src, used.dst
    if links.both_ways:
        src, dst = np.minimum(used.src, used.dst), np.maximum(used.src, used.dst)
    order = np.lexsort((used.split, used.numbers, dst, src))
    same = np.ones(max(0, len(order) - 1), dtype=bool)
    for column in (src, dst, used.numbers):
        same &= column[order[1:]] == column[order[:-1]]
    twice = np.flatnonzero(same & (used.split[order[1:]] != used.split[order[:-1]]))
    if len(twice):
        one, other = order[twice[0]], order[twice[0] + 1]
        relation = "" if links.relation is None else f", relation {links.names[used.numbers[one]]!r}"
        raise GraphError(
            f"edges.split: {counted(len(twice), 'link')} in two splits (for example {shown(ids[used.src[one]])} -> "
            f"{shown(ids[used.dst[one]])}{relation}: {SPLITS[used.split[one]]!r} and {SPLITS[used.split[other]]!r}). Keep one of "
            "them: the model would be asked what it has seen."
        )


def _with_messages(vertices: VertexColumns, edges: EdgeColumns, links: Links, undirected: bool) -> LinkGraph:
    """Return the graph whose edges are the training links. Relations are the types of its edges, if it has no others."""
    rows = np.flatnonzero(links.split == TRAIN)
    types = edges.edge_type if edges.edge_type is not None else links.relation
    kept = EdgeColumns(
        edges.src[rows],
        edges.dst[rows],
        weight=some_of(edges.weight, rows),
        edge_attr=some_of(edges.edge_attr, rows),
        edge_type=some_of(types, rows),
        flat=edges.flat,
    )
    arrays = assemble(replace(vertices, split=np.full(len(vertices.ids), -1, dtype=np.int8)), kept, undirected)
    graph = Graph.of_arrays(replace(arrays, split=np.zeros(len(arrays.ids), dtype=np.int8)))
    training, of_links = links._chosen(rows), some_of(types, rows)
    return LinkGraph(graph, links, graph.arrays().ids, of_links, edges_of_links(training, of_links, graph.arrays()))


def edges_of_links(training: Links, types: NDArray[Any] | None, arrays: GraphArrays) -> tuple[Positions, Positions]:
    """Return the edges that each training link stands for: those alike, and their reverses if these were added.

    Args:
        training: The links.
        types: The type of each as an edge; None: edges have no types. [links]
        arrays: The graph of the messages.

    Returns:
        The positions of edges, those of one link after those of another; and the first of each link, and the end of all.
    """
    count = len(training)
    edges = arrays.dst, arrays.src, np.zeros_like(arrays.src) if arrays.edge_type is None else arrays.edge_type
    of_links = np.zeros(count, dtype=np.int64) if types is None else types
    asked = [(training.dst, training.src, of_links)]
    if training.both_ways:
        asked.append((training.src, training.dst, of_links))
    of_edges, *wanted = _numbered(edges, *asked)
    order = np.argsort(of_edges, kind="stable")
    placed = of_edges[order]
    found, owners = [], []
    for numbers in wanted:
        first = np.searchsorted(placed, numbers)
        counts = np.searchsorted(placed, numbers, side="right") - first
        found.append(order[runs(first, counts)])
        owners.append(np.repeat(np.arange(count), counts))
    owner = np.concatenate(owners)
    turn = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=count)
    return np.concatenate(found)[turn], np.concatenate([[0], counts.cumsum()])


def _numbered(*tables: tuple[Positions, ...]) -> list[Positions]:
    """Return a number for each row of several tables. Equal rows, in whichever table, have the same number.

    Rows hold no negative numbers. If one number has room for all of a row, the numbers ascend as the rows do.
    """
    sizes = [max(int(one.max(initial=0)) for one in column) + 1 for column in zip(*tables, strict=True)]
    found = [packed(table, sizes) for table in tables]
    if found[0] is not None:
        return [one for one in found if one is not None]
    columns = [np.concatenate(column) for column in zip(*tables, strict=True)]
    order = np.lexsort(columns)
    new = np.zeros(len(order), dtype=np.int64)
    for column in columns:
        new[1:] |= column[order[1:]] != column[order[:-1]]
    numbers = np.empty_like(new)
    numbers[order] = new.cumsum()
    return np.split(numbers, np.cumsum([len(table[0]) for table in tables])[:-1])


def relation_numbers(names: tuple[int | str, ...], given: NDArray[Any]) -> Positions:
    """Return the numbers of relations by their names.

    Raises:
        GraphError: If a relation was not there in training. The error says how many, and names some.
    """
    known = {name: number for number, name in enumerate(names)}
    numbers = [known.get(value, -1) for value in given.tolist()]
    unknown = Counter(value for value, number in zip(given.tolist(), numbers, strict=True) if number < 0)
    if unknown:
        shown = ", ".join(repr(value) for value, _ in unknown.most_common(EXAMPLES))
        raise GraphError(
            f"relation: {sum(unknown.values()):,} rows name relations that were not there in training (for example {shown}). "
            f"Give those of the {len(names)} that were, such as {names[0]!r}."
        )
    return np.array(numbers, dtype=np.int64)
