"""The names that tensors have on the wire, in a chunk and in its result.

Scala uses the same names, in `PipeStep.scala` and `Pipe.scala`. The tensors of a chunk, by name, are:

    keys                            int64 [rows], row keys of the vertices
    column/<column>                 the vertices' rows of a column, including label and split; of a total, its one row
    output_gradient/<value>         float32 [rows, width], the sum of a stage output's gradients
    source/<edges>/<column>         float32 [sources, width], the distinct sources' rows
    indptr/<edges>                  int64 [rows + 1], the first in-edge of each vertex, and the number of edges
    positions/<edges>               int64 [edges], the position of each edge's source among the sources
    weight/<edges>                  float32 [edges], edge weights
    edge_keys/<edges>               int64 [edges], row keys of the edges
    edge_column/<edges>/<column>    float32 [edges, width], attributes of the edges, or int64 [edges], their types

The tensors of its result are:

    output/<value>                  float32 [rows, width], the rows of a stage's output
    input_gradient/<value>          float32 [rows, width], the gradient of a stage's input; for a total, one row; for an
                                    input at the sources of edges, a row for each source or for each edge

A whole mini-batch, in mode BATCH, has these, and the keys and columns of its vertices:

    levels                          int64 [levels], the number of vertices within each level, from the targets to all
    batch/src, batch/dst            int64 [edges], the places of the edges' ends, by destination and then source
    batch/weight                    float32 [edges]
    batch/edge_attr                 float32 [edges, width]
    batch/edge_type                 int64 [edges]

The parameters of its pass have the rows of its vertices alone where a parameter has a row for each vertex, or for each
vertex of a type. For the latter they have this too:

    rows_of_type/<type>             int64 [vertices], the row of each vertex among those of the type, or -1

For a link task they have the pairs of the batch, see `lotan.links.wire`.

`messenger.jobs` names the tensors that are summed over chunks.

This module imports neither torch nor the planner, because Spark starts many processes that need neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")

KEYS = "keys"
BATCH = "batch"
"""The mode in which a worker runs a whole mini-batch. It is the name of its program too."""
LEVELS, SOURCES, DESTINATIONS = "levels", "batch/src", "batch/dst"
OF_EDGES = ("weight", "edge_attr", "edge_type")
"""The columns of the edges of a mini-batch."""
TOPOLOGY = ("indptr", "positions", "weight", "edge_keys")  # the parts of an edge set
ROWS_OF_TYPE = "rows_of_type/"
_OUTPUT_GRADIENT = "output_gradient/"


def column(name: str) -> str:
    """Return the name of a column's rows of the vertices.

    >>> column("label")
    'column/label'
    """
    return f"column/{name}"


def batch_edges(name: str) -> str:
    """Return the name of a column of the edges of a mini-batch, which is one of `OF_EDGES`."""
    return f"batch/{name}"


def rows_of_type(number: int) -> str:
    """Return the name of the rows of a batch's vertices among those of a type.

    >>> rows_of_type(2)
    'rows_of_type/2'
    """
    return f"{ROWS_OF_TYPE}{number}"


def source(edges: str, name: str) -> str:
    """Return the name of a column's rows at the sources of these edges."""
    return f"source/{edges}/{name}"


def indptr(edges: str) -> str:
    """Return the name of the first in-edges of the vertices."""
    return f"indptr/{edges}"


def positions(edges: str) -> str:
    """Return the name of the positions of the edges' sources."""
    return f"positions/{edges}"


def weight(edges: str) -> str:
    """Return the name of the edge weights."""
    return f"weight/{edges}"


def edge_keys(edges: str) -> str:
    """Return the name of the edges' row keys."""
    return f"edge_keys/{edges}"


def edge_column(edges: str, name: str) -> str:
    """Return the name of a column of the edges.

    >>> edge_column("graph", "edge_attr")
    'edge_column/graph/edge_attr'
    """
    return f"edge_column/{edges}/{name}"


def topology(edges: str) -> frozenset[str]:
    """Return the names of all tensors that describe an edge set.

    >>> sorted(topology("graph"))
    ['edge_keys/graph', 'indptr/graph', 'positions/graph', 'weight/graph']
    """
    return frozenset(f"{part}/{edges}" for part in TOPOLOGY)


def output(value: str) -> str:
    """Return the name of the rows of a stage's output."""
    return f"output/{value}"


def output_gradient(value: str) -> str:
    """Return the name of the gradient of a stage's output."""
    return f"{_OUTPUT_GRADIENT}{value}"


def input_gradient(value: str) -> str:
    """Return the name of the gradient of a stage's input."""
    return f"input_gradient/{value}"


def output_gradients(tensors: Mapping[str, T]) -> dict[str, T]:
    """Return the gradients of outputs among a chunk's tensors, by value.

    >>> output_gradients({"keys": 1, "output_gradient/y": 2})
    {'y': 2}
    """
    return {
        name.removeprefix(_OUTPUT_GRADIENT): tensor
        for name, tensor in tensors.items()
        if name.startswith(_OUTPUT_GRADIENT)
    }
