"""Writes the partitions of a graph whose vertices are the examples: its edges, and its features."""

from __future__ import annotations

from pathlib import Path

from lotan.batches.examples import examples_of
from lotan.errors import GraphError
from lotan.graph.arrays import GraphArrays
from lotan.graph.fingerprint import fingerprint
from lotan.graph.graph import Graph
from lotan.memory.trim import give_back_freed
from lotan.storage.edge_readers import MOST_VERTICES, EdgeReader, record_bytes
from lotan.storage.feature_files import StoredFeatures, open_features
from lotan.storage.partitioned_graph import PartitionedGraph, open_partitioned
from lotan.storage.row_files import RowFiles
from planner.orders.vertex_division import VertexOrderName
from planner.scratch import NUMBER_BYTES


def check_storable(graph: Graph, order: str) -> None:
    """Check that partitions can hold a graph.

    Args:
        graph: The graph.
        order: The words for the order of batches, with which an error begins.

    Raises:
        GraphError: If it is of a kind that is not stored so far.
    """
    if graph.vertex_types is not None:
        raise GraphError(
            f"{order} stores graphs of one type of vertices so far, and this graph has several. Train it in memory: leave order "
            "out."
        )
    arrays = graph.arrays()
    if len(arrays.ids) > MOST_VERTICES:
        raise GraphError(
            f"The graph has {len(arrays.ids):,} vertices; expected at most {MOST_VERTICES:,}. Leave some out."
        )


def disk_bytes(arrays: GraphArrays) -> int:
    """Return the bytes of a graph's edges and features on the disk."""
    numbers = (arrays.weight is not None) + (arrays.edge_data.width or 0)
    return record_bytes(numbers) * len(arrays.src) + NUMBER_BYTES * arrays.features.size


def open_vertex_partitions(
    folder: Path, graph: Graph, order: VertexOrderName, partitions: int, seed: int
) -> tuple[PartitionedGraph, RowFiles, bool]:
    """Return the edges and the features of a graph on a disk, which are written if they are not there.

    Args:
        folder: The folder of the storage, which the caller has claimed.
        graph: The graph.
        order: The order of batches. For "cached_nodes" the training vertices are in the first partitions.
        partitions: The number of partitions.
        seed: The seed that puts vertices into partitions.

    Returns:
        The edges, the files of the features, and True if some of them were written now.

    Raises:
        GraphError: If the graph cannot be read.
        StorageError: If the folder has the storage of another graph, or something cannot be written.
    """
    arrays, digest = graph.arrays(), fingerprint(graph)
    reader = EdgeReader(arrays)
    first = examples_of(arrays) if order == "cached_nodes" else None
    edges, wrote_edges = open_partitioned(folder, reader, reader.summary(digest), partitions, seed, first)
    features, wrote_features = open_features(folder, StoredFeatures(arrays.features, None, digest), edges.placement)
    give_back_freed()
    return edges, features, wrote_edges or wrote_features
