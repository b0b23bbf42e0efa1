"""The check of an edge_index, for all readers of graphs that have one."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from lotan.errors import GraphError


def edge_ends(name: str, index: npt.NDArray[Any], kinds: str = "iu") -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the sources and the destinations that an edge_index has.

    Args:
        name: the name of the array, for the error.
        index: the array.
        kinds: the kinds of dtypes that are taken (default: integers).

    Raises:
        GraphError: the array is of another type, or has another shape than [2, edges].
    """
    # numpy makes an empty list an array of floats
    if index.ndim != 2 or len(index) != 2 or (index.size and index.dtype.kind not in kinds):
        given = f"{index.dtype} of shape {list(index.shape)}"
        raise GraphError(f"{name}: is {given}; expected integers of shape [2, num_edges].")
    return index[0], index[1]


def require_vertices(name: str, ends: npt.NDArray[Any], vertices: int, why: str) -> None:
    """Check that edges lead from and to vertices that are numbered from 0.

    Args:
        name: the name of the array, for the error.
        ends: numbers of vertices.
        vertices: the number of vertices.
        why: how that number is known, in words.

    Raises:
        GraphError: a number is negative or too great.
    """
    if ends.size and not 0 <= ends.min() <= ends.max() < vertices:
        wrong = ends.max() if ends.min() >= 0 else ends.min()
        raise GraphError(f"{name}: names vertex {wrong}{why}.")
