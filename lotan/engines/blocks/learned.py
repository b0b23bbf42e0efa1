"""Learned rows on blocks: this process holds them in the order of ids, and a pass brings them to their vertices and back.

The rows of a pass travel to Spark in pieces, one shuffle brings each piece to its partition, and their gradient comes back
partition by partition. So this process holds what the optimizer needs anyway, and the position of each vertex.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession

from lotan.engines.blocks.pipe import numbered
from lotan.engines.rows_of_types import RowsOfTypes
from lotan.errors import EngineError
from lotan.graph.arrays import Positions, finder
from planner.steps.learned_rows import OfType

if TYPE_CHECKING:
    from lotan.graph.graph import Graph

PIECE_BYTES = 4 << 20  # of rows that are sent to Spark at a time
JOB_BYTES = 64 << 20  # of rows that one job of Spark brings here
HEADER_BYTES = 8  # of a record that comes from Spark: its partition, and the place of its first vertex there
SCHEMA = pa.schema([("partition", pa.int32()), ("first", pa.int32()), ("values", pa.binary())])


class RowsByPlace:
    """Brings rows of this process to the vertices of loaded blocks, and rows of vertices to this process.

    Args:
        facade: The Scala object in the session's JVM.
        session: The session.
        blocks: The loaded graph in Spark.
        graph: The graph, whose ids are read at the first use.
    """

    def __init__(self, facade: Any, session: SparkSession, blocks: Any, graph: Graph) -> None:
        self._facade, self._session, self._blocks, self._graph = facade, session, blocks, graph
        self._within: dict[int, list[int]] = {}  # the vertices of each partition within a level

    @cached_property
    def _positions(self) -> dict[int, Positions]:
        """The positions of the vertices of each partition among all ids, in the partition's own order."""
        found: dict[int, list[Positions]] = {}
        ids = self._graph.ids
        find = finder(ids)
        for piece in _fetched(self._facade.ids(self._blocks), self._session):
            places = find(np.array(piece["ids"], dtype=ids.dtype))
            found.setdefault(piece["partition"], []).append(places)
        return {part: np.concatenate(pieces) for part, pieces in found.items()}

    @cached_property
    def _of_types(self) -> RowsOfTypes:
        return RowsOfTypes(self._graph)

    def column(self, rows: np.ndarray, within: int | None = None, of_type: OfType | None = None) -> Any:
        """Return a column of rows of this process, which Spark computes as it is read.

        Args:
            rows: Their rows in the order of ids. float32 [vertices, width], or those of a type alone.
            within: The level up to which vertices need a row; None: all vertices.
            of_type: The vertices that have rows, and all others have 0; None: all vertices have rows.
        """
        if of_type is not None:
            places = self._of_types[of_type.number].numpy()
            known, given = places >= 0, rows
            rows = np.zeros((len(places), given.shape[1]), dtype=np.float32)
            rows[known] = given[places[known]]
        table = self._session.createDataFrame(pa.Table.from_batches(self._pieces(rows, within), SCHEMA))
        return self._facade.attach(self._blocks, table._jdf, rows.shape[1], numbered(within))

    def _pieces(self, rows: np.ndarray, within: int | None) -> Iterator[pa.RecordBatch]:
        some = max(1, PIECE_BYTES // (4 * rows.shape[1]))
        for part, positions in self._positions.items():
            needed = positions if within is None else positions[: self._rows_within(within)[part]]
            for first in range(0, len(needed), some):
                numbers = np.ascontiguousarray(rows[needed[first : first + some]], dtype="<f4")
                ends = pa.py_buffer(np.array([0, numbers.nbytes], dtype=np.int32))
                values = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(numbers)])  # without a copy
                place = [pa.array([number], pa.int32()) for number in (part, first)]
                yield pa.RecordBatch.from_arrays([*place, values], schema=SCHEMA)

    def _rows_within(self, level: int) -> list[int]:
        if level not in self._within:
            self._within[level] = list(self._facade.rowsWithin(self._blocks, level))
        return self._within[level]

    def rows(self, column: Any, width: int, of_type: OfType | None = None) -> np.ndarray:
        """Return the rows of a column in the order of ids. Vertices beyond the level of the column have zeros.

        Args:
            column: The column in Spark, which is computed if it is not persisted.
            width: The numbers in a row.
            of_type: The vertices whose rows are returned, in the order of their own ids; None: all vertices.

        Raises:
            EngineError: If there are rows of too many vertices.
        """
        out = np.zeros((len(self._graph.ids), width), dtype=np.float32)
        jobs = max(1, min(len(self._positions), -(-out.nbytes // JOB_BYTES)))
        records: RDD[bytes] = RDD(self._facade.pieces(column, jobs), self._session.sparkContext, NoOpSerializer())
        for record in records.toLocalIterator(prefetchPartitions=True):
            partition, first = np.frombuffer(record, "<i4", 2).tolist()
            numbers = np.frombuffer(record, "<f4", offset=HEADER_BYTES).reshape(-1, width)
            places = self._positions[partition][first : first + len(numbers)]
            if len(places) != len(numbers):
                raise EngineError(
                    f"partition {partition} sent rows of {first + len(numbers):,} vertices, and has fewer"
                )
            out[places] = numbers
        if of_type is None:
            return out
        places = self._of_types[of_type.number].numpy()
        found = np.empty((of_type.count, width), dtype=np.float32)
        found[places[places >= 0]] = out[places >= 0]
        return found


def _fetched(table: Any, session: SparkSession) -> Iterator[Any]:
    """Return the pieces of a table in Spark, one partition after the other, so that few are here at one time."""
    return iter(DataFrame(table, session).toLocalIterator())
