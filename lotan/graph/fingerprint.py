"""What a graph holds, in a few digits: two graphs of one form with the same digits are the same, whatever their rows' order.

In memory and in Spark the digits differ, each being what is cheapest there; so the form is part of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xxhash

from lotan.graph.arrays import GraphArrays

if TYPE_CHECKING:
    from lotan.graph.graph import Graph


def fingerprint(graph: Graph) -> str:
    """Of ids, features, labels, splits, edges and weights; one pass in memory, two jobs in Spark."""
    if graph.origin != "spark":
        return f"in memory {_of_arrays(graph.arrays())}"
    from lotan.graph import frames

    vertices, edges = frames.content_hashes(graph.tables(), graph.names)
    return f"in Spark {vertices:x} {edges:x}{' undirected' if graph.undirected else ''}"


def _of_arrays(graph: GraphArrays) -> str:
    """Their bytes: vertices and edges are sorted already."""
    digest = xxhash.xxh3_64()
    for array in (graph.keys, graph.features, graph.label, graph.split, graph.src, graph.dst, graph.weight):
        if array is not None:
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return digest.hexdigest()
