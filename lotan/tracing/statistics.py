"""Reductions over all vertices, and what is computed from them alone."""

from __future__ import annotations

from math import inf
from typing import Any, cast

from torch.fx import Node

from lotan.stages.row_wise import ALONG, GROWING, POINTWISE, bound_arguments, short_name
from lotan.tracing.forms import Form, extreme_arguments
from lotan.tracing.recording import Recording
from lotan.tracing.reductions import Reduction, reduction_of
from lotan.tracing.refusals import PRODUCT_OF_ROWS, STATISTIC_ALONE, STATISTIC_DIVISOR, layer_of, refusal
from lotan.tracing.type_totals import TypeTotals
from lotan.tracing.writing import CallWriter, Moved, leaves_of
from planner.spec import (
    DROPOUT,
    GREATEST,
    GROUP_ROWS,
    GROUP_TOTAL,
    TIMES_TOTAL,
    TOTAL,
    TOTAL_PRODUCTS,
    Argument,
    ParameterSpec,
    Ref,
    RowCount,
    ValueType,
)
from planner.steps.total import shape_of_total

EXPAND = "aten.expand.default"
_SAME_NUMBERS = ("aten.reshape.default", "aten.unsqueeze.default", "aten.squeeze.dims", "aten.squeeze.dim")
"""Operators that give a statistic another shape, and nothing else."""

_WITHIN = ("aten.linear.default", "aten.layer_norm.default")
"""Operators that work on the last dimensions, whatever comes before."""

_KEYWORDS = ("dtype", "correction")
"""The arguments of operators along dimensions that can only be given by name."""

_OF_ALL = {"aten.sum.default": "aten.sum.dim_IntList", "aten.mean.default": "aten.mean.dim"}
"""The forms with dimensions of operators that take all numbers of a statistic together."""

_BY_TOTAL = ("aten.mm.default", "aten.matmul.default")
"""Operators that multiply matrices."""


class StatisticsWriter(CallWriter):
    """Writes calls that reduce rows over all vertices, and calls that read the results.

    A result has a row for each vertex, and all rows are alike. A row has the shape that the whole value has in the recording.

    Args:
        parameters: all parameters and buffers of the model, in the model's order.
        recording: the model's recording.
    """

    def __init__(self, parameters: tuple[ParameterSpec, ...], recording: Recording) -> None:
        super().__init__(parameters, recording)
        self._statistics: set[str] = set()  # the names of the results, and of what is computed from them alone

    def _of_type(self, node: Node, x: Any) -> TypeTotals | None:
        """Return what writes reductions over the vertices that `x` has rows of, or None if they are all vertices."""
        number = self._symbols.number_of(x.meta["val"].shape[0])
        if self._vertex_types is None or number is None:
            return None
        return TypeTotals(
            self._vertex_types, number, lambda op, arguments, kind: self._call(node, op, arguments, kind=kind)
        )

    def _rows_of(self, node: Node, x: Any, kind: str) -> tuple[Ref, str, tuple[int, ...]]:
        """Return rows as a value, the kind of a reduction, and the shape of a row: the arguments of `TypeTotals.total`."""
        rows = self._argument(node, x)
        assert isinstance(rows, Ref)
        return rows, kind, self._types[rows.name].shape

    def _reduction(self, node: Node, name: str) -> Reduction | None:
        """Return the reduction over all vertices that a node calls, or None."""
        x = node.args[0] if node.args else None
        value = self._values.get(x) if isinstance(x, Node) else None
        if not isinstance(value, Ref) or value.name in self._statistics or self._types[value.name].rows != "vertex":
            return None
        return reduction_of(node, name)

    def _reduction_of_extreme(self, source: Node) -> Reduction | None:
        """Return the reduction over all vertices that a node with the greatest or least numbers and their places calls."""
        x, dim, _ = extreme_arguments(source)
        value = self._values.get(x) if isinstance(x, Node) else None
        if not isinstance(value, Ref) or value.name in self._statistics or self._types[value.name].rows != "vertex":
            return None
        first = dim % len(x.meta["val"].shape) == 0
        return Reduction(short_name(str(source.target)), ()) if first else None

    def _reduce(self, node: Node, reduction: Reduction, of: Any = None) -> None:
        """Write the calls of a reduction over all vertices.

        Args:
            node: the node whose value is the result.
            reduction: the reduction.
            of: the node with the rows, or None for the first argument of `node` (default: None).
        """
        of = node.args[0] if of is None else of
        x = self._argument(node, of)
        assert isinstance(x, Ref)
        kind = self._types[x.name]
        if kind.dtype != "float32":
            raise refusal(node, f"{reduction.kind} over all vertices needs float32, but got {kind.dtype}; use .float()")
        if reduction.kind in ("sum", "mean"):
            found = self._total(node, x, reduction.kind, reduction.others)
        elif reduction.kind in ("max", "min"):
            found = self._extreme_of_all(node, x, reduction, of)
        else:
            found = self._variance(node, x, reduction)
        if reduction.kind == "std":
            found = self._call(node, "aten.sqrt.default", (found,), kind=self._types[found.name])
        self._values[node] = self._as_statistic(node, found, tuple(node.meta["val"].shape))

    def _has_turned(self, node: Node) -> bool:
        value = self._values.get(cast(Node, node.args[0]))
        return isinstance(value, Moved) and value.axis == 1 and len(self._types[value.rows.name].shape) == 1

    def _products(self, node: Node) -> Ref:
        """Write the sum over all vertices of x[v] y[v]^T, for x.t() @ y. Its shape is [width of x, width of y]."""
        turned = self._values[cast(Node, node.args[0])]
        assert isinstance(turned, Moved)
        y = self._argument(node, node.args[1])
        kinds = [self._types.get(one.name) if isinstance(one, Ref) else None for one in (turned.rows, y)]
        if any(one is None or (one.rows, len(one.shape), one.dtype) != ("vertex", 1, "float32") for one in kinds):
            raise refusal(node, f"{short_name(str(node.target))} {PRODUCT_OF_ROWS}")
        shape = tuple(size for one in kinds if one is not None for size in one.shape)
        found = self._call(node, TOTAL_PRODUCTS, (turned.rows, y), kind=ValueType("vertex", shape))
        return self._as_statistic(node, found, shape)

    def _total(self, node: Node, x: Ref, kind: str, others: tuple[int, ...], rows: Any = None) -> Ref:
        """Return a reduction over all vertices and other dimensions, which keep size 1."""
        of = self._types[x.name]
        of_type = self._of_type(node, node.args[0] if rows is None else rows)
        if of_type is not None and kind == "sample":
            self._varied[of_type.number, layer_of(node)] = None
        if of_type is not None:
            found = of_type.total(x, kind, of.shape)
        else:
            whole = ValueType("vertex", shape_of_total(kind, of.shape))
            found = self._call(node, TOTAL, (x, kind), kind=whole, name=f"{node.name}_{kind}")
        if not others:
            return found
        shape = tuple(1 if dim in others else size for dim, size in enumerate(of.shape, 1))
        op = "aten.sum.dim_IntList" if kind == "sum" else "aten.mean.dim"
        return self._call(node, op, (found, others, True), kind=ValueType("vertex", shape))

    def _extreme_of_all(self, node: Node, x: Ref, reduction: Reduction, of: Any) -> Ref:
        """Return the greatest or the least numbers of all rows. The rows that have them share the gradient evenly.

        The value is exact, and its gradient is that of a sum of the rows' shares.
        """
        kind = self._types[x.name]
        if reduction.kind == "min":
            x = self._call(node, "aten.neg.default", (x,), kind=kind)
        rows = self._call(node, "aten.detach.default", (x,), kind=kind)
        of_type = self._of_type(node, of)
        if of_type is not None:
            rows = of_type.of_others(rows, kind.shape, -inf)
        found = self._call(node, GREATEST, (rows,), kind=kind)
        equal = self._call(node, "aten.eq.Tensor", (rows, found), kind=ValueType("vertex", kind.shape, "bool"))
        here = self._call(node, "aten.to.dtype", (equal, "torch.float32"), kind=kind)
        share = self._call(node, "aten.div.Tensor", (here, self._total(node, here, "sum", (), of)), kind=kind)
        shared = self._call(node, "aten.mul.Tensor", (x, share), kind=kind)
        again = self._total(node, shared, "sum", (), of)
        apart = (again, self._call(node, "aten.detach.default", (again,), kind=kind))
        nothing = self._call(node, "aten.sub.Tensor", apart, kind=kind)  # 0, with the gradient of the shares
        found = self._call(node, "aten.add.Tensor", (found, nothing), kind=kind)
        if reduction.others:
            shape = tuple(1 if dim in reduction.others else size for dim, size in enumerate(kind.shape, 1))
            arguments = (found, reduction.others, True)
            found = self._call(node, "aten.amax.default", arguments, kind=ValueType("vertex", shape))
        if reduction.kind == "min":
            found = self._call(node, "aten.neg.default", (found,), kind=self._types[found.name])
        return found

    def _group_total(self, node: Node, x: Any, group: Any, groups: int, kind: str) -> Ref:
        """Write a reduction of the rows of each group. Its result has the shape [groups, *shape]."""
        rows = self._argument(node, x)
        if not isinstance(rows, Ref) or rows.name in self._statistics or self._types[rows.name].rows != "vertex":
            raise refusal(node, "reduces by the groups of vertices, which needs one row per vertex")
        shape = (groups, *self._types[rows.name].shape)
        arguments = (rows, self._argument(node, group), groups, kind)
        found = self._call(node, GROUP_TOTAL, arguments, kind=ValueType("vertex", shape))
        self._statistics.add(found.name)
        return found

    def _group_rows(self, node: Node, table: Any, group: Any) -> Ref:
        """Write the entry of a table for each vertex's group. The table is a statistic or made of parameters alone."""
        rows = self._argument(node, table)
        if not isinstance(rows, Ref) or not self._has_no_rows(rows):
            raise refusal(node, "takes rows by the number of a group; take what was reduced by group, or a parameter")
        return self._call(node, GROUP_ROWS, (rows, self._argument(node, group)))

    def _has_no_rows(self, value: Ref) -> bool:
        return value.name in self._statistics or self._types[value.name].rows == "none"

    def _variance(self, node: Node, x: Ref, reduction: Reduction) -> Ref:
        if reduction.correction not in (0, 1) or (reduction.correction and reduction.others):
            raise refusal(node, f"{reduction.kind} {STATISTIC_DIVISOR}")
        kind = self._types[x.name]
        mean = self._total(node, x, "mean", reduction.others)
        apart = self._call(node, "aten.sub.Tensor", (x, mean), kind=kind)
        squares = self._call(node, "aten.mul.Tensor", (apart, apart), kind=kind)
        return self._total(node, squares, "sample" if reduction.correction else "mean", reduction.others)

    def _as_statistic(self, node: Node, value: Ref, shape: tuple[int, ...]) -> Ref:
        """Return a statistic, in another shape if need be."""
        if self._types[value.name].shape != shape:
            kind = ValueType("vertex", shape)
            value = self._call(node, "aten.reshape.default", (value, (RowCount(), *shape)), kind=kind)
        self._statistics.add(value.name)
        return value

    def _beside_statistics(self, node: Node, form: Form) -> None:
        """Write a call that reads a statistic, which gets the dimensions that broadcasting would give it."""
        value = node.meta["val"]
        kind = self._type(node, value)
        if kind.rows == "none" and form.op in _SAME_NUMBERS:
            source = self._argument(node, form.arguments[0])
            assert isinstance(source, Ref)
            self._values[node] = self._as_statistic(node, source, kind.shape)
            return
        if form.op in _BY_TOTAL and self._is_by_total(form, kind):
            x, total = (self._argument(node, argument) for argument in form.arguments)
            self._values[node] = self._call(node, TIMES_TOTAL, (x, total))
            return
        if kind.rows == "none" and form.op == DROPOUT:
            raise refusal(node, f"dropout is applied to {STATISTIC_ALONE}")
        if kind.rows == "none" and (form.op in _WITHIN or form.op in ALONG):
            self._values[node] = self._within_statistics(node, form, kind.shape)
            return
        if kind.rows == "edge" or not (form.op in POINTWISE or (kind.rows == "vertex" and form.op == EXPAND)):
            raise refusal(node, f"{short_name(form.op)} is applied to {STATISTIC_ALONE}")
        rank = len(kind.shape)

        def beside(argument: Any) -> Argument:
            found = self._argument(node, argument)
            return self._aligned(node, found, rank) if isinstance(found, Ref) else found

        arguments = tuple(map(beside, form.arguments))
        keywords = tuple((key, beside(argument)) for key, argument in form.keywords)
        found = self._call(node, form.op, arguments, keywords, ValueType("vertex", kind.shape, kind.dtype))
        if kind.rows == "none":
            self._statistics.add(found.name)
        self._values[node] = found

    def _within_statistics(self, node: Node, form: Form, shape: tuple[int, ...]) -> Ref:
        """Write a call of an operator on statistics alone that is not element-wise, such as a linear map of a sum by group.

        What has a row for each vertex gets one more dimension in front, so the dimensions that the call names move.
        """
        if form.op in _OF_ALL:
            of = form.arguments[0].meta["val"].dim()
            if not of:  # it is one number already
                found = self._argument(node, form.arguments[0])
                assert isinstance(found, Ref)
                return found
            form = Form(_OF_ALL[form.op], (form.arguments[0], tuple(range(of))), form.keywords)
        bound = bound_arguments(form.op, form.arguments, form.keywords)
        read = [leaf for leaf in leaves_of(list(bound.values())) if isinstance(leaf, Node)]
        rank = max(len(leaf.meta["val"].shape) for leaf in read) + (form.op in GROWING)
        name = ALONG.get(form.op)
        if name is not None:
            if any(not self._is_statistic(leaf) for leaf in read):
                raise refusal(node, f"{short_name(form.op)} is applied to {STATISTIC_ALONE}")
            dims = bound[name]
            dims = tuple(range(rank)) if dims is None or dims == () else dims
            bound[name] = tuple(d % rank + 1 for d in dims) if isinstance(dims, tuple) else dims % rank + 1
        names, arguments = list(bound), list(bound.values())
        while arguments and len(arguments) > 1 and arguments[-1] is None:
            names.pop(), arguments.pop()
        kind = ValueType("vertex", shape, str(node.meta["val"].dtype).removeprefix("torch."))
        given = tuple(self._argument(node, argument) for argument in arguments)
        keywords = [(key, value) for key, value in zip(names, given, strict=True) if key in _KEYWORDS]
        given = tuple(value for key, value in zip(names, given, strict=True) if key not in _KEYWORDS)
        found = self._call(node, form.op, given, tuple(pair for pair in keywords if pair[1] is not None), kind)
        self._statistics.add(found.name)
        return found

    def _is_by_total(self, form: Form, kind: ValueType) -> bool:
        """Return True if a call multiplies rows [num_vertices, k] by a statistic [k, n]."""
        x, total = (self._values.get(argument) if isinstance(argument, Node) else None for argument in form.arguments)
        if not isinstance(x, Ref) or not isinstance(total, Ref) or x.name in self._statistics or form.keywords:
            return False
        return kind.rows == "vertex" and len(self._types[x.name].shape) == 1 and len(self._types[total.name].shape) == 2

    def _aligned(self, node: Node, value: Ref, rank: int) -> Ref:
        """Return a statistic with `rank` dimensions besides the rows, or any other value as it is."""
        if value.name not in self._statistics:
            return value
        kind = self._types[value.name]
        shape = kind.shape[1:] if len(kind.shape) > rank else kind.shape  # the first is then 1, where the rows are
        shape = (*[1] * (rank - len(shape)), *shape)
        if shape == kind.shape:
            return value
        as_rows = ValueType("vertex", shape, kind.dtype)
        return self._call(node, "aten.reshape.default", (value, (RowCount(), *shape)), kind=as_rows)

    def _is_statistic(self, node: Node) -> bool:
        value = self._values.get(node)
        return isinstance(value, Ref) and value.name in self._statistics
