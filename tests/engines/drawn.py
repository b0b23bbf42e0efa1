"""Random graphs with every awkward feature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Drawn:
    """A random graph as arrays; `ids[src[e]]` is the source of edge e."""

    ids: np.ndarray  # int64 or str [vertices], sorted
    src: np.ndarray  # int64 [edges], positions
    dst: np.ndarray
    weight: np.ndarray  # float32 [edges]
    features: np.ndarray  # float32 [vertices, width]

    @property
    def rows(self) -> dict[object, int]:
        """Position of each id."""
        return {identifier: row for row, identifier in enumerate(self.ids.tolist())}

    def self_looped(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """src, dst, weight of the edge set "self_loops": one loop per vertex, of its heaviest loop's weight, else 1."""
        count = len(self.ids)
        loop = np.ones(count, dtype=np.float32)
        own = self.src == self.dst
        for vertex in np.unique(self.src[own]):
            loop[vertex] = self.weight[own & (self.src == vertex)].max()
        every = np.arange(count)
        return (
            np.concatenate([self.src[~own], every]),
            np.concatenate([self.dst[~own], every]),
            np.concatenate([self.weight[~own], loop]),
        )


def draw_graph(vertices: int = 60, edges: int = 300, width: int = 5, strings: bool = False, seed: int = 0) -> Drawn:
    """Isolated vertices, self-loops, parallel edges (of several weights), and a hub that receives half of all edges."""
    rng = np.random.default_rng(seed)
    numbers = np.sort(rng.choice(10 * vertices, vertices, replace=False)) - 3 * vertices  # some are negative
    ids = np.array(sorted(f"käse-{number}" for number in numbers)) if strings else numbers.astype(np.int64)
    connected = vertices - vertices // 6
    src = rng.integers(0, connected, edges)
    dst = rng.integers(0, connected, edges)
    dst[: edges // 2] = 1
    src[-8:-4] = dst[-8:-4]  # self-loops
    src[-4:], dst[-4:] = src[-8:-4], dst[-8:-4]  # twice
    src[10:20], dst[10:20] = src[20:30], dst[20:30]  # parallel edges
    weight = rng.uniform(0.5, 2, edges).astype(np.float32)
    return Drawn(ids, src, dst, weight, rng.normal(size=(vertices, width)).astype(np.float32))
