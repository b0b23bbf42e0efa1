"""The conversion of a user's arrays to columns. An array that fits into no column raises an error.

Columns share no memory with the user's arrays. A graph keeps results that were computed from it, and these must stay
true when the user writes to an array.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lotan.errors import GraphError
from lotan.graph.arrays import EdgeColumns, Ids, VertexColumns
from lotan.graph.faults import oversized
from planner.spec import SPLITS

Array = npt.NDArray[np.generic]

_EXPECTED = {  # the kinds of dtype, the numbers of dimensions, and both in words
    "features": ("biuf", (2,), "numbers, [vertices, width]"),
    "src": ("iuUO", (1,), "integers or strings, [edges]"),
    "dst": ("iuUO", (1,), "integers or strings, [edges]"),
    "weight": ("biuf", (1,), "numbers, [edges]"),
    "edge_attr": ("biuf", (1, 2), "numbers, [edges, width] or [edges]"),
    "edge_type": ("iu", (1,), "integers from 0, [edges]"),
    "ids": ("iuUO", (1,), "integers or strings, [vertices]"),
    "label": ("biuf", (1, 2), "numbers, [vertices] or [vertices, targets]"),
    "split": ("iuf", (1,), "-1 (none), 0 (train), 1 (val) and 2 (test), [vertices]"),
}
_OF_EDGES = ("src", "dst", "weight", "edge_attr", "edge_type")

CACHE_LINE = 64  # bytes


def columns_of(given: Mapping[str, Any]) -> tuple[VertexColumns, EdgeColumns]:
    """Return the columns of a graph.

    Args:
        given: the arguments of `Graph.from_arrays`, by name.

    Raises:
        GraphError: an array has a wrong dtype or shape, or the arrays do not fit together.
    """
    held = {name: _array(name, value) for name, value in given.items() if value is not None}
    for name in ("features", "src", "dst"):
        if name not in held:
            raise GraphError(f"{name}: is None; expected {_EXPECTED[name][2]}.")
    for name, array in held.items():
        _check_length(name, len(array), held)
    count = len(held["features"])
    ids = _ids("ids", held["ids"]) if "ids" in held else np.arange(count)
    src, dst = (_ids(end, held[end]) if len(held[end]) else ids[:0] for end in ("src", "dst"))
    split = held.get("split", np.full(count, -1))
    if not np.isin(split, range(-1, len(SPLITS))).all():
        raise GraphError("split: holds others than -1 (none), 0 (train), 1 (val) and 2 (test). Give these numbers.")
    features, label = _float32(held["features"]), _label(held.get("label"), count)
    weight = _float32(held["weight"]) if "weight" in held else None
    vertices = VertexColumns(ids, features, label, split.astype(np.int8))
    return vertices, EdgeColumns(src, dst, weight, attributes_of(held.get("edge_attr")), _types(held.get("edge_type")))


def attributes_of(array: Array | None) -> npt.NDArray[np.float32] | None:
    """Return the attributes of edges as float32 [edges, width]. One number for each edge is a width of 1."""
    return None if array is None else _float32(array if array.ndim == 2 else array[:, np.newaxis])


def _types(array: Array | None) -> npt.NDArray[np.int64] | None:
    if array is None:
        return None
    _check_size("edges", "edge_type", array, "Number the types from 0.")
    return array.astype(np.int64)


def _array(name: str, value: Any) -> Array:
    kinds, dimensions, words = _EXPECTED[name]
    try:
        array = np.asarray(value)
        if array.dtype.kind == "O" and "f" in kinds:  # perhaps numbers and None
            array = array.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise GraphError(f"{name}: cannot be read as an array: {error}; expected {words}.") from error
    # numpy makes an empty list an array of floats
    if array.ndim not in dimensions or (array.size and array.dtype.kind not in kinds):
        raise GraphError(f"{name}: an array of {array.dtype} of shape {array.shape}; expected {words}.")
    return array


def _check_length(name: str, length: int, held: Mapping[str, Array]) -> None:
    kind, other = ("edge", "src") if name in _OF_EDGES else ("vertex", "features")
    if length != len(held[other]):
        raise GraphError(
            f"{name}: {length:,} entries, but {other} has {len(held[other]):,}. Give one for every {kind}."
        )


def _ids(name: str, array: Array) -> Ids:
    table, column = ("vertices", "id") if name == "ids" else ("edges", name)
    if array.dtype.kind in "UO":
        others = [value for value in array.tolist() if not isinstance(value, str)]
        if others:
            raise GraphError(f"{name}: holds {others[0]!r}; give integers alone, or strings alone.")
        return array.astype(object)
    _check_size(table, column, array, "Give the ids as strings.")
    return array.copy()


def _check_size(table: str, column: str, array: Array, mend: str) -> None:
    if array.dtype.kind == "u" and array.max(initial=0) > np.iinfo(np.int64).max:
        raise oversized(table, column, array.max(), mend)


def _float32(array: Array) -> npt.NDArray[np.float32]:
    """Return a copy that begins with a cache line, so that the local engine need not copy it again."""
    room = np.empty(4 * array.size + CACHE_LINE, dtype=np.uint8)
    start = -room.ctypes.data % CACHE_LINE
    own = room[start : start + 4 * array.size].view(np.float32).reshape(array.shape)
    with np.errstate(over="ignore"):  # an overflow makes an infinite number, which is reported later with its row
        own[...] = array
    return own


def _label(label: Array | None, count: int) -> Array:
    if label is None:
        return np.full(count, -1, dtype=np.int64)
    if label.dtype.kind in "iub" and label.ndim == 1:
        _check_size("vertices", "label", label, "Number the classes from 0.")
        return label.astype(np.int64)
    return _float32(label).reshape(count, -1)
