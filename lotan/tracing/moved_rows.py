"""Rows in another dimension than the first, as those of a tensor [stacks, num_vertices, channels].

A call always has its rows in the first dimension. The value of such a node is written as if they had been moved there, with
all other dimensions in their order, and the place where the model has them is kept beside it (`Moved`). Each operator that
reads it is written with its dimensions counted accordingly.
"""

from __future__ import annotations

import operator
from math import prod
from typing import Any, cast

import torch
from torch.fx import Node

from lotan.stages.row_wise import ALONG, FACTORIES, GROWING, POINTWISE, TRANSPOSES, overload, short_name
from lotan.tracing.forms import Form, FullSize
from lotan.tracing.refusals import MOVED_ROWS, STATISTIC_ALONE, refusal
from lotan.tracing.statistics import StatisticsWriter
from lotan.tracing.writing import AT_LEAST_ONE, Moved, describe, leaves_of
from planner.spec import DISTRIBUTIONS, DROPOUT, Argument, Ref, RowCount, ValueType

OTHER_PLACE = "reads rows that lie in different dimensions; bring them to one place first, as by transpose"
OVER_ROWS = "works along the dimension of the rows; use another dimension"
WITHOUT_DIMENSION = "without a dimension runs over all rows; pass the dimensions that it is for"
SPLITS_ROWS = "mixes the rows with another dimension; move the rows first by transpose or permute, then reshape"

_PLACES = ("aten.movedim.int", "aten.permute.default", *TRANSPOSES)
_PRODUCTS = ("aten.matmul.default", "aten.mm.default", "aten.bmm.default")
_LETTERS = "abcdefghijklm"


class MovedRowsWriter(StatisticsWriter):
    """Writes calls of operators that move the rows out of the first dimension, and of those that read such values."""

    draws_moved = False
    """True if random numbers are drawn for such values or inside recurrent layers, in another order than in the model."""

    def _is_moved(self, node: Node, form: Form) -> bool:
        """Return True if a call makes or reads rows in another dimension than the first."""
        leaves = leaves_of((form.arguments, [value for _, value in form.keywords]))
        if any(isinstance(leaf, Node) and isinstance(self._values.get(leaf), Moved) for leaf in leaves):
            return True
        return bool(self._axis(node))

    def _axis(self, node: Node) -> int | None:
        """Return the dimension of the rows of a node's value, or None if it has none, or several."""
        shape = node.meta["val"].shape
        places = [place for place, size in enumerate(shape) if not isinstance(size, int)]
        return places[0] if len(places) == 1 and self._symbols.rows(shape[places[0]]) is not None else None

    def _move(self, node: Node, form: Form) -> None:
        """Write the call of a node that makes or reads rows in another dimension than the first."""
        op = form.op
        given: list[Argument]
        if op in (DROPOUT, *DISTRIBUTIONS):
            self.draws_moved = True
        if op in _PLACES:
            self._transposed(node, form)
        elif op == "aten.reshape.default":
            self._reshaped(node, form.arguments[0])
        elif op == "aten.expand.default":
            x = self._aligned_to(node, form.arguments[0])
            self._put(node, op, (x, (RowCount(), *self._rest(node))))
        elif op in ALONG:
            self._along(node, form)
        elif op in FACTORIES:
            size: Argument = (RowCount(), *self._rest(node))
            given = [size if isinstance(one, FullSize) else self._plain(node, one) for one in form.arguments]
            self._put(node, op, tuple(given), self._keywords(node, form))
        elif op in (DROPOUT, *DISTRIBUTIONS) or (op in POINTWISE and op != "aten.prelu.default"):
            given = [
                self._aligned_to(node, one) if _is_tensor(one) else self._argument(node, one) for one in form.arguments
            ]
            self._put(node, op, tuple(given), self._keywords(node, form))
        elif op in ("aten.linear.default", "aten.layer_norm.default", "aten.rms_norm.default"):
            self._within_last(node, form)
        elif op in _PRODUCTS:
            self._product(node, *cast(Any, form.arguments))
        elif op == "aten.einsum.default":
            self._einsum(node, form)
        else:
            raise self._refuse(node, MOVED_ROWS)

    # Values

    def _refuse(self, node: Node, reason: str) -> Exception:
        return refusal(node, f"{_name(node)} {reason}")

    def _rest(self, node: Node) -> tuple[int, ...]:
        """Return the sizes of a node's value without that of the rows."""
        axis = self._axis(node)
        if axis is None:
            raise self._refuse(node, MOVED_ROWS)
        return tuple(size for place, size in enumerate(node.meta["val"].shape) if place != axis)

    def _put(
        self, node: Node, op: str, arguments: tuple[Argument, ...], keywords: tuple[tuple[str, Argument], ...] = ()
    ) -> None:
        """Write the call of a node whose arguments have the rows first."""
        value, rest = node.meta["val"], self._rest(node)
        found = self._call(node, op, arguments, keywords, self._kind_of(node, rest, value))
        self._place(node, found)

    def _place(self, node: Node, rows: Ref) -> None:
        """Let a value with the rows first stand for a node, which has them where its shape says."""
        axis = self._axis(node)
        moved = Moved(f"{_name(node)} {MOVED_ROWS}", rows, axis) if axis else rows
        self._values[node] = moved

    def _kind_of(self, node: Node, rest: tuple[int, ...], value: torch.Tensor) -> ValueType:
        axis = self._axis(node)
        assert axis is not None  # else there are no other sizes
        found = self._symbols.rows(value.shape[axis])
        assert found is not None
        kind = ValueType(found[0], rest, str(value.dtype).removeprefix("torch."), found[1])
        if not kind.width:
            raise self._refuse(node, f"makes {describe(kind)}; {AT_LEAST_ONE}")
        return kind

    def _rows_first(self, node: Node, x: Any) -> tuple[Ref, int | None]:
        """Return an argument with its rows first, and the dimension in which the model has them; None without rows."""
        value = self._values[x]
        if isinstance(value, Moved):
            return value.rows, value.axis
        found = self._argument(node, x)
        if not isinstance(found, Ref):
            raise self._refuse(node, MOVED_ROWS)
        if found.name in self._statistics:
            raise refusal(node, f"{_name(node)} is applied to {STATISTIC_ALONE}")
        return found, 0 if self._types[found.name].rows != "none" else None

    def _plain(self, node: Node, argument: Any) -> Argument:
        return self._rows_first(node, argument)[0] if _is_tensor(argument) else self._argument(node, argument)

    def _keywords(self, node: Node, form: Form) -> tuple[tuple[str, Argument], ...]:
        return tuple((name, self._argument(node, value)) for name, value in form.keywords)

    def _aligned_to(self, node: Node, x: Node) -> Ref:
        """Return an argument in a shape that broadcasts, with the rows first, to the shape of a node's value."""
        axis, rank = self._axis(node), len(node.meta["val"].shape)
        if axis is None:
            raise self._refuse(node, MOVED_ROWS)
        value, place = self._rows_first(node, x)
        shape = tuple(x.meta["val"].shape)
        before = rank - len(shape)  # dimensions that broadcasting adds in front
        kind = self._types[value.name]
        if place is not None:
            if place + before != axis:
                raise self._refuse(node, OTHER_PLACE)
            return self._in_shape(node, value, (*[1] * before, *kind.shape))
        place = axis - before
        if place < 0:
            return value
        return self._in_shape(node, value, shape[:place] + shape[place + 1 :])  # its size there is 1

    def _in_shape(self, node: Node, value: Ref, shape: tuple[int, ...]) -> Ref:
        """Return a value in another shape of its rows, or as it is."""
        kind = self._types[value.name]
        if kind.shape == shape:
            return value
        size: Argument = shape if kind.rows == "none" else (RowCount(), *shape)
        return self._call(node, "aten.reshape.default", (value, size), kind=kind._replace(shape=shape))

    # Operators

    def _transposed(self, node: Node, form: Form) -> None:
        """Write the rows of a node that gives dimensions another order."""
        x = form.arguments[0]
        value, axis = self._rows_first(node, x)
        order = _order(form.op, self._named(form), len(x.meta["val"].shape))
        others = [(dim + 1 if axis is not None and dim < axis else dim) for dim in order if dim != axis]
        if others == sorted(others):
            return self._place(node, value)
        return self._put(node, "aten.permute.default", (value, (0, *others)))

    def _reshaped(self, node: Node, x: Node) -> None:
        """Write a reshaping that leaves the rows apart: as many numbers lie before and after them as did."""
        value, axis = self._rows_first(node, x)
        rest, to = self._rest(node), self._axis(node)
        shape = [size for place, size in enumerate(x.meta["val"].shape) if place != axis]
        if axis is None or prod(shape[:axis]) != prod(rest[:to]):
            raise self._refuse(node, SPLITS_ROWS)
        self._place(node, self._in_shape(node, value, rest))

    def _along(self, node: Node, form: Form) -> None:
        """Write an operator along dimensions other than that of the rows."""
        name, bound = ALONG[form.op], self._named(form)
        nodes = [leaf for leaf in leaves_of(tuple(bound.values())) if _is_tensor(leaf)]
        tables = [bound["index"]] if form.op == "aten.index_select.default" else []
        found = {self._rows_first(node, x)[1] for x in nodes if x not in tables}
        if len(found) > 1 or None in found:
            raise self._refuse(node, OTHER_PLACE)
        ranks = {len(x.meta["val"].shape) for x in nodes if x not in tables}
        growing = form.op in GROWING
        axis, rank = (self._axis(node) if growing else found.pop()), max(ranks) + growing
        if bound.get(name) in (None, (), []):
            raise self._refuse(node, WITHOUT_DIMENSION)
        if axis is None or len(ranks) > 1:
            raise self._refuse(node, MOVED_ROWS)

        def moved(dim: int) -> int:
            dim %= rank
            if dim == axis:
                raise self._refuse(node, OVER_ROWS)
            return dim + 1 if dim < axis else dim

        dims = bound[name]
        bound[name] = moved(dims) if isinstance(dims, int) else tuple(moved(dim) for dim in dims)
        given = {key: self._all_first(node, value) for key, value in bound.items() if value is not None}
        schema = overload(form.op)._schema.arguments
        alone = tuple((one.name, given[one.name]) for one in schema if one.kwarg_only and one.name in given)
        places = [one.name for one in schema if not one.kwarg_only]
        while places and places[-1] not in given:
            places.pop()
        self._put(node, form.op, tuple(given.get(place) for place in places), alone)

    def _moved_extreme(self, node: Node, x: Node, dim: int, keepdim: bool, argmax: str) -> None:
        """Write the greatest or least numbers along a dimension, at the position where torch finds them."""
        value, axis = self._rows_first(node, x)
        dim, kind = dim % len(x.meta["val"].shape), self._types[value.name]
        if axis is None or dim == axis:
            raise self._refuse(node, OVER_ROWS)
        dim += dim < axis
        kept = kind._replace(shape=(*kind.shape[: dim - 1], 1, *kind.shape[dim:]))
        there = self._call(
            node, argmax, (value, dim, True), kind=kept._replace(dtype="int64"), name=f"{node.name}_position"
        )
        found = self._call(node, "aten.gather.default", (value, dim, there), kind=kept, name=f"{node.name}_kept")
        self._place(node, found if keepdim else self._in_shape(node, found, self._rest(node)))

    def _all_first(self, node: Node, argument: Any) -> Argument:
        """Return an argument, or each of several, with the rows first."""
        if isinstance(argument, list | tuple):
            return tuple(self._all_first(node, item) for item in argument)
        return self._plain(node, argument)

    def _named(self, form: Form) -> dict[str, Any]:
        """Return the arguments of a call by their names, defaults included."""
        schema = overload(form.op)._schema.arguments
        values = {one.name: one.default_value for one in schema}
        values.update(zip((one.name for one in schema), form.arguments, strict=False))
        return values | dict(form.keywords)

    def _within_last(self, node: Node, form: Form) -> None:
        """Write an operator that works on the last dimensions, whatever comes before."""
        x, *others = form.arguments
        value, axis = self._rows_first(node, x)
        last = 1 if form.op == "aten.linear.default" else len(others[0])
        if axis is None or axis >= len(x.meta["val"].shape) - last:
            raise self._refuse(node, OVER_ROWS)
        self._put(node, form.op, (value, *(self._plain(node, one) for one in others)), self._keywords(node, form))

    def _product(self, node: Node, left: Node, right: Node) -> None:
        """Write a product of matrices, one of which has rows, in each of which the rows lie before the last dimension."""
        (x, axis), (y, other) = self._rows_first(node, left), self._rows_first(node, right)
        ranks = len(left.meta["val"].shape), len(right.meta["val"].shape)
        if axis is not None and other is not None:
            if axis != other or ranks[0] != ranks[1] or axis >= ranks[0] - 2:
                raise self._refuse(node, OTHER_PLACE)
            return self._put(node, "aten.matmul.default", (x, y))
        if axis is None:
            if other != ranks[1] - 1 or ranks[0] != 2:
                raise self._refuse(node, MOVED_ROWS)
            return self._put(node, "aten.linear.default", (y, x))  # W x^T has the rows of x W^T
        if axis == ranks[0] - 1 or ranks[1] < 2:
            raise self._refuse(node, OVER_ROWS)
        if ranks[1] == 2:
            return self._put(node, "aten.matmul.default", (x, y))
        if axis != ranks[0] - 2:
            raise self._refuse(node, MOVED_ROWS)
        whole = _LETTERS[: max(ranks) - 2]
        matrices = whole[len(whole) - (ranks[1] - 2) :]
        rows = whole[len(whole) - (ranks[0] - 2) :]
        return self._put(node, "aten.einsum.default", (f"n{rows}x,{matrices}xy->n{whole}y", (x, y)))

    def _einsum(self, node: Node, form: Form) -> None:
        """Write an einsum whose letter for the rows comes first in each term that has it."""
        equation, operands = str(form.arguments[0]).replace(" ", ""), cast(Any, form.arguments[1])
        terms, arrow, output = equation.partition("->")
        found = [self._rows_first(node, one) for one in operands]
        given = terms.split(",")
        letters = {term[axis] for term, (_, axis) in zip(given, found, strict=True) if axis is not None}
        if not arrow or "." in equation or len(letters) != 1:
            raise self._refuse(node, MOVED_ROWS)
        letter = letters.pop()
        first = [
            term if axis is None else letter + term.replace(letter, "")
            for term, (_, axis) in zip(given, found, strict=True)
        ]
        equation = f"{','.join(first)}->{letter}{output.replace(letter, '')}"
        self._put(node, form.op, (equation, tuple(value for value, _ in found)))


def _name(node: Node) -> str:
    """Return the name of a node's operator; for one of several results, of the operator that made them."""
    return short_name(str((node.args[0] if node.target is operator.getitem else node).target))  # type: ignore[union-attr]


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, Node) and isinstance(argument.meta.get("val"), torch.Tensor)


def _order(op: str, bound: dict[str, Any], rank: int) -> list[int]:
    """Return the dimensions of an operator's input in the order in which its output has them."""
    order = list(range(rank))
    match op:
        case "aten.permute.default":
            return [dim % rank for dim in bound["dims"]]
        case "aten.numpy_T.default":
            return order[::-1]
        case "aten.movedim.int":
            order.remove(bound["source"] % rank)
            order.insert(bound["destination"] % rank, bound["source"] % rank)
            return order
        case "aten.t.default":
            first, second = 0, rank - 1
        case "aten.mT.default":
            first, second = rank - 2, rank - 1
        case _:
            first, second = (
                value % rank for name, value in bound.items() if name in ("dim0", "dim1", "axis0", "axis1")
            )
    order[first], order[second] = order[second], order[first]
    return order
