"""Reductions over the vertices of one type, as reductions over all vertices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.spec import TOTAL, TRACK, Argument, Ref, RowCount, ValueType
from planner.vertex_types import VertexTypes

Write = Callable[[str, tuple[Argument, ...], ValueType], Ref]
"""A function that writes a call, given the operator, the arguments and the type, and returns its value."""

FEATURES = Ref("features")
FLAG, NUMBER = ValueType("vertex", (), "bool"), ValueType("vertex", ())


@dataclass(frozen=True)
class TypeTotals:
    """Writes the reductions over the vertices of one type. Rows of other types count as nothing.

    Attributes:
        types: the types of vertices of the graph.
        number: the number of the type.
        write: what writes a call.
    """

    types: VertexTypes
    number: int
    write: Write

    def total(self, x: Ref, kind: str, shape: tuple[int, ...]) -> Ref:
        """Return a reduction of rows [num_vertices, *shape], see `planner.spec.TotalKind`."""
        if kind == "sum":
            return self._sum(x, shape)
        count = self._reshaped(self._count(), shape)
        if kind == "sample":
            fewer = self.write("aten.sub.Tensor", (count, 1), ValueType("vertex", (1,) * len(shape)))
            return self._divided(self._sum(x, shape), fewer, shape)
        mean = self._divided(self._sum(x, shape), count, shape)
        if kind == "mean":
            return mean
        apart = self.write("aten.sub.Tensor", (x, mean), ValueType("vertex", shape))
        squares = self.write("aten.mul.Tensor", (apart, apart), ValueType("vertex", shape))
        variance = self._divided(self._sum(squares, shape), count, shape)
        return self.write("aten.stack.default", ((mean, variance), len(shape) + 1), ValueType("vertex", (*shape, 2)))

    def tracked_variance(self, rows: Ref, buffer: Argument, shape: tuple[int, ...]) -> Ref:
        """Return the biased variance of the type's vertices, and hand it in for a layer's running variance.

        The running variance is unbiased for the number of all vertices. So it is handed in times a factor, the same as that
        for the type divided by that for all vertices.
        """
        count = self._count()
        every = self.write(TOTAL, (self.write("aten.ones_like.default", (count,), NUMBER), "sum"), NUMBER)
        own = self.write("aten.div.Tensor", (count, self.write("aten.sub.Tensor", (count, 1), NUMBER)), NUMBER)
        of_all = self.write("aten.div.Tensor", (self.write("aten.sub.Tensor", (every, 1), NUMBER), every), NUMBER)
        factor = self._reshaped(self.write("aten.mul.Tensor", (own, of_all), NUMBER), shape)
        kind = ValueType("vertex", shape)
        handed = self.write(TRACK, (self.write("aten.mul.Tensor", (rows, factor), kind), buffer), kind)
        return self.write("aten.div.Tensor", (handed, factor), kind)

    def _here(self) -> Ref:
        """Return True for vertices of the type."""
        number = self.write("aten.select.int", (FEATURES, 1, self.types.type_column), NUMBER)
        return self.write("aten.eq.Scalar", (number, self.number), FLAG)

    def of_others(self, x: Ref, shape: tuple[int, ...], value: float) -> Ref:
        """Return rows [num_vertices, *shape] in which all numbers of vertices of other types are `value`."""
        here = self._reshaped(self._here(), shape, "bool")
        return self.write("aten.where.ScalarOther", (here, x, value), ValueType("vertex", shape))

    def _count(self) -> Ref:
        ones = self.write("aten.to.dtype", (self._here(), "torch.float32"), NUMBER)
        return self.write(TOTAL, (ones, "sum"), NUMBER)

    def _sum(self, x: Ref, shape: tuple[int, ...]) -> Ref:
        return self.write(TOTAL, (self.of_others(x, shape, 0.0), "sum"), ValueType("vertex", shape))

    def _divided(self, x: Ref, by: Ref, shape: tuple[int, ...]) -> Ref:
        return self.write("aten.div.Tensor", (x, by), ValueType("vertex", shape))

    def _reshaped(self, x: Ref, shape: tuple[int, ...], dtype: str = "float32") -> Ref:
        """Return one number for each row in a form that broadcasts over rows of a shape."""
        ones = (1,) * len(shape)
        if not ones:
            return x
        return self.write("aten.reshape.default", (x, (RowCount(), *ones)), ValueType("vertex", ones, dtype))
