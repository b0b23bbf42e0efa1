"""Reductions over all vertices that a model's own forward calls, such as `x.mean(0)` or `x.std()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from torch.fx import Node

_OVERLOADS = ("default", "dim", "dim_IntList", "correction")
_KINDS = ("sum", "mean", "var", "std", "amax", "amin", "max", "min")


@dataclass(frozen=True)
class Reduction:
    """A reduction over dimension 0, and perhaps over others."""

    kind: str  # "sum", "mean", "var", "std", "max" or "min"
    others: tuple[int, ...]  # the other dimensions that it reduces, at least 1
    correction: int = 0  # for var and std: what is taken from the number of values


def reduction_of(node: Node, name: str) -> Reduction | None:
    """Return the reduction over dimension 0 that a node calls, or None if it calls anything else.

    Args:
        node: a node that calls an aten operator on a tensor.
        name: the operator's name, such as "mean.dim".
    """
    kind, _, overload = name.partition(".")
    if kind not in _KINDS or overload not in _OVERLOADS or node.kwargs.get("dtype") is not None:
        return None
    x, *arguments = cast(Any, node.args)
    everything = overload == "default" and not kind.startswith("a")  # amax and amin have one overload
    dims = None if everything else node.kwargs.get("dim", arguments.pop(0) if arguments else None)
    rank = len(x.meta["val"].shape)
    chosen: Any = range(rank) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    reduced = sorted(int(dim) % rank for dim in chosen) if rank else []
    if 0 not in reduced:
        return None
    correction = _correction(node, arguments, overload) if kind in ("var", "std") else 0
    return (
        None
        if correction is None
        else Reduction(kind.removeprefix("a"), tuple(dim for dim in reduced if dim), correction)
    )


def _correction(node: Node, arguments: list[Any], overload: str) -> int | None:
    """Return the correction of a variance, or None if it is no whole number. `arguments` are those after the dimensions."""
    if overload == "correction":
        found: Any = node.kwargs.get("correction", 1)
        found = 1 if found is None else found
    else:
        found = node.kwargs.get("unbiased", arguments[0] if arguments else True)
    return int(found) if isinstance(found, int | float) and found == int(found) else None
