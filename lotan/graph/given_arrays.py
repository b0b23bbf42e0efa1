"""The conversion of a user's arrays to columns. An array that fits into no column raises an error.

Columns share no memory with the user's arrays. A graph keeps results that were computed from it, and these must stay
true when the user writes to an array.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lotan.arguments import unknown
from lotan.errors import GraphError
from lotan.graph.arrays import EdgeColumns, Ids, VertexColumns
from lotan.graph.faults import oversized
from lotan.graph.given_ends import edge_ends
from lotan.graph.given_labels import GivenLabels
from lotan.graph.given_tables import as_numpy
from lotan.graph.splits import UNKNOWN, by_split, codes_of, codes_of_masks
from planner.spec import SPLITS

Array = npt.NDArray[np.generic]

_EXPECTED = {  # the kinds of dtype, the numbers of dimensions, and both in words
    "features": ("biuf", (2,), "numbers, [vertices, width]"),
    "src": ("iuUO", (1,), "integers or strings, [edges]"),
    "dst": ("iuUO", (1,), "integers or strings, [edges]"),
    "weight": ("biuf", (1,), "numbers, [edges]"),
    "edge_attr": ("biuf", (1, 2), "numbers, [edges, width] or [edges]"),
    "edge_type": ("iu", (1,), "integers from 0, [edges]"),
    "edge_split": ("iufUO", (1,), "'train', 'val', 'test' and None, or -1 (none), 0, 1 and 2, [edges]"),
    "relation": ("iuUO", (1,), "integers or strings, [edges]"),
    "vertex_weight": ("biuf", (1,), "numbers, [vertices]"),
    "ids": ("iuUO", (1,), "integers or strings, [vertices]"),
    "batch": ("iuf", (1,), "whole numbers from 0, [vertices]"),
    "label": ("biufUO", (1, 2), "numbers, [vertices] or [vertices, targets]; or strings, [vertices]"),
    "split": ("iufUO", (1,), "'train', 'val', 'test' and None, or -1 (none), 0, 1 and 2, [vertices]"),
}
_OF_EDGES = ("src", "dst", "weight", "edge_attr", "edge_type", "edge_split", "relation")

_MEANT = {
    "x": "pass it as features",
    "y": "pass it as label",
    "labels": "pass it as label",
    "edge_weight": "pass it as weight",
    **dict.fromkeys(
        ("train_mask", "val_mask", "test_mask", "train_idx", "val_idx", "test_idx"),
        "pass one array split, with 'train', 'val', 'test' or None for each vertex, or three masks in a list",
    ),
    "edge_features": "pass it as edge_attr",
    "n_id": "pass it as ids",
    "id": "pass it as ids",
    "source": "pass it as src",
    "target": "pass it as dst",
    "num_nodes": "pass ids, or features with a row for each vertex",
}
"""The names that PyG and others give the arguments of `Graph.from_arrays`, each with what to do instead."""

CACHE_LINE = 64  # bytes


def refuse_unknown(others: Iterable[str], takes: Iterable[str]) -> None:
    """Raise a GraphError if `Graph.from_arrays` was given arguments that it does not take."""
    if others := list(others):
        raise unknown("Graph.from_arrays", others, takes, _MEANT, GraphError)


def columns_of(given: Mapping[str, Any]) -> tuple[VertexColumns, EdgeColumns]:
    """Return the columns of a graph.

    Args:
        given: the arguments of `Graph.from_arrays`, by name.

    Raises:
        GraphError: an array has a wrong dtype or shape, or the arrays do not fit together.
    """
    given = _with_ends(given) | {"split": _without_masks(given.get("split"))}
    held = {name: _array(name, value) for name, value in given.items() if value is not None}
    for name in ("src", "dst"):
        if name not in held:
            raise GraphError(f"{name}: is None; expected {_EXPECTED[name][2]}.")
    if "features" not in held:
        held["features"] = np.zeros((_vertices(held), 0), dtype=np.float32)
    for name, array in held.items():
        _check_length(name, len(array), held)
    count = len(held["features"])
    ids = _ids("ids", held["ids"]) if "ids" in held else np.arange(count)
    src, dst = (_ids(end, held[end]) if len(held[end]) else ids[:0] for end in ("src", "dst"))
    split = _split(held["split"]) if "split" in held else np.full(count, -1, dtype=np.int8)
    features, label = _float32(held["features"]), _label(held.get("label"), count)
    if "batch" in held:
        features = np.concatenate([features, _float32(held["batch"])[:, np.newaxis]], axis=1)
    weight = _float32(held["weight"]) if "weight" in held else None
    of_vertices = _float32(held["vertex_weight"]) if "vertex_weight" in held else None
    vertices = VertexColumns(ids, features, label, split, of_vertices)
    attributes, types = held.get("edge_attr"), _types(held.get("edge_type"))
    flat = attributes is not None and attributes.ndim == 1
    of_edges = _split(held["edge_split"], "edge_split") if "edge_split" in held else None
    relation = _ids("relation", held["relation"]) if "relation" in held else None
    return vertices, EdgeColumns(src, dst, weight, attributes_of(attributes), types, flat, of_edges, relation)


def _vertices(held: Mapping[str, Array]) -> int:
    """Return the number of vertices of a graph without features, which other columns of vertices tell.

    Raises:
        GraphError: there are none.
    """
    for name in ("ids", "label", "split"):
        if name in held:
            return len(held[name])
    raise GraphError(
        f"features: is None; expected {_EXPECTED['features'][2]}. Or give ids, which tell the vertices of a graph "
        "without features."
    )


def _with_ends(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with `src` and `dst` in place of an `edge_index`."""
    index, others = given.get("edge_index"), {name: value for name, value in given.items() if name != "edge_index"}
    if index is None:
        return others
    if others.get("src") is not None or others.get("dst") is not None:
        raise GraphError("edge_index: src and dst were given too. Give the edges once: edge_index, or src and dst.")
    if hasattr(index, "tocoo"):  # a sparse matrix of scipy, of which rows may be meant as sources or as destinations
        raise GraphError(
            "edge_index: is a sparse matrix; expected integers, [2, edges]. Give src, dst = adjacency.nonzero()."
        )
    array = as_numpy(index)
    src, dst = edge_ends("edge_index", array, "iuUO")  # ends are ids, which may be strings
    return {**others, "src": src, "dst": dst}


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
        array = as_numpy(value.toarray() if hasattr(value, "toarray") else value)
        if array.dtype.kind == "O" and "f" in kinds and not _has_texts(array):  # perhaps numbers and None
            array = array.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise GraphError(f"{name}: cannot be read as an array: {error}; expected {words}.") from error
    # numpy makes an empty list an array of floats
    if array.ndim not in dimensions or (array.size and array.dtype.kind not in kinds):
        raise GraphError(f"{name}: an array of {array.dtype} of shape {array.shape}; expected {words}.")
    return array


def _has_texts(array: Array) -> bool:
    return any(isinstance(value, str) for value in array.reshape(-1).tolist())


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


def _label(label: Array | None, count: int) -> GivenLabels:
    if label is None:
        return GivenLabels.none(count)
    _check_size("vertices", "label", label, "Number the classes from 0.")
    if label.dtype.kind in "UO":
        others = [value for value in label.reshape(-1).tolist() if not (value is None or isinstance(value, str))]
        if others or label.ndim != 1:
            raise GraphError(
                f"label: holds {others[:1] or label.shape}; give numbers alone, or one string for each vertex."
            )
    return GivenLabels.of_array(label)


def _without_masks(split: Any) -> Any:
    """Return splits as they were given, or their numbers in place of three masks: in a list, or by the names of splits.

    Raises:
        GraphError: a mask does not fit, or a vertex is in several of them.
    """
    if isinstance(split, Mapping):
        named = by_split(split)
        if named is None:
            raise GraphError(f"split: has masks by {', '.join(map(repr, split))}; expected 'train', 'val' and 'test'.")
        masks = {code: as_numpy(mask) for code, mask in named.items()}
    else:
        several = list(split) if isinstance(split, list | tuple) or np.ndim(split) == 2 else []
        masks = dict(enumerate(map(as_numpy, several))) if len(several) == len(SPLITS) else {}
        if not masks or not all(map(_is_mask, masks.values())):
            return split
    shapes = {mask.shape for mask in masks.values()}
    if len(shapes) > 1 or not all(map(_is_mask, masks.values())):
        raise GraphError(
            "split: expected masks of booleans that all have one length, [vertices]. Give True or False for each vertex."
        )
    none = np.zeros(shapes.pop(), dtype=np.bool_)
    codes, doubled = codes_of_masks([masks.get(code, none) for code in range(len(SPLITS))])
    if doubled.any():
        raise GraphError(
            f"split: {int(doubled.sum()):,} vertices are in several masks. A vertex is in one split at most."
        )
    return codes


def _is_mask(array: Array) -> bool:
    return array.ndim == 1 and array.dtype.kind == "b"


def _split(split: Array, name: str = "split") -> npt.NDArray[np.int8]:
    codes = codes_of(split)
    if (codes == UNKNOWN).any():
        example = split[codes == UNKNOWN][0]
        raise GraphError(
            f"{name}: holds values other than -1 (none), 0 (train), 1 (val) and 2 (test), such as {example!r}. "
            "Give these numbers, or 'train', 'val', 'test' and None."
        )
    return codes
