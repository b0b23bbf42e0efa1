"""The rows of a column of the blocks engine, chunk by chunk in the order of ids, as this process asks for them."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from pyspark import RDD
from pyspark.sql import DataFrame, Row
from pyspark.sql import types as T

from lotan.engines.action import force, free_java_objects
from lotan.engines.blocks.engine import BlocksEngine
from lotan.engines.blocks.part_tasks import ChunkTask, pack
from lotan.engines.rows.placement import Placement, active_session_kept, brought_over, open_session
from lotan.errors import EngineError
from lotan.graph.arrays import Ids, finder

ARROW_ROWS = 4096
"""The rows that a task packs at a time."""


class Division(Protocol):
    """The chunks of the positions of vertices."""

    @property
    def partitions(self) -> int:
        """The number of chunks."""

    def first(self, partition: int) -> int:
        """Return the position of the first vertex of a chunk."""

    def count(self, partition: int) -> int:
        """Return the number of vertices of a chunk."""


class RowsInParts:
    """The rows of a column. Spark places them by one shuffle, and each call brings one chunk here.

    Args:
        engine: The engine.
        rows: The column as a frame of id and values.
        ids: The ids of all vertices, ascending. Positions follow them.
        division: The chunks.
    """

    def __init__(self, engine: BlocksEngine, rows: DataFrame, ids: Ids, division: Division) -> None:
        self._engine, self._ids, self._division = engine, ids, division
        begins = ids[[division.first(part) for part in range(1, division.partitions)]]
        id_type = rows.schema["id"].dataType
        of_part = T.StructType([*rows.schema.fields, T.StructField("part", T.IntegerType())])
        packed = T.StructType([T.StructField("ids", T.ArrayType(id_type)), T.StructField("numbers", T.BinaryType())])
        with active_session_kept(engine.session):
            session = open_session(engine.session, engine.partitions, ARROW_ROWS)
            with brought_over(session, [rows]) as (mine,):
                numbered = mine.mapInArrow(ChunkTask(begins), of_part)
                placed = Placement(division.partitions).place(numbered, "part")
                self._rows: RDD[Row] | None = placed.select("id", "values").mapInArrow(pack, packed).rdd

    def of(self, part: int) -> np.ndarray:
        """Return the rows of a chunk, in the order of positions. float32 [vertices of the chunk, width].

        Raises:
            EngineError: If a task fails, or does not return the rows of all vertices of the chunk.
        """
        context, settings = self._engine.context, self._engine.settings
        found: list[Any] = []

        def fetch() -> None:
            assert self._rows is not None, "the rows are still there"
            found[:] = context.runJob(self._rows, list, [part])

        said = f"evaluation, rows of chunk {part + 1} of {self._division.partitions}"
        force(context, fetch, said, settings.attempts, settings.stall_seconds)
        first, count = self._division.first(part), self._division.count(part)
        out: np.ndarray | None = None
        seen, find = 0, finder(self._ids)
        for row in found:
            places = find(np.array(row["ids"], dtype=self._ids.dtype)) - first
            numbers = np.frombuffer(row["numbers"], dtype=np.float32).reshape(len(places), -1)
            out = np.empty((count, numbers.shape[1]), dtype=np.float32) if out is None else out
            out[places] = numbers
            seen += len(places)
        if out is None or seen != count:
            raise EngineError(f"{said}: {seen:,} rows came, and {count:,} were expected")
        return out

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows = None
        free_java_objects()  # with the last reference to its frames, Spark drops what it has shuffled
