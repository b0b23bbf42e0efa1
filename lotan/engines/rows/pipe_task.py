"""The part of a Pipe that runs in Spark's Python workers: it turns a partition's rows to chunks, and results back to rows.

It imports neither torch nor the planner, because Spark starts many of these processes. `PipeTask` is plain data,
pickled by Spark. Tensors have the names that `lotan.stages.tensor_names` gives them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lotan.engines.rows.topology import runs
from lotan.engines.rows.vectors import from_lists, to_lists
from lotan.stages import tensor_names
from messenger.dealer import shared_dealer
from messenger.endpoint import Endpoint
from messenger.errors import MessengerError
from messenger.frames import digest
from messenger.jobs import OutgoingChunk, PipeJob, ReturnedChunk
from messenger.settings import Settings

Batches = Iterable[pa.RecordBatch]
Array = npt.NDArray[Any]

VERTEX = 0  # the `tag` of rows of a chunk's vertices; an edge set's rows follow: its edges, then its sources


class PipeFailed(RuntimeError):  # noqa: N818 -- its name shows in Spark's log, beside the reason
    """A partition that could not be piped. The message begins with the type of the reason, followed by the place."""


@dataclass(frozen=True)
class Field:
    """A tensor of a chunk, and the frame columns whose sum it is."""

    tensor: str
    columns: tuple[str, ...]
    width: int | None = None  # numbers per row of an array column; None: a column of plain numbers
    dtype: str = "float32"
    absent: float = 0.0  # the number that stands for a vertex without a row
    one: bool = False  # True if the rows of all vertices are alike, so that one is sent


@dataclass(frozen=True)
class EdgeField:
    """A tensor of a chunk with numbers of its edges, which are some of those in the column `data`."""

    tensor: str
    at: int  # the place of the first number
    width: int
    whole: bool  # True for int64 [edges], False for float32 [edges, width]


@dataclass(frozen=True)
class Neighbours:
    """An edge set of the stage: the tags of its rows, and the parts of it that are sent."""

    edges: str
    tag: int  # the tag of the row with the edges; the sources have the next tag
    sources: tuple[Field, ...]
    weighted: bool
    keyed: bool
    columns: tuple[EdgeField, ...] = ()
    width: int = 0  # the numbers of an edge in `data`


@dataclass(frozen=True)
class Returned:
    """A tensor of a result, and the frame column that it becomes."""

    tensor: str
    column: str
    kind: int  # VERTEX, or the tag of the sources that it belongs to
    edges: str = ""  # the edge set of these sources
    one: bool = False  # True for one row for each chunk, which stands beside the chunk's first vertex


@dataclass(frozen=True)
class PipeTask:
    """A pass of one stage, for any partition."""

    job: PipeJob  # the partition is filled in from the rows
    endpoint: Endpoint
    settings: Settings
    chunk_rows: int
    fields: tuple[Field, ...]
    neighbours: tuple[Neighbours, ...]
    returned: tuple[Returned, ...]
    static: frozenset[str]  # tensors that are the same in every pass
    epoch_kept: frozenset[str]  # tensors that several stages of a pass read
    source_gradients: Literal["summed", "per_edge"] = "summed"  # the rows that come back: one a source, or one an edge

    @property
    def __name__(self) -> str:
        """The name of the task in Spark's UI and in a query's plan."""
        return f"{self.job.stage} {self.job.mode}"

    @property
    def contributes(self) -> bool:
        """True if rows also come back for sources, and so must be told apart."""
        return any(item.kind != VERTEX for item in self.returned)

    def schema(self, id_type: str) -> str:
        """Return the schema of the rows that come back."""
        places = "kind int, origin int, chunk int, position int, " if self.contributes else ""
        vectors = ", ".join(f"`{item.column}` array<float>" for item in self.returned)
        return f"part int, id {id_type}, {places}{vectors}" if vectors else f"part int, id {id_type}"

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Pipe rows for `mapInArrow`, which must be sorted by part, chunk, (tag,) position."""
        chunks = runs(batches, ("part", "chunk"))
        for part, of_part in groupby(chunks, key=lambda rows: rows.column("part")[0].as_py()):
            yield from self._partition(replace(self.job, partition=part), of_part)

    def _partition(self, job: PipeJob, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: deque[ChunkRows] = deque()  # chunks that were sent and are not back yet

        def outgoing() -> Iterator[OutgoingChunk]:
            for batch in rows:
                chunk = ChunkRows(self, batch)
                waiting.append(chunk)
                yield chunk.outgoing()

        results = shared_dealer(self.endpoint, self.settings).pipe(job, outgoing())
        try:
            for result in results:
                yield from waiting.popleft().rows_back(result)
        except MessengerError as error:
            where = "" if str(job) in str(error) else f"{job}: "
            raise PipeFailed(f"{type(error).__name__}: {where}{error}") from error
        finally:
            results.close()


class ChunkRows:
    """The rows of one chunk as they came from Spark."""

    def __init__(self, task: PipeTask, rows: pa.RecordBatch) -> None:
        self.task, self.rows = task, rows
        self.part, self.index = rows.column("part")[0].as_py(), rows.column("chunk")[0].as_py()
        self._bounds = self._find_tags()
        self.vertices = self._tagged(VERTEX)

    def _find_tags(self) -> npt.NDArray[np.int64] | None:
        if not self.task.neighbours:
            return None
        tags = self.rows.column("tag").to_numpy()
        return np.searchsorted(tags, np.arange(2 * len(self.task.neighbours) + 2))

    def _tagged(self, tag: int) -> pa.RecordBatch:
        """Return the rows with a tag, which are consecutive; their positions must count from 0."""
        if self._bounds is None:
            found = self.rows
        else:
            start = int(self._bounds[tag])
            found = self.rows.slice(start, int(self._bounds[tag + 1]) - start)
        positions = found.column("position").to_numpy()
        if not np.array_equal(positions, np.arange(len(positions))):
            raise PipeFailed(f"OrderError: {self.task.job}: rows of chunk {self.index} came out of order or twice")
        return found

    def outgoing(self) -> OutgoingChunk:
        """Return the chunk that is sent."""
        tensors: dict[str, Array] = {tensor_names.KEYS: self.vertices.column("key").to_numpy()}
        for field in self.task.fields:
            tensors[field.tensor] = _read(self.vertices.slice(0, 1) if field.one else self.vertices, field)
        for neighbours in self.task.neighbours:
            tensors |= self._edges(neighbours)
        self.digest = digest(_ids(self.vertices))
        return OutgoingChunk(
            index=self.index,
            first_row=self.index * self.task.chunk_rows,
            rows=self.vertices.num_rows,
            digest=self.digest,
            tensors=tensors,
            static=self.task.static & tensors.keys(),
            epoch_kept=self.task.epoch_kept & tensors.keys(),
        )

    def _edges(self, neighbours: Neighbours) -> dict[str, Array]:
        name, tag = neighbours.edges, neighbours.tag
        tensors = {
            tensor_names.indptr(name): self._indptr(tag),
            tensor_names.positions(name): self._on_edges(tag, "positions", np.int64),
        }
        if neighbours.weighted:
            tensors[tensor_names.weight(name)] = self._on_edges(tag, "weight", np.float32)
        if neighbours.keyed:
            tensors[tensor_names.edge_keys(name)] = self._on_edges(tag, "keys", np.int64)
        for field in neighbours.columns:
            tensors[field.tensor] = self._edge_column(neighbours, field)
        sources = self._tagged(tag + 1)
        return tensors | {field.tensor: _read(sources, field) for field in neighbours.sources}

    def _indptr(self, tag: int) -> Array:
        """Return where the in-edges of each vertex begin, and where the last end. int64 [rows + 1]."""
        rows = self.vertices.num_rows
        held = _blob(self._tagged(tag), "indptr", np.int64)
        return held[: rows + 1] if len(held) else np.zeros(rows + 1, dtype=np.int64)

    def _on_edges(self, tag: int, column: str, dtype: Any) -> Array:
        """Return a number for each in-edge of the vertices; if a level cuts the chunk, for its first edges only. [edges]."""
        return _blob(self._tagged(tag), column, dtype)[: self._indptr(tag)[-1]]

    def _edge_column(self, neighbours: Neighbours, field: EdgeField) -> Array:
        """Return a column of the in-edges: int64 [edges], or float32 [edges, width]."""
        edges = self._indptr(neighbours.tag)[-1]
        data = _blob(self._tagged(neighbours.tag), "data", np.float32).reshape(-1, neighbours.width)[:edges]
        numbers = np.ascontiguousarray(data[:, field.at : field.at + field.width])
        return numbers[:, 0].astype(np.int64) if field.whole else numbers

    def rows_back(self, result: ReturnedChunk) -> Iterator[pa.RecordBatch]:
        """Yield the result as rows: one batch for the vertices, and one for the sources of each edge set that has gradients."""
        if (result.index, result.rows, result.digest) != (self.index, self.vertices.num_rows, self.digest):
            raise PipeFailed(f"OrderError: {self.task.job}: chunk {result.index} came back in place of {self.index}")
        for kind in sorted({item.kind for item in self.task.returned}):
            yield self._batch(kind, result.tensors)

    def _batch(self, kind: int, tensors: Mapping[str, Array]) -> pa.RecordBatch:
        if kind == VERTEX:
            part, ids = self.vertices.column("part"), self.vertices.column("id")
        else:
            part, ids = self._sources(kind)
        count = len(ids)
        arrays, names = [part, ids], ["part", "id"]
        if self.task.contributes:
            constants = {"kind": kind, "origin": self.part, "chunk": self.index}
            arrays += [pa.array(np.full(count, value, dtype=np.int32)) for value in constants.values()]
            arrays.append(pa.array(np.arange(count, dtype=np.int32)))
            names += [*constants, "position"]
        for item in self.task.returned:
            given = to_lists(tensors[item.tensor]) if item.kind == kind else _nulls(count)
            arrays.append(pa.concat_arrays([given, _nulls(count - len(given))]) if item.one else given)
            names.append(item.column)
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _sources(self, kind: int) -> tuple[pa.Array, pa.Array]:
        """Return the partition and id of the source of each row of contributions, or of each edge."""
        sources = self._tagged(kind)
        part, ids = sources.column("spart"), sources.column("id")
        if self.task.source_gradients == "summed":
            return part, ids
        positions = pa.array(self._on_edges(kind - 1, "positions", np.int64))
        return part.take(positions), ids.take(positions)


def _nulls(count: int) -> pa.Array:
    return pa.nulls(count, pa.list_(pa.float32()))


def _ids(rows: pa.RecordBatch) -> Any:
    ids = rows.column("id")
    return ids.to_numpy() if pa.types.is_integer(ids.type) else ids.to_pylist()


def _read(rows: pa.RecordBatch, field: Field) -> Array:
    """Return the sum of a field's columns, added in their order."""
    first, *others = (_column(rows, name, field) for name in field.columns)
    if not others:
        return first
    total = first.copy()
    for other in others:
        total += other
    return total


def _column(rows: pa.RecordBatch, name: str, field: Field) -> Array:
    column = rows.column(name)
    if field.width is not None:
        return from_lists(column, field.width, field.absent)
    numbers: Array = column.to_numpy(zero_copy_only=False)
    return numbers.astype(field.dtype, copy=False)


def _blob(row: pa.RecordBatch, column: str, dtype: Any) -> Array:
    """Return the numbers in a binary cell; none if the chunk has no such row."""
    if row.num_rows == 0:
        return np.zeros(0, dtype=dtype)
    return np.frombuffer(row.column(column)[0].as_buffer(), dtype=dtype)
