"""Random graphs with skewed degrees and planted classes, drawn block by block: they may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lotan.errors import ConfigurationError

HOMOPHILY = 0.7  # share of the edges whose ends are drawn from one class
POWER = 5  # the vertex of rank r is drawn as an edge's end in proportion to (r + 1) ** (1 / POWER - 1), so -0.8
SIGNAL = 2.5  # length of a class's centre, in standard deviations of a feature around it
SPLIT_SHARES = (0.54, 0.18)  # shares of the training and the validation vertices; the rest are test vertices

VERTEX_NUMBERS = 1 << 23  # features of a block: 32 MB
EDGE_ROWS = 1 << 20  # edges of a block

_PLACES, _POINTS, _VERTICES, _EDGES = range(4)  # the purposes of random numbers; each has a stream of its own


class VertexBlock(NamedTuple):
    """A block of consecutive vertices."""

    ids: npt.NDArray[np.int64]
    features: npt.NDArray[np.float32]  # [vertices, width]
    label: npt.NDArray[np.int64]
    split: npt.NDArray[np.int8]  # 0 train, 1 val, 2 test


class EdgeBlock(NamedTuple):
    """A block of edges, in no particular order."""

    src: npt.NDArray[np.int64]
    dst: npt.NDArray[np.int64]


@dataclass(frozen=True)
class PlantedGraph:
    """The description of a random graph. The defaults have the size of ogbn-arxiv, a common benchmark graph of citations.

    Both ends of an edge are drawn by popularity, which follows a power law. With probability `HOMOPHILY`, the source is
    drawn from the class of the destination. Features are normally distributed around a centre for each class; the
    centres are so close that neighbours help to tell the classes apart. Parallel edges and self-loops occur.

    The same arguments give the same graph. The graph is made block by block: memory holds one block, and 16 bytes for
    each vertex.

    Raises:
        ConfigurationError: If there are fewer vertices than classes.
    """

    vertices: int = 169_343
    edges: int = 2_400_000
    width: int = 128
    classes: int = 40  # classes have equally many vertices
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.classes <= self.vertices:
            raise ConfigurationError(
                f"{self.vertices} vertices cannot be of {self.classes} classes; give at least one vertex for each class"
            )

    def vertex_blocks(self) -> Iterator[VertexBlock]:
        """Yield all vertices in blocks, in the order of their ids."""
        points = self._random(_POINTS).standard_normal((self.classes, self.width), dtype=np.float32)
        points *= SIGNAL / np.sqrt(max(1, self.width))
        rows = max(1, VERTEX_NUMBERS // max(1, self.width))
        for block, start in enumerate(range(0, self.vertices, rows)):
            random = self._random(_VERTICES, block)
            label = self._label[start : start + rows]
            features = random.standard_normal((len(label), self.width), dtype=np.float32)
            features += points[label]
            split = np.searchsorted(np.cumsum(SPLIT_SHARES), random.random(len(label)), side="right").astype(np.int8)
            yield VertexBlock(np.arange(start, start + len(label)), features, label, split)

    def edge_blocks(self) -> Iterator[EdgeBlock]:
        """Yield all edges in blocks."""
        for block, start in enumerate(range(0, self.edges, EDGE_ROWS)):
            yield self._edge_block(block, min(EDGE_ROWS, self.edges - start))

    def _edge_block(self, block: int, count: int) -> EdgeBlock:
        random = self._random(_EDGES, block)
        dst = _ranks(random.random(count), np.int64(self.vertices))
        # The vertices of a class are every classes-th rank, so that all classes have hubs.
        own = dst % self.classes
        alike = random.random(count) < HOMOPHILY
        members = (self.vertices - own + self.classes - 1) // self.classes
        src = _ranks(random.random(count), np.where(alike, members, self.vertices))
        src = np.where(alike, src * self.classes + own, src)
        return EdgeBlock(self._at_rank[src], self._at_rank[dst])

    @cached_property
    def _at_rank(self) -> npt.NDArray[np.int64]:
        """The vertices from the most to the least popular."""
        return self._random(_PLACES).permutation(self.vertices)

    @cached_property
    def _label(self) -> npt.NDArray[np.int64]:
        label = np.empty(self.vertices, dtype=np.int64)
        label[self._at_rank] = np.arange(self.vertices) % self.classes
        return label

    def _random(self, purpose: int, block: int = 0) -> np.random.Generator:
        return np.random.default_rng([self.seed, purpose, block])


def _ranks(uniform: npt.NDArray[np.float64], below: npt.NDArray[np.int64] | np.int64) -> npt.NDArray[np.int64]:
    """Turn uniform numbers in [0, 1) into ranks, by the inverse of the power law's integral: no table, no search."""
    most = (below + 1.0) ** (1 / POWER)
    ranks = ((1.0 + uniform * (most - 1.0)) ** POWER - 1.0).astype(np.int64)
    return np.minimum(ranks, below - 1)
