"""The canonical forms of operators that have several spellings.

- Every reshaping is aten.reshape with its full shape.
- Squeeze names its dimensions, and a conversion names its dtype.
- Split and unbind are slices and selections.
- A lookup by integers, x[index] or embedding, is aten.index_select.
- An operator that writes to its input becomes the one that returns a new tensor.
- An operator that does nothing is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from planner.spec import DISTRIBUTIONS

_RESHAPES = (
    "view.default",
    "reshape.default",
    "_unsafe_view.default",
    "flatten.using_ints",
    "unflatten.int",
    "view_as.default",
    "reshape_as.default",
)
_EXPANSIONS = ("expand.default", "expand_as.default")
_CONVERSIONS = ("to.dtype", "type_as.default", "_to_copy.default")
_SIZE_POSITION = {
    "zeros.default": 0,
    "ones.default": 0,
    "full.default": 0,
    "new_zeros.default": 1,
    "new_ones.default": 1,
    "new_full.default": 1,
}
_IDENTITIES = ("contiguous.default", "clone.default", "alias.default", "lift_fresh_copy.default")
_DROPPED_KEYWORDS = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "copy")
_TO_THE_END = 2**63 - 1

PARTS = ("unbind.int", "split.Tensor", "split.sizes", "split_with_sizes.default", "chunk.default")
"""Operators that take a value apart."""

BROADCAST = "broadcast_tensors.default"
"""The operator that gives several values one shape."""

EXTREMES = {"max.dim": "aten.argmax.default", "min.dim": "aten.argmin.default"}
"""Operators that return the greatest or least number along a dimension, and its position."""


class FullSize:
    """An argument that stands for the full shape of the node's own value, its number of rows included."""


@dataclass(frozen=True)
class Form:
    """A call whose arguments are still nodes of torch.fx."""

    op: str
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...] = ()


def canonical_form(node: Node, name: str) -> Form:
    """Return a node's call in canonical form.

    Args:
        node: a node that calls an aten operator with one result.
        name: the operator's name, such as "view.default". For an operator that writes to its input, it is the name of
            the one that does not.
    """
    x = node.args[0] if node.args else None
    if name in _RESHAPES:
        return Form("aten.reshape.default", (x, FullSize()))
    if name in _EXPANSIONS:
        return Form("aten.expand.default", (x, FullSize()))
    if name == "squeeze.default":
        return Form("aten.squeeze.dims", (x, _single(x)))
    if name in _CONVERSIONS:
        return Form("aten.to.dtype", (x, node.meta["val"].dtype))
    if _is_lookup(node, name):
        index = node.args[1][0] if name == "index.Tensor" else node.args[1]  # type: ignore[index]  # a list of nodes
        return Form("aten.index_select.default", (x, 0, index))
    if name == "empty_like.default":
        return Form("aten.zeros_like.default", (x,))  # to be filled
    arguments: list[Any] = list(node.args)
    if name in _SIZE_POSITION:
        arguments[_SIZE_POSITION[name]] = FullSize()
    keywords = [(key, value) for key, value in node.kwargs.items() if key not in _DROPPED_KEYWORDS]
    if f"aten.{name}" in DISTRIBUTIONS:
        keywords = [(key, value) for key, value in keywords if (key, value) != ("dtype", torch.float32)]
    return Form(f"aten.{name}", tuple(arguments), tuple((key, value) for key, value in keywords if value is not None))


LOOKUPS = ("index.Tensor", "embedding.default", "index_select.default")
"""Operators that may take whole entries of their first argument."""


def lookup_index(node: Node, name: str) -> Any:
    """Return the argument by which a node of `LOOKUPS` takes entries, or None if it does not take entries by one."""
    if name == "index_select.default":
        return node.args[2] if node.args[1] == 0 else None
    index: Any = node.args[1]
    if name == "embedding.default":
        return index
    return index[0] if len(index) == 1 else None


def _is_lookup(node: Node, name: str) -> bool:
    """Return True if a node takes whole entries of its first argument by a vector of integers: x[index] or embedding."""
    if name == "embedding.default":
        index = node.args[1]
        plain = bool(len(node.args) < 3 or node.args[2] == -1)  # no entry that is left out of the gradient
        return plain and not any(node.args[3:]) and not any(node.kwargs.values()) and _is_integers(index)
    if name != "index.Tensor":
        return False
    indices: Any = node.args[1]
    return len(indices) == 1 and _is_integers(indices[0])


def _is_integers(index: Any) -> bool:
    value = index.meta["val"] if isinstance(index, Node) else None
    return isinstance(value, torch.Tensor) and len(value.shape) == 1 and value.dtype in (torch.int32, torch.int64)


def part_form(node: Node, source: Node, item: int) -> Form:
    """Return the call that makes one part, `node`, of the value that `source` takes apart. `item` is the part's index."""
    name = str(source.target).removeprefix("aten.")
    position = 1 if name == "unbind.int" else 2
    dim: Any = source.kwargs.get("dim", source.args[position] if len(source.args) > position else 0)
    if name == "unbind.int":
        return Form("aten.select.int", (source.args[0], dim, item))
    start = sum(part.shape[dim] for part in source.meta["val"][:item])
    return Form("aten.slice.Tensor", (source.args[0], dim, start, start + node.meta["val"].shape[dim]))


def extreme_arguments(source: Node) -> tuple[Any, Any, bool]:
    """Return the input, the dimension and keepdim of a node that calls one of `EXTREMES`."""
    x, dim, keepdim = (*source.args, None, False)[:3] if len(source.args) < 3 else source.args[:3]
    return x, source.kwargs.get("dim", dim), bool(source.kwargs.get("keepdim", keepdim))


def does_nothing(node: Node, name: str) -> bool:
    """Return True if a node's value is its first argument, for any number of rows."""
    arguments: tuple[Any, ...] = node.args
    match name:
        case "dropout.default":
            return not arguments[2] or arguments[1] == 0
        case "slice.Tensor":
            start, end, step = [*arguments[2:5], None, None, None][:3]
            return start in (0, None) and end in (_TO_THE_END, None) and step in (1, None)
        case "squeeze.default":
            return not _single(arguments[0])
        case "to.dtype" | "to.device" | "to.dtype_layout" | "to.other":
            return bool(arguments[0].meta["val"].dtype == node.meta["val"].dtype)
    return name in _IDENTITIES


def _single(x: Any) -> tuple[int, ...]:
    """Return the dimensions of a node's value whose size is 1 for any number of rows."""
    return tuple(dim for dim, size in enumerate(x.meta["val"].shape) if isinstance(size, int) and size == 1)
