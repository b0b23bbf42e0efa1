"""A graph's fingerprint, a short text that identifies its content whatever the order of its rows.

A graph in memory and the same graph in Spark have different fingerprints, because each is computed in the way that is
cheapest there. The form, "in memory" or "in Spark", is therefore part of the fingerprint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xxhash

from lotan.graph.arrays import GraphArrays
from lotan.memory.mapped import parts

if TYPE_CHECKING:
    from lotan.graph.graph import Graph


def fingerprint(graph: Graph) -> str:
    """Return the fingerprint of a graph's ids, features, labels, splits, edges, weights, attributes and types.

    It takes one pass over a graph in memory, and two jobs in Spark.
    """
    if graph.origin != "spark":
        return f"in memory {_of_arrays(graph.arrays())}"
    from lotan.graph import frames

    vertices, edges = frames.content_hashes(graph.tables(), graph.names)
    names = graph.names.classes
    classes = f" classes {xxhash.xxh3_64_hexdigest(repr(names).encode())}" if names else ""
    return f"in Spark {vertices:x} {edges:x}{' undirected' if graph.undirected else ''}{classes}"


def _of_arrays(graph: GraphArrays) -> str:
    """Return the hash of the arrays' bytes, whose order is fixed because vertices and edges are sorted."""
    digest = xxhash.xxh3_64()
    vertices = graph.keys, graph.features, graph.label, graph.split
    edges = graph.src, graph.dst, graph.weight, graph.edge_attr, graph.edge_type
    for array in (*vertices, *edges, graph.vertex_weight):
        if array is not None:
            digest.update(f"{array.dtype} {array.shape}".encode())
            for some in parts(array):
                digest.update(np.ascontiguousarray(array[some]).data.cast("B") if array.size else b"")
    if graph.classes:
        digest.update(repr(graph.classes).encode())
    return digest.hexdigest()
