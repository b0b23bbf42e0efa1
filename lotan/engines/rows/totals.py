"""Total: a reduction over all vertices, as a part for each partition, a shuffle of the parts to all, and a join.

It imports no torch, because its functions run in Spark's Python workers. Sums are taken in float64: within a partition in
the order of ids, and over partitions in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lotan.engines.rows.placement import ID, PART, Placement
from lotan.engines.rows.segments import run_starts
from lotan.engines.rows.sums import VALUE
from lotan.engines.rows.topology import runs
from lotan.engines.rows.vectors import from_lists, to_lists
from planner.spec import TotalKind, divisor

Batches = Iterable[pa.RecordBatch]
Run = Callable[[Batches], Iterator[pa.RecordBatch]]

PARTS = f"{PART} int, vertices bigint, mean array<double>, squares array<double>"
"""The schema of the parts: numbers of rows, means, and sums of squared distances from the mean."""


@dataclass(frozen=True)
class Part:
    """The rows of one partition, or of several, as far as a reduction needs them."""

    count: int
    mean: npt.NDArray[np.float64]  # [width]
    squares: npt.NDArray[np.float64]  # [width]: the sum of squared distances from the mean

    @classmethod
    def of(cls, rows: npt.NDArray[np.float32]) -> Part:
        """Return the part that one or more rows [rows, width] are."""
        numbers = rows.astype(np.float64)
        mean = numbers.mean(axis=0)
        return cls(len(rows), mean, np.square(numbers - mean).sum(axis=0))

    def __add__(self, other: Part) -> Part:
        """Return both together (Chan, Golub and LeVeque 1979)."""
        count = self.count + other.count
        if other.count == 0:
            return self
        apart, share = other.mean - self.mean, other.count / count
        squares = self.squares + other.squares + np.square(apart) * (self.count * share)
        return Part(count, self.mean + apart * share, squares)

    def row(self, kind: TotalKind) -> npt.NDArray[np.float64]:
        """Return the row that every vertex gets: [width], or [width * 2] for "moments", mean and variance side by side."""
        match kind:
            case "sum":
                return self.mean * self.count
            case "mean":
                return self.mean
            case "sample":
                return self.mean * (self.count / (self.count - 1))
        return np.stack([self.mean, self.squares / self.count], axis=-1).ravel()


@dataclass(frozen=True)
class GreatestPart:
    """The greatest numbers of some rows, in the form of a `Part`."""

    count: int
    mean: npt.NDArray[np.float64]  # [width]: the greatest of each number
    squares: npt.NDArray[np.float64]  # not used

    @classmethod
    def of(cls, rows: npt.NDArray[np.float32]) -> GreatestPart:
        """Return the part that one or more rows [rows, width] are."""
        found = rows.max(axis=0).astype(np.float64)
        return cls(len(rows), found, np.zeros(0))

    def __add__(self, other: GreatestPart) -> GreatestPart:
        """Return both together."""
        return GreatestPart(self.count + other.count, np.maximum(self.mean, other.mean), self.squares)


def total(
    vertices: DataFrame, column: DataFrame, kind: TotalKind, width: int, count: int, placement: Placement
) -> DataFrame:
    """Reduce a column over all vertices.

    Args:
        vertices: part, id, placed by part.
        column: part, id, VALUE, placed by part. Vertices without a row count as rows of zeros, but for "max" as nothing.
        kind: The kind of reduction.
        width: The width of a row of the column.
        count: The number of vertices.
        placement: The placement of vertices.

    Returns:
        part, id, VALUE, placed by part, for every vertex.
    """
    parts = column.sortWithinPartitions(PART, ID).select(PART, VALUE).mapInArrow(_parting(width, kind), PARTS)
    everywhere = F.explode(F.sequence(F.lit(0), F.lit(placement.partitions - 1))).alias("to")
    sent = parts.select(everywhere, *[F.col(name) for name in (PART, "vertices", "mean", "squares")])
    received = placement.place(sent, "to").sortWithinPartitions("to", PART)
    merged = received.mapInArrow(_merging(kind, width, count), f"{PART} int, {VALUE} array<float>")
    return vertices.select(PART, ID).join(placement.place(merged).hint("shuffle_hash"), [PART])


def _parting(width: int, kind: TotalKind) -> Run:
    """Return a function that turns rows that are sorted by partition into one part for each partition."""
    form: Any = GreatestPart if kind == "max" else Part

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        found: dict[int, Any] = {}
        for batch in batches:
            if batch.num_rows == 0:
                continue
            ends = [*run_starts(batch, [PART]).tolist(), batch.num_rows]
            for start, end in pairwise(ends):
                piece = batch.slice(start, end - start)
                number, own = piece.column(PART)[0].as_py(), form.of(from_lists(piece.column(VALUE), width))
                found[number] = found[number] + own if number in found else own
        for number, part in found.items():
            lists = [pa.array([part.mean]), pa.array([part.squares])]
            arrays = [pa.array([number], pa.int32()), pa.array([part.count], pa.int64()), *lists]
            yield pa.RecordBatch.from_arrays(arrays, names=[PART, "vertices", "mean", "squares"])

    return run


def _merging(kind: TotalKind, width: int, count: int) -> Run:
    """Return a function that turns the parts of all partitions, sorted, into one row for each partition they were sent to."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for received in runs(batches, ("to",)):
            row = to_lists(_merged(received, kind, width, count).astype(np.float32)[None])
            arrays = [received.column("to").slice(0, 1).cast(pa.int32()), row]
            yield pa.RecordBatch.from_arrays(arrays, names=[PART, VALUE])

    return run


def _merged(received: pa.RecordBatch, kind: TotalKind, width: int, count: int) -> npt.NDArray[np.float64]:
    """Return the row that every vertex gets, from the parts of all partitions."""
    if kind == "max":
        return reduce(GreatestPart.__add__, [GreatestPart(*of_one) for of_one in _fields(received)]).mean
    there = reduce(Part.__add__, [Part(*of_one) for of_one in _fields(received)])
    return (there + Part(count - there.count, np.zeros(width), np.zeros(width))).row(kind)


def _fields(received: pa.RecordBatch) -> Iterator[tuple[int, npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    counts = received.column("vertices").to_pylist()
    means, squares = (received.column(name).to_pylist() for name in ("mean", "squares"))
    for count, mean, square in zip(counts, means, squares, strict=True):
        yield count, np.array(mean), np.array(square)


def times(column: DataFrame, scale: DataFrame, width: int) -> DataFrame:
    """Multiply the rows of a column by one number each.

    Args:
        column: part, id, VALUE.
        scale: part, id, VALUE of width 1.
        width: The width of a row of the column.
    """
    both = column.join(scale.withColumnRenamed(VALUE, "scale").hint("merge"), [PART, ID])
    kind = column.schema[ID].dataType.simpleString()

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = from_lists(batch.column(VALUE), width) * from_lists(batch.column("scale"), 1)
            arrays = [batch.column(PART), batch.column(ID), to_lists(rows)]
            yield pa.RecordBatch.from_arrays(arrays, names=[PART, ID, VALUE])

    return both.select(PART, ID, VALUE, "scale").mapInArrow(run, f"{PART} int, {ID} {kind}, {VALUE} array<float>")


@dataclass(frozen=True)
class Spread:
    """The gradient of a column from the gradient of its total."""

    kind: TotalKind
    vertices: int
    width: int  # the width of a row of the column

    def __call__(
        self,
        vertices: DataFrame,
        id_type: str,
        sums: Sequence[DataFrame],
        x: DataFrame | None,
        moments: DataFrame | None,
        scale: DataFrame | None,
        plus: Sequence[DataFrame],
    ) -> DataFrame:
        """Return part, id, VALUE for every vertex, in no particular placement.

        Args:
            vertices: part, id.
            id_type: The type of an id.
            sums: The summed gradients of the total, for every vertex.
            x: The column that was reduced, for moments.
            moments: The total, for moments.
            scale: The scales of rows, of width 1, or None.
            plus: Other parts of the gradient of the column.
        """
        named = {f"sum{number}": frame for number, frame in enumerate(sums)}
        named |= {name: one for name, one in (("x", x), ("moments", moments), ("scale", scale)) if one is not None}
        named |= {f"plus{number}": frame for number, frame in enumerate(plus)}
        rows = vertices.select(PART, ID)
        for name, frame in named.items():
            rows = rows.join(frame.withColumnRenamed(VALUE, name).hint("merge"), [PART, ID], "left")
        return rows.mapInArrow(self._run, f"{PART} int, {ID} {id_type}, {VALUE} array<float>")

    def _run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            arrays = [batch.column(PART), batch.column(ID), to_lists(self._gradient(batch))]
            yield pa.RecordBatch.from_arrays(arrays, names=[PART, ID, VALUE])

    def _gradient(self, batch: pa.RecordBatch) -> npt.NDArray[np.float32]:
        """Return the gradient of a batch's rows, [rows, width]."""
        wide = self.width * (2 if self.kind == "moments" else 1)
        summed: npt.NDArray[np.float64] = np.stack(self._rows(batch, "sum", wide)).sum(axis=0, dtype=np.float64)
        (scale,) = self._rows(batch, "scale", 1) or (np.float32(1),)
        if self.kind == "moments":
            (x,), (moments,) = self._rows(batch, "x", self.width), self._rows(batch, "moments", wide)
            found = summed[:, 0::2] + 2 * (scale * x - moments[:, 0::2]) * summed[:, 1::2]
        else:
            found = summed
        given = (scale * found / divisor(self.kind, self.vertices)).astype(np.float32)
        return sum(self._rows(batch, "plus", self.width), given)

    @staticmethod
    def _rows(batch: pa.RecordBatch, prefix: str, width: int) -> list[npt.NDArray[np.float32]]:
        """Return the columns whose names begin with a prefix."""
        return [from_lists(batch.column(name), width) for name in batch.schema.names if name.startswith(prefix)]
