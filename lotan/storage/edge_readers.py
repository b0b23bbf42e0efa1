"""Reads the edges of a graph part by part, as they are written into partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from lotan.errors import GraphError
from lotan.graph import faults
from lotan.graph.arrays import EdgeColumns, GraphArrays, Ids, Positions, Types, finder
from lotan.graph.edges_in_files import PART_EDGES
from lotan.graph.faults import EXAMPLES, dangling_edges
from lotan.graph.graph import Graph
from lotan.graph.link_parts import LinkParts, relation_of
from lotan.graph.row_keys import edge_keys, vertex_keys
from lotan.links.examples import TRAIN, Links, drawn_splits
from lotan.memory.mapped import parts
from lotan.settings.tasks import LinkPrediction
from lotan.validation import complaints
from planner.scratch import NUMBER_BYTES
from planner.spec import SPLITS

MOST_VERTICES = 2**31 - 1

ENDS, OTHER = 12, 16
"""The bytes of a training link without numbers, and of a link of another split."""

Numbers = npt.NDArray[np.float32]


def record_bytes(numbers: int) -> int:
    """Return the bytes of a training link on the disk, with so many numbers."""
    return ENDS + NUMBER_BYTES * numbers


@dataclass(frozen=True)
class Summary:
    """The sizes and the relations of a graph, as one pass over its links tells them."""

    vertices: int
    training: int  # the number of training links
    validation: int
    test: int
    names: tuple[int | str, ...]  # the relations as they were given, by their numbers; empty: links have none
    digest: str  # of the ids and the links, in whichever order these are
    both_ways: bool = False  # True if a link is known in both directions
    weighted: bool = False  # True if a training link has a weight
    attributes: int | None = None  # the number of its attributes; None: it has none
    flat: bool = False  # True if they were given as one number for each link

    @property
    def numbers(self) -> int:
        """How many numbers a training link has: its weight, and its attributes."""
        return self.weighted + (self.attributes or 0)

    @property
    def record_bytes(self) -> int:
        """The bytes of a training link on the disk."""
        return record_bytes(self.numbers)

    @property
    def others(self) -> int:
        """The number of links of validation and test."""
        return self.validation + self.test


@dataclass(frozen=True)
class Part:
    """Some edges of a graph, between rows."""

    links: Links
    numbers: Numbers  # the weight of each edge if it has one, and its attributes [edges, numbers]


class Reader(Protocol):
    """A source of edges, as partitions are written from it."""

    ids: Ids  # of the vertices, ascending

    def parts(self, relations: dict[int | str, int]) -> Iterator[Part]:
        """Yield the edges between rows, with their splits, see `LinkReader.parts`."""


class LinkReader:
    """Reads the links of a graph part by part, with both ends as rows, and checks them.

    Args:
        graph: The graph.
        task: The task, with the fractions of links that are validation and test if edges have no splits.

    Raises:
        GraphError: If the graph is of a kind that is not stored in partitions so far.
    """

    def __init__(self, graph: Graph, task: LinkPrediction) -> None:
        if graph.vertex_types is not None:
            raise GraphError(
                "The graph has several types of vertices, and such graphs are not stored in partitions so far. Train it in "
                "memory: leave order out."
            )
        self._both_ways = graph.undirected
        parts: LinkParts = graph.link_parts(PART_EDGES)
        self.ids, self._parts, self._task = parts.ids, parts, task
        self.typed = parts.typed
        self.negative: tuple[int, Any, Any, float] | None = None
        """The number of negative weights that `summary` has seen, and the ends and the weight of the first one."""
        if len(self.ids) > MOST_VERTICES:
            raise GraphError(
                f"The graph has {len(self.ids):,} vertices; expected at most {MOST_VERTICES:,}. Leave some out."
            )
        self.keys = vertex_keys(self.ids)
        self._find = finder(self.ids)

    def parts(self, relations: dict[int | str, int]) -> Iterator[Part]:
        """Yield the links as rows, with their splits. Relations without a number get the next one.

        Args:
            relations: The numbers of relations, by how they were given. New ones are added.

        Raises:
            GraphError: If an end is no vertex, or links have no splits.
        """
        for edges in self._parts.parts():
            src, dst = self._find(edges.src), self._find(edges.dst)
            dangling = np.flatnonzero((src < 0) | (dst < 0))
            if len(dangling):
                raise dangling_edges(len(dangling), [(edges.src[one], edges.dst[one]) for one in dangling[:EXAMPLES]])
            relation = _numbered(edges, relations)
            links = Links(len(self.ids), src, dst, relation, np.full(len(src), TRAIN, dtype=np.int8))
            yield Part(replace(links, split=self._splits(edges, links)), _numbers(edges))

    def _splits(self, edges: EdgeColumns, links: Links) -> npt.NDArray[np.int8]:
        if edges.split is not None:
            return edges.split
        if self._task.fractions is None:
            raise GraphError(
                "edges.split: there is no such column, and a link task needs to know which links it learns from. Give each edge "
                "'train', 'val' or 'test' there, or let a hash decide: lotan.LinkPrediction(fractions=(0.05, 0.1))."
            )
        return drawn_splits(links, self.keys, self._task)

    def summary(self) -> Summary:
        """Return what one pass over all links tells.

        Raises:
            GraphError: If an end is no vertex, links have no splits, none is for training, or a weight or an attribute is
                not finite.
        """
        self.negative = None
        relations: dict[int | str, int] = {}
        width: int | None = None  # the weight and the attributes of a link
        digest = xxhash.xxh3_64(np.ascontiguousarray(self.keys).data.cast("B"))
        total, counts = 0, np.zeros(len(SPLITS), dtype=np.int64)
        for part in self.parts(relations):
            links = part.links
            width = self._check(part, width)
            counts += np.bincount(links.split[links.split >= 0], minlength=len(SPLITS))
            given = vertex_keys(np.array(list(map(str, relations)) or ["-"], dtype=object))[links.numbers]
            words = edge_keys(self.keys[links.src], self.keys[links.dst], given + links.split)
            for column in part.numbers.T:
                bits = np.ascontiguousarray(column).view(np.int32).astype(np.int64)
                words = edge_keys(words, bits, np.zeros_like(bits))
            total = (total + int(words.view(np.uint64).sum(dtype=np.uint64))) % 2**64
        if not counts[TRAIN]:
            raise GraphError("edges.split: no link is of split 'train'. Give some, which the model learns from.")
        digest.update(f"{total} {counts.tolist()}".encode())
        return Summary(
            vertices=len(self.ids),
            training=int(counts[TRAIN]),
            validation=int(counts[SPLITS.index("val")]),
            test=int(counts[SPLITS.index("test")]),
            names=_sorted(relations),
            digest=digest.hexdigest(),
            both_ways=self._both_ways,
            weighted=self._parts.weighted,
            attributes=(width or 0) - self._parts.weighted if self._parts.attributed else None,
            flat=self._parts.flat,
        )

    def _check(self, part: Part, width: int | None) -> int:
        """Check weights and attributes. Return how many numbers a link has.

        Args:
            part: The links.
            width: The numbers of a link in the parts before; None: there are none.
        """
        numbers, links = part.numbers, part.links
        found: int = numbers.shape[1]

        def ends(row: int) -> tuple[Any, Any]:
            return self.ids[links.src[row]], self.ids[links.dst[row]]

        weighted = int(self._parts.weighted)
        if width is not None and found != width:
            src, dst = ends(0)
            longest = max(found, width) - weighted
            raise faults.ragged("edge_attr", len(links), longest, f"{src!r} -> {dst!r}", "edges")
        bad = np.flatnonzero(~np.isfinite(numbers[:, :weighted]).all(axis=1))
        if len(bad):
            raise complaints.bad_weights(len(bad), *ends(bad[0]), numbers[bad[0], 0], negative=False)
        bad = np.flatnonzero(~np.isfinite(numbers[:, weighted:]).all(axis=1))
        if len(bad):
            raise complaints.attributes_not_finite(len(bad), *ends(bad[0]), numbers[bad[0], weighted:].tolist())
        if weighted and (negative := np.flatnonzero(numbers[:, 0] < 0)).size:
            count, *first = self.negative or (0, *ends(int(negative[0])), float(numbers[negative[0], 0]))
            self.negative = (count + len(negative), *first)
        return found


class EdgeReader:
    """Reads the edges of a graph whose vertices are the examples. All edges carry messages, and none has a split.

    Args:
        arrays: The graph, whose ends of edges may lie in files.
    """

    def __init__(self, arrays: GraphArrays) -> None:
        self.ids, self._arrays = arrays.ids, arrays

    def parts(self, relations: dict[int | str, int]) -> Iterator[Part]:
        """Yield the edges between rows, part by part. Their types are relations."""
        for edges in self._arrays.edges.parts(PART_EDGES):
            split = np.full(len(edges.src), TRAIN, dtype=np.int8)
            links = Links(len(self.ids), edges.src, edges.dst, _numbered(edges, relations), split)
            yield Part(links, _numbers(edges))

    def summary(self, digest: str) -> Summary:
        """Return the sizes of the graph.

        Args:
            digest: A text that identifies its content.
        """
        types, data = self._arrays.edge_type, self._arrays.edge_data
        return Summary(
            vertices=len(self.ids),
            training=len(self._arrays.src),
            validation=0,
            test=0,
            names=() if types is None else tuple(_distinct(types).tolist()),
            digest=digest,
            weighted=self._arrays.weight is not None,
            attributes=data.width,
            flat=data.flat,
        )


def _numbers(edges: EdgeColumns) -> Numbers:
    """Return the weight and the attributes of each edge, side by side. [edges, numbers]."""
    columns = [] if edges.weight is None else [edges.weight[:, None]]
    columns += [] if edges.edge_attr is None else [edges.edge_attr]
    nothing = np.zeros((len(edges.src), 0), dtype=np.float32)
    return np.concatenate([nothing, *columns], axis=1, dtype=np.float32)


def _distinct(numbers: Types) -> Types:
    """Return the distinct numbers, ascending. Those that lie in a file are read part by part."""
    found = numbers[:0]
    for some in parts(numbers):
        found = np.union1d(found, numbers[some])
    return found


def _numbered(edges: EdgeColumns, relations: dict[int | str, int]) -> Positions | None:
    given = relation_of(edges)
    if given is None:
        return None
    names, places = np.unique(given, return_inverse=True)
    of_names = [relations.setdefault(name, len(relations)) for name in names.tolist()]
    found: Positions = np.array(of_names, dtype=np.int64)[places]
    return found


def _sorted(relations: dict[int | str, int]) -> tuple[int | str, ...]:
    return tuple(np.unique(np.array(list(relations), dtype=object)).tolist()) if relations else ()
