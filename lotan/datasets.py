"""Which graphs have a name here, and graphs generated for tests and measurements."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lotan.graph import Graph, files
from lotan.graph.built_in import BUILT_IN, random_split

HOMOPHILY = 0.7  # share of a generated graph's edges whose ends are drawn from one class
SKEW = 0.8  # a generated vertex of rank r is an edge's end with a chance in proportion to (r + 1) ** -SKEW


@dataclass(frozen=True)
class DataSet:
    """A graph that `Graph.read` knows by name."""

    name: str
    place: str  # "built in", or the file
    size: str  # in vertices, or in bytes where the file has not been read


def available() -> list[DataSet]:
    """The built-in graphs, then those in `$LOTAN_DATA` and `../shared/data`, by name; the first of a name wins."""
    found = {name: DataSet(name, "built in", one.size) for name, one in BUILT_IN.items()}
    for folder in files.data_directories():
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if path.suffix == ".npz" or (path / files.VERTICES).exists():
                found.setdefault(path.stem, DataSet(path.stem, str(path), f"{_bytes_of(path):,} bytes"))
    return list(found.values())


def _bytes_of(path: Path) -> int:
    parts = path.rglob("*") if path.is_dir() else [path]
    return sum(part.stat().st_size for part in parts if part.is_file())


def generate(
    vertices: int, edges: int, width: int = 64, classes: int = 8, seed: int = 0, undirected: bool = False
) -> Graph:
    """A random graph with skewed degrees and planted classes, for tests and measurements.

    An edge's destination is drawn by popularity (a power law), its source likewise, with the chance `HOMOPHILY` among
    the vertices of the destination's class. Features are a point per class plus noise. Parallel edges and self-loops
    occur.

    Args:
        vertices: at least `classes`.
        edges: drawn; exactly as many directed edges unless `undirected`, which adds their reverses.
        width: of the features.
        classes: vertices of each are equally many.
        seed: of everything.
        undirected: see `Graph`.
    """
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.arange(vertices) % classes)
    popularity = (rng.permutation(vertices) + 1.0) ** -SKEW
    dst = _draw(rng.random(edges), np.arange(vertices), popularity)
    src = _draw(rng.random(edges), np.arange(vertices), popularity)
    alike = rng.random(edges) < HOMOPHILY
    for one in range(classes):
        members = np.flatnonzero(label == one)
        chosen = np.flatnonzero(alike & (label[dst] == one))
        src[chosen] = _draw(rng.random(len(chosen)), members, popularity[members])
    features = rng.standard_normal((classes, width), dtype=np.float32)[label]
    features += 2.0 * rng.standard_normal((vertices, width), dtype=np.float32)
    return Graph.from_arrays(features, src, dst, label, random_split(label, seed), undirected=undirected)


def _draw(
    uniform: npt.NDArray[np.float64], members: npt.NDArray[np.int64], weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """Turn uniform numbers in [0, 1) into members, drawn in proportion to their weights."""
    bounds = np.cumsum(weights)
    return members[np.minimum(np.searchsorted(bounds, uniform * bounds[-1], side="right"), len(members) - 1)]
