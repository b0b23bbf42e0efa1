"""The tensors that a forward returns: the output, and further ones that the loss reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lotan.errors import ModelError

Refuse = Callable[[str], ModelError]
Further = tuple[tuple[str, tuple[int, ...]], ...]
"""The further tensors that a forward returns, each with the shape of a row."""

ALONE = (
    ". For a loss that reads more than the output, give loss= a function of (output, label, ...) with one argument for each "
    "further tensor; otherwise return the predictions alone"
)
SHAPES = "expected one number for all, or rows [num_vertices] or [num_vertices, k]"


def one_tensor(result: Any, refuse: Refuse) -> Tensor:
    """Return what forward returns, if it is a tensor.

    Raises:
        ModelError: it is something else.
    """
    if isinstance(result, Tensor):
        return result
    several = isinstance(result, tuple | list | dict)
    found = f"a {type(result).__name__} of {len(result)}" if several else type(result).__name__
    raise refuse(f"forward returns {found}; expected one tensor [num_vertices, outputs]{ALONE if several else ''}")


def joined(result: Any, names: Sequence[str], refuse: Refuse) -> tuple[Tensor, Further]:
    """Return the output with further tensors as columns behind its own, and the shapes of their rows.

    Args:
        result: what forward returns. Of a tuple or list, the first is the output, and the further ones are taken in order.
            Of a dictionary, they are taken by name, and the output is the first of the others.
        names: the names of the further tensors, which are the arguments of the loss.
        refuse: a function that returns the error for a reason.

    Returns:
        [num_vertices, outputs + further numbers], and the shape of a row by name. A number for all vertices has the shape ().

    Raises:
        ModelError: forward returns other things.
    """
    if not names:
        return one_tensor(result, refuse), ()
    output, further = _found(result, names, refuse)
    columns, shapes = [output], []
    for name, tensor in zip(names, further, strict=True):
        columns.append(_column(name, tensor, output, refuse))
        shapes.append((name, tuple(tensor.shape[1:])))
    return torch.cat(columns, dim=1), tuple(shapes)


def _found(result: Any, names: Sequence[str], refuse: Refuse) -> tuple[Tensor, list[Tensor]]:
    asked = f"the loss asks for {', '.join(names)}"
    if isinstance(result, Mapping):
        missing = [name for name in names if name not in result]
        others = [value for name, value in result.items() if name not in names]
        if missing or not others:
            raise refuse(f"forward returns a dict of {', '.join(map(str, result))}, and {asked} beside an output")
        found = [others[0], *(result[name] for name in names)]
    elif isinstance(result, tuple | list) and len(result) > len(names):
        found = [*result[: len(names) + 1]]
    else:
        kind = f"a {type(result).__name__} of {len(result)}" if isinstance(result, tuple | list) else "one value"
        raise refuse(f"forward returns {kind}, and {asked} beside an output")
    for name, value in zip(("the output", *names), found, strict=True):
        if not isinstance(value, Tensor):
            raise refuse(f"forward returns {type(value).__name__} for {name}; expected a tensor")
    if found[0].dim() != 2:
        raise refuse(f"forward returns an output of {found[0].dim()} dimensions; expected [num_vertices, outputs]")
    return found[0], found[1:]


def _column(name: str, tensor: Tensor, output: Tensor, refuse: Refuse) -> Tensor:
    """Return a further tensor as columns [num_vertices, k]."""
    if tensor.dim() == 0:
        return torch.zeros_like(output[:, :1]) + tensor
    if tensor.dim() > 2 or not _as_many(tensor.shape[0], output.shape[0]):
        raise refuse(f"forward returns {name} of shape {list(tensor.shape)}; {SHAPES}")
    return tensor if tensor.dim() == 2 else tensor.unsqueeze(1)


def _as_many(one: Any, other: Any) -> bool:
    """Return True for equal numbers of rows, which may be symbols."""
    if isinstance(one, torch.SymInt) and isinstance(other, torch.SymInt):
        return bool(one.node.expr == other.node.expr)
    return type(one) is type(other) and bool(one == other)
