"""Graphs that have a name, and graphs that are generated for tests and measurements."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from lotan.datasets.planted import EdgeBlock, PlantedGraph, VertexBlock
from lotan.errors import ConfigurationError
from lotan.graph import files
from lotan.graph.built_in import BUILT_IN
from lotan.graph.graph import Graph
from lotan.graph.triples import holds_triples
from planner.spec import SPLITS


@dataclass(frozen=True)
class DataSet:
    """A graph that `Graph.read` knows by name."""

    name: str
    place: str  # "built in", or the path of the file
    size: str  # vertices, or bytes if the file has not been read


def available() -> list[DataSet]:
    """Return the built-in graphs, then those in `$LOTAN_DATA` and `../shared/data` by name. The first graph of a name wins."""
    found = {name: DataSet(name, "built in", one.size) for name, one in BUILT_IN.items()}
    for folder in files.data_directories():
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if path.suffix == ".npz" or (path / files.VERTICES).exists() or holds_triples(path):
                name = path.stem if path.is_file() else path.name
                found.setdefault(name, DataSet(name, str(path), f"{_bytes_of(path):,} bytes"))
    return list(found.values())


def _bytes_of(path: Path) -> int:
    parts = path.rglob("*") if path.is_dir() else [path]
    return sum(part.stat().st_size for part in parts if part.is_file())


def generate(
    vertices: int, edges: int, width: int = 64, classes: int = 8, seed: int = 0, undirected: bool = False
) -> Graph:
    """Return a `PlantedGraph` in memory.

    Args:
        vertices: The number of vertices, at least `classes`.
        edges: The number of directed edges to draw; `undirected` adds their reverses.
        width: The number of features of a vertex.
        classes: The number of classes, which have equally many vertices.
        seed: The seed of all random numbers.
        undirected: True to add the reverse of every edge, see `Graph`.

    Raises:
        ConfigurationError: If there are fewer vertices than classes.
    """
    drawn, ends = _in_memory(PlantedGraph(vertices, edges, width, classes, seed))
    return Graph.from_arrays(drawn.features, ends.src, ends.dst, drawn.label, drawn.split, undirected=undirected)


def _in_memory(graph: PlantedGraph) -> tuple[VertexBlock, EdgeBlock]:
    vertices = [np.concatenate(column) for column in zip(*graph.vertex_blocks(), strict=True)]
    edges = [np.concatenate(column) for column in zip(*graph.edge_blocks(), strict=True)]
    return VertexBlock(*vertices), EdgeBlock(*edges or [np.zeros(0, np.int64)] * 2)


def write_parquet(graph: PlantedGraph, directory: Path) -> None:
    """Write a graph for `Graph.read` as Parquet, block by block; each block is a row group.

    Raises:
        ConfigurationError: If something exists at `directory`.
    """
    with _whole(directory) as folder:
        folder.mkdir()
        _write(folder / files.VERTICES, map(_vertex_table, graph.vertex_blocks()))
        nothing = EdgeBlock(np.zeros(0, np.int64), np.zeros(0, np.int64))  # a block without rows, which has the columns
        blocks = graph.edge_blocks() if graph.edges else [nothing]
        _write(folder / files.EDGES, (pa.table(block._asdict()) for block in blocks))


def write_npz(graph: PlantedGraph, file: Path) -> None:
    """Write a graph for `Graph.read` as an archive. The whole graph is held in memory.

    Raises:
        ConfigurationError: If something exists at `file`.
    """
    with _whole(file) as partial, partial.open("wb") as archive:
        vertices, edges = _in_memory(graph)
        splits: dict[str, Any] = {
            f"{name}_idx": np.flatnonzero(vertices.split == code) for code, name in enumerate(SPLITS)
        }
        arrays: dict[str, Any] = {
            "x": vertices.features,
            "y": vertices.label,
            "edge_src": edges.src,
            "edge_dst": edges.dst,
        }
        np.savez(archive, num_nodes=graph.vertices, **arrays, **splits)


def _vertex_table(block: VertexBlock) -> pa.Table:
    width = block.features.shape[1]
    offsets = pa.array(np.arange(len(block.ids) + 1, dtype=np.int32) * np.int32(width))
    features = pa.ListArray.from_arrays(offsets, pa.array(block.features.reshape(-1)))
    split = pa.DictionaryArray.from_arrays(block.split, list(SPLITS)).cast(pa.string())
    return pa.table({"id": block.ids, "features": features, "label": block.label.astype(np.int32), "split": split})


def _write(file: Path, tables: Iterable[pa.Table]) -> None:
    writer = None
    try:
        for table in tables:
            # a dictionary of random numbers is not worth its time
            writer = writer or parquet.ParquetWriter(file, table.schema, use_dictionary=["split"])
            writer.write_table(table, row_group_size=max(1, len(table)))
    finally:
        if writer is not None:
            writer.close()


@contextmanager
def _whole(place: Path) -> Iterator[Path]:
    """Yield a place beside `place` to write to. It is renamed to `place` if the block succeeds, or else removed."""
    if place.exists():
        raise ConfigurationError(f"{place} exists; name another place, or remove it first")
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(f".{place.name}.partial")
    _remove(partial)
    try:
        yield partial
        partial.rename(place)
    finally:
        _remove(partial)


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
