"""The writing of calls: arguments, types and the values that earlier calls made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from lotan.stages.row_wise import DTYPES, short_name, why_not_row_wise
from lotan.tracing.forms import FullSize
from lotan.tracing.pyg.drawing import DRAW
from lotan.tracing.recording import Recording
from lotan.tracing.refusals import MOVED_ROWS, layer_of, line_of, refusal
from planner.spec import DISTRIBUTIONS, DROPOUT, Argument, Call, ParameterSpec, Ref, RowCount, ValueType

AT_LEAST_ONE = "every row needs at least one number: give the layer an output of that"


@dataclass(frozen=True)
class Unusable:
    """A value that no call may read, and the reason."""

    reason: str


@dataclass(frozen=True)
class Moved(Unusable):
    """Rows in another dimension than the first, as a value that has them first and all other dimensions in their order."""

    rows: Ref
    axis: int  # the dimension of the rows in the model


class CallWriter:
    """Writes calls one after the other, and knows the values that they make.

    Args:
        parameters: all parameters and buffers of the model, in the model's order.
        recording: the model's recording.
    """

    def __init__(self, parameters: tuple[ParameterSpec, ...], recording: Recording) -> None:
        self._parameters = {parameter.name: parameter for parameter in parameters}
        self._symbols = recording.symbols
        self._vertex_types = recording.vertex_types
        self._values: dict[Node, Argument | Unusable] = {}
        self._types = {name: ValueType("none", spec.shape, spec.dtype) for name, spec in self._parameters.items()}
        self._calls: list[Call] = []
        self._varied: dict[tuple[int, str], None] = {}  # types of vertices whose variance layers take, with the layers

    def _argument(self, node: Node, argument: Any) -> Argument:
        match argument:
            case Node():
                value = self._values[argument]
                if isinstance(value, Unusable):
                    raise refusal(node, value.reason)
                return value
            case FullSize():
                kind = self._type(node, node.meta["val"])
                return kind.shape if kind.rows == "none" else (RowCount(), *kind.shape)
            case list() | tuple():
                return tuple(self._argument(node, item) for item in argument)
            case torch.dtype():
                if str(argument) in DTYPES:
                    return str(argument)
                raise refusal(node, f"converts to {argument}, which is not supported; use one of {', '.join(DTYPES)}")
            case None | bool() | int() | float() | str():
                return argument
        raise refusal(node, f"an argument of type {type(argument).__name__} is not supported")

    def _call(
        self,
        node: Node,
        op: str,
        arguments: tuple[Argument, ...],
        keywords: tuple[tuple[str, Argument], ...] = (),
        kind: ValueType | None = None,
        name: str = "",
    ) -> Ref:
        name = name or node.name
        while name in self._types:
            name += "_"
        # Mixed rows are checked before the type, because that gives the better reason.
        reason = None if op.startswith("lotan.") else why_not_row_wise(op, arguments, keywords, self._types)
        if reason is not None:
            raise refusal(node, reason)
        kind = self._type(node, node.meta["val"]) if kind is None else kind
        if kind.rows != "none" and not kind.width:
            raise refusal(node, f"{short_name(op)} makes {describe(kind)}; {AT_LEAST_ONE}")
        self._types[name] = kind
        draw = str(node.meta.get(DRAW, "")) if op in (DROPOUT, *DISTRIBUTIONS) else ""
        self._calls.append(Call(name, op, arguments, kind, keywords, layer_of(node), line_of(node), draw))
        return Ref(name)

    def _type(self, node: Node, value: torch.Tensor) -> ValueType:
        dtype = str(value.dtype).removeprefix("torch.")
        if not value.dim():
            return ValueType("none", (), dtype)
        first, *others = value.shape
        rows = self._symbols.rows(first)
        if rows is None or not all(isinstance(size, int) for size in others):
            raise refusal(node, f"{short_name(str(node.target))} {MOVED_ROWS}")
        kind, edges = rows
        return ValueType(kind, (first, *others) if kind == "none" else tuple(others), dtype, edges)


def describe(kind: ValueType) -> str:
    """Return a type in words, such as "float32 of shape [num_vertices, 3]"."""
    rows = {"vertex": ["num_vertices"], "edge": ["num_edges"], "none": []}[kind.rows]
    return f"{kind.dtype} of shape [{', '.join([*rows, *map(str, kind.shape)])}]"


def leaves_of(argument: Any) -> list[Any]:
    """Return what lies in an argument, which may be a tuple of tuples, as a flat list."""
    if isinstance(argument, tuple | list):
        return [leaf for item in argument for leaf in leaves_of(item)]
    return [argument]
