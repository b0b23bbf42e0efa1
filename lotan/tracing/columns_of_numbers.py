"""A search for the column of the graph, or the range, of integers that a layer takes as types or classes."""

from __future__ import annotations

from collections.abc import Iterable

from planner.edge_columns import EDGE_COLUMN, fill_of
from planner.spec import Call, Ref, operator_name

_SAME_NUMBERS = ("reshape", "squeeze", "unsqueeze", "to")


def numbers_of(name: str, calls: Iterable[Call]) -> tuple[str, int] | int | None:
    """Return where the integers of a value come from.

    Args:
        name: the value, whose integers have one number in each row.
        calls: the calls that make it.

    Returns:
        The column of the graph and the position in its rows; or, for other integers, how many different ones there are
        at most; or None if that is not known.

    >>> from planner.spec import ValueType
    >>> row, number = ValueType("vertex", (4,)), ValueType("vertex", ())
    >>> x = Call("x", "lotan.vertex_input", ("features",), row)
    >>> third = Call("third", "aten.select.int", (Ref("x"), 1, 2), number)
    >>> numbers_of("kind", [x, third, Call("kind", "aten.to.dtype", (Ref("third"), "torch.int64"), number)])
    ('features', 2)
    """
    made = {call.output: call for call in calls}
    place = 0
    while (call := made.get(name)) is not None:
        known = _range(call, made)
        if known is not None:
            return known
        column = _column(call)
        if column is not None:
            return column, place
        first = call.arguments[0] if call.arguments else None
        if not isinstance(first, Ref):
            return None
        of = made.get(first.name)
        before = 0 if of is None else of.type.width
        if operator_name(call.op) in ("select", "slice") and call.type.width == 1 and before > 1:
            dim, start = call.arguments[1], call.arguments[2]
            if of is None or len(of.type.shape) != 1 or dim not in (1, -1) or not isinstance(start, int):
                return None
            place = start % before
        elif operator_name(call.op) not in _SAME_NUMBERS or before != call.type.width:
            return None
        name = first.name
    return None


def _column(call: Call) -> str | None:
    """Return the name of the graph's column that a call reads, or None."""
    if call.op == "lotan.vertex_input" and call.arguments[0] == "features":
        return "features"
    name = fill_of(str(call.arguments[0]))[0] if call.op == EDGE_COLUMN else ""
    return name if name in ("edge_attr", "edge_type") else None


def _range(call: Call, made: dict[str, Call]) -> int | None:
    """Return how many different integers from 0 a call makes at most, or None if that is not known."""
    name = operator_name(call.op)
    first = call.arguments[0] if call.arguments else None
    of = made.get(first.name) if isinstance(first, Ref) else None
    if call.type.dtype == "bool":
        return 2
    if name == "argmax" and of is not None and of.type.shape:
        return max(of.type.shape)
    if name in ("clamp", "clamp_max", "minimum"):
        greatest = call.arguments[-1] if name != "clamp" else (call.arguments[2] if len(call.arguments) > 2 else None)
        return int(greatest) + 1 if isinstance(greatest, int | float) else None
    if name == "remainder" and isinstance(call.arguments[1], int) and call.arguments[1] > 0:
        return call.arguments[1]
    return None
