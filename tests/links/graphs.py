"""Small random graphs of links, and their parts as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

import lotan
from lotan.links.examples import LinkGraph, link_graph

WIDTH = 5


def columns(seed: int = 0, vertices: int = 40, edges: int = 240, relations: int = 3) -> dict[str, Any]:
    """Return the arrays of a graph of distinct links. Without relations, their number is 0."""
    random = np.random.default_rng(seed)
    pairs = random.choice(vertices * vertices, edges, replace=False)
    given = {
        "features": random.normal(size=(vertices, WIDTH)).astype(np.float32),
        "src": pairs // vertices,
        "dst": pairs % vertices,
        "edge_split": random.choice(np.array([0, 0, 0, 1, 2], dtype=np.int8), edges),
    }
    return given | ({"relation": np.array(list("abcdefgh"))[random.integers(0, relations, edges)]} if relations else {})


def graph(seed: int = 0, **sizes: int) -> lotan.Graph:
    """Return a graph of these arrays."""
    return lotan.Graph.from_arrays(**columns(seed, **sizes))


def linked(seed: int = 0, **sizes: int) -> LinkGraph:
    """Return such a graph with its links."""
    return link_graph(graph(seed, **sizes), lotan.LinkPrediction())
