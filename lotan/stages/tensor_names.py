"""The names that tensors have on the wire, in a chunk and in its result. Scala uses the same (`PipeStep.scala`, `Pipe.scala`).

Of a chunk:
    keys                            int64 [rows], row keys of its vertices
    column/<column>                 the vertices' rows of a column; label and split among them
    output_gradient/<value>         float32 [rows, width], the sum of a stage output's gradients
    source/<edges>/<column>         float32 [sources, width], the rows of the distinct sources of its in-edges
    indptr/<edges>                  int64 [rows + 1], where the in-edges of each vertex begin, and the last end
    positions/<edges>               int64 [edges], each edge's source, by its place among the sources
    weight/<edges>                  float32 [edges]
    edge_keys/<edges>               int64 [edges], row keys of the edges
Of its result:
    output/<value>                  float32 [rows, width]
    input_gradient/<value>          float32 [rows, width]; of a source's column, rows of sources or of edges
and what is summed over chunks, by the names in `messenger.jobs`.

Processes that need neither torch nor the planner read this too, so it imports neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")

KEYS = "keys"
TOPOLOGY = ("indptr", "positions", "weight", "edge_keys")  # the parts of an edge set
_OUTPUT_GRADIENT = "output_gradient/"


def column(name: str) -> str:
    """The vertices' rows of a column.

    >>> column("label")
    'column/label'
    """
    return f"column/{name}"


def source(edges: str, name: str) -> str:
    """The rows of a column at the sources of these edges."""
    return f"source/{edges}/{name}"


def indptr(edges: str) -> str:
    """Where the in-edges of each vertex begin."""
    return f"indptr/{edges}"


def positions(edges: str) -> str:
    """The source of each edge."""
    return f"positions/{edges}"


def weight(edges: str) -> str:
    """The weight of each edge."""
    return f"weight/{edges}"


def edge_keys(edges: str) -> str:
    """The row key of each edge."""
    return f"edge_keys/{edges}"


def topology(edges: str) -> frozenset[str]:
    """All tensors that describe an edge set.

    >>> sorted(topology("graph"))
    ['edge_keys/graph', 'indptr/graph', 'positions/graph', 'weight/graph']
    """
    return frozenset(f"{part}/{edges}" for part in TOPOLOGY)


def output(value: str) -> str:
    """The rows of a stage's output."""
    return f"output/{value}"


def output_gradient(value: str) -> str:
    """The gradient of a stage's output."""
    return f"{_OUTPUT_GRADIENT}{value}"


def input_gradient(value: str) -> str:
    """The gradient of a stage's input."""
    return f"input_gradient/{value}"


def output_gradients(tensors: Mapping[str, T]) -> dict[str, T]:
    """The gradients of outputs among a chunk's tensors, by value.

    >>> output_gradients({"keys": 1, "output_gradient/y": 2})
    {'y': 2}
    """
    return {
        name.removeprefix(_OUTPUT_GRADIENT): tensor
        for name, tensor in tensors.items()
        if name.startswith(_OUTPUT_GRADIENT)
    }
