"""Total: a reduction over all vertices, as a part for each partition, a shuffle of the parts to all, and a join.

It imports no torch, because its functions run in Spark's Python workers. Sums are taken in float64: within a partition in
the order of ids, and over partitions in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

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
from planner.spec import TotalKind

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


def total(
    vertices: DataFrame, column: DataFrame, kind: TotalKind, width: int, count: int, placement: Placement
) -> DataFrame:
    """Reduce a column over all vertices.

    Args:
        vertices: part, id, placed by part.
        column: part, id, VALUE, placed by part. Vertices without a row count as rows of zeros.
        kind: The kind of reduction.
        width: The width of a row of the column.
        count: The number of vertices.
        placement: The placement of vertices.

    Returns:
        part, id, VALUE, placed by part, for every vertex.
    """
    parts = column.sortWithinPartitions(PART, ID).select(PART, VALUE).mapInArrow(_parts, PARTS)
    everywhere = F.explode(F.sequence(F.lit(0), F.lit(placement.partitions - 1))).alias("to")
    sent = parts.select(everywhere, *[F.col(name) for name in (PART, "vertices", "mean", "squares")])
    received = placement.place(sent, "to").sortWithinPartitions("to", PART)
    merged = received.mapInArrow(_merging(kind, width, count), f"{PART} int, {VALUE} array<float>")
    return vertices.select(PART, ID).join(placement.place(merged).hint("shuffle_hash"), [PART])


def _parts(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Turn rows that are sorted by partition into one part for each partition."""
    found: dict[int, Part] = {}
    for batch in batches:
        if batch.num_rows == 0:
            continue
        ends = [*run_starts(batch, [PART]).tolist(), batch.num_rows]
        for start, end in pairwise(ends):
            piece = batch.slice(start, end - start)
            number, own = piece.column(PART)[0].as_py(), Part.of(from_lists(piece.column(VALUE)))
            found[number] = found[number] + own if number in found else own
    for number, part in found.items():
        lists = [pa.array([part.mean]), pa.array([part.squares])]
        arrays = [pa.array([number], pa.int32()), pa.array([part.count], pa.int64()), *lists]
        yield pa.RecordBatch.from_arrays(arrays, names=[PART, "vertices", "mean", "squares"])


def _merging(kind: TotalKind, width: int, count: int) -> Run:
    """Return a function that turns the parts of all partitions, sorted, into one row for each partition they were sent to."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for received in runs(batches, ("to",)):
            parts = [Part(*of_one) for of_one in _fields(received)]
            there = reduce(Part.__add__, parts)
            whole = there + Part(count - there.count, np.zeros(width), np.zeros(width))
            row = to_lists(whole.row(kind).astype(np.float32)[None])
            arrays = [received.column("to").slice(0, 1).cast(pa.int32()), row]
            yield pa.RecordBatch.from_arrays(arrays, names=[PART, VALUE])

    return run


def _fields(received: pa.RecordBatch) -> Iterator[tuple[int, npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    counts = received.column("vertices").to_pylist()
    means, squares = (received.column(name).to_pylist() for name in ("mean", "squares"))
    for count, mean, square in zip(counts, means, squares, strict=True):
        yield count, np.array(mean), np.array(square)
