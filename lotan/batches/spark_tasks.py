"""The functions that Spark's tasks run to draw mini-batches and to send each to a worker, as `mapInArrow` takes them.

They import neither torch nor the planner, because Spark starts many of these processes. They are plain data, which Spark
pickles.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lotan.batches.draws import DRAWS, Positions, choose, keys_by_relation, order_words, state_of
from lotan.engines.rows.pipe_task import PipeFailed
from lotan.engines.rows.vectors import from_lists
from lotan.stages import tensor_names
from lotan.stages.draws import Randomness
from messenger.dealer import shared_dealer
from messenger.endpoint import Endpoint
from messenger.errors import MessengerError
from messenger.frames import digest
from messenger.jobs import OutgoingChunk, PipeJob
from messenger.settings import Settings

Batches = Iterable[pa.RecordBatch]
Tensors = dict[str, npt.NDArray[Any]]

VERTEX, EDGE = 0, 1  # the `kind` of a row of a mini-batch
RELATION = "edge_type"  # the column of edges that numbers their relations, in a graph of several types of vertices
ROWS_OUT = 1 << 16  # rows that a task hands on at a time, so that a vertex of a million edges needs no more memory


@dataclass(frozen=True)
class OrderTask:
    """Gives each example the two numbers by which an epoch puts the examples in order."""

    of: Randomness

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Add `first` and `second` to rows with a `key`."""
        for rows in batches:
            words = order_words(_numbers(rows, "key"), self.of).astype(np.int64)
            added = {"first": pa.array(words[:, 0]), "second": pa.array(words[:, 1])}
            yield pa.RecordBatch.from_pydict({name: rows.column(name) for name in rows.schema.names} | added)


@dataclass(frozen=True)
class DrawTask:
    """Draws the in-edges of vertices in their batches, by their positions among all in-edges of the vertex.

    If rows have an `edge_type`, a row stands for the in-edges of one relation, and positions are those among them.
    """

    of: Randomness  # the seed and the epoch; the batch is that of the row
    fanout: int | Literal["all"]
    name: str = DRAWS  # that of the draws; for out-edges, positions are those among the out-edges

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Turn rows of batch, id, key and degree into rows of batch, dst and pos, and edge_type if they have it."""
        for rows in batches:
            degrees = _numbers(rows, "degree")
            most = degrees if self.fanout == "all" else np.minimum(degrees, self.fanout)
            yield from self._drawn(rows, degrees, most)

    def _drawn(self, rows: pa.RecordBatch, degrees: Positions, most: Positions) -> Iterator[pa.RecordBatch]:
        ends = np.cumsum(most)
        many = np.flatnonzero(degrees > most)
        chosen = np.empty((0, 0), dtype=np.int64)
        names = {"batch": "batch", "dst": "id"}
        if RELATION in rows.schema.names:
            names[RELATION] = RELATION
        if len(many):
            keys = _numbers(rows, "key")[many]
            if RELATION in names:
                keys = keys_by_relation(keys, _numbers(rows, RELATION)[many])
            chosen = choose(degrees[many], int(most[many[0]]), keys, self._states(rows)[many])
        place = np.full(len(degrees), -1)
        place[many] = np.arange(len(many))
        total = int(ends[-1]) if len(ends) else 0
        for start in range(0, total, ROWS_OUT):
            turn = np.arange(start, min(total, start + ROWS_OUT))
            row = np.searchsorted(ends, turn, side="right")
            position = turn - (ends[row] - most[row])  # of the edge among those that are drawn for its vertex
            drawn = place[row] >= 0
            position[drawn] = chosen[place[row][drawn], position[drawn]]
            of_rows = pa.array(row)
            columns = [rows.column(name).take(of_rows) for name in names.values()]
            yield pa.RecordBatch.from_arrays([*columns, pa.array(position)], [*names, "pos"])

    def _states(self, rows: pa.RecordBatch) -> npt.NDArray[np.uint64]:
        numbers, which = np.unique(_numbers(rows, "batch"), return_inverse=True)
        states = [state_of(replace(self.of, batch=int(number)), self.name) for number in numbers]
        return np.array(states, dtype=np.uint64)[which]


@dataclass(frozen=True)
class Sent:
    """A column of vertices that a batch is sent with."""

    name: str  # the column of the plan
    field: str  # the column of the frame
    dtype: str  # "float32", or that of plain numbers
    width: int | None = None  # numbers of a row; None: plain numbers
    flat: bool = False  # True to send rows of one number as plain numbers
    absent: float = 0.0  # the number that stands for a vertex without a row


@dataclass(frozen=True)
class SendTask:
    """Sends each mini-batch of an epoch to a worker, and waits until the worker has computed it in its turn."""

    job: PipeJob  # that of the first batch of the epoch
    endpoint: Endpoint
    settings: Settings
    levels: int  # the number of levels of a batch
    columns: tuple[Sent, ...]
    of_edges: tuple[str, ...]
    by_relation: bool = False  # True if in-edges are numbered relation by relation

    SCHEMA = "batch int, vertices bigint, edges bigint"

    @property
    def __name__(self) -> str:
        """The name of the task in Spark's UI and in a query's plan."""
        return "send a mini-batch"

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Send the rows of one batch, and return its number and its size."""
        given = [rows for rows in batches if rows.num_rows]
        if not given:
            return
        rows = pa.Table.from_batches(given)
        del given
        batch = rows.column("batch")[0].as_py()
        tensors = self.assembled(rows)
        del rows
        job = self.job_of(batch)
        keys = tensors[tensor_names.KEYS]
        by_row = frozenset(tensor_names.column(column.name) for column in self.columns)
        chunk = OutgoingChunk(0, 0, len(keys), digest(keys), tensors, by_row=by_row, row_keys=tensor_names.KEYS)
        try:
            for _ in shared_dealer(self.endpoint, self.settings).pipe(job, [chunk]):
                pass  # gradients and statistics go to the coordinator
        except MessengerError as error:
            where = "" if str(job) in str(error) else f"{job}: "
            raise PipeFailed(f"{type(error).__name__}: {where}{error}") from error
        sizes = [pa.array([batch], pa.int32()), pa.array([len(keys)]), pa.array([len(tensors[tensor_names.SOURCES])])]
        yield pa.RecordBatch.from_arrays(sizes, ["batch", "vertices", "edges"])

    def job_of(self, batch: int) -> PipeJob:
        """Return the key under which the result of a batch is committed. Each batch is a pass of its own."""
        return replace(self.job, pass_number=self.job.pass_number + batch, partition=batch)

    def assembled(self, rows: pa.Table) -> Tensors:
        """Return the tensors of a batch: its vertices by level and id, and its edges by the places of both ends."""
        kinds = rows.column("kind").to_numpy()
        vertices = rows.filter(pa.array(kinds == VERTEX))
        vertices = _by_level(vertices)
        counts = np.bincount(vertices.column("level").to_numpy(), minlength=self.levels).cumsum()
        tensors: Tensors = {tensor_names.LEVELS: counts, tensor_names.KEYS: _whole(vertices, "key").to_numpy()}
        for column in self.columns:
            tensors[tensor_names.column(column.name)] = _sent(_whole(vertices, column.field), column)
        return tensors | self._edges(rows.filter(pa.array(kinds == EDGE)), _whole(vertices, "id"))

    def _edges(self, edges: pa.Table, ids: pa.Array) -> Tensors:
        ends = [pc.index_in(_whole(edges, name), value_set=ids) for name in ("src", "dst")]
        if any(end.null_count for end in ends):
            raise PipeFailed(f"OrderError: {self.job}: an edge of a mini-batch ends outside of it")
        src, dst = (end.to_numpy().astype(np.int64) for end in ends)
        numbered = ["pos", *[RELATION] * self.by_relation]
        order = np.lexsort((*(_whole(edges, name).to_numpy() for name in numbered), src, dst))
        tensors: Tensors = {tensor_names.SOURCES: src[order], tensor_names.DESTINATIONS: dst[order]}
        for name in self.of_edges:
            column = _whole(edges, name)
            numbers = from_lists(column) if pa.types.is_list(column.type) else column.to_numpy()
            tensors[tensor_names.batch_edges(name)] = numbers[order]
        return tensors


class MembersTask:
    """Returns the ids of the vertices of a batch, in the order in which `SendTask` sends them."""

    SCHEMA = "ids binary"

    @property
    def __name__(self) -> str:
        """The name of the task in Spark's UI and in a query's plan."""
        return "list the vertices of a mini-batch"

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Turn the rows of one batch, of level and id, into one row: the ids as a stream of Arrow."""
        given = [rows for rows in batches if rows.num_rows]
        if given:
            ids = _by_level(pa.Table.from_batches(given)).select(["id"]).combine_chunks()
            stream = io.BytesIO()
            with pa.ipc.new_stream(stream, ids.schema) as writer:
                writer.write_table(ids)
            yield pa.RecordBatch.from_arrays([pa.array([stream.getvalue()])], ["ids"])


def ids_of(row: bytes) -> npt.NDArray[Any]:
    """Return the ids of a row of `MembersTask`: integers, or objects holding texts. [vertices]."""
    ids = pa.ipc.open_stream(row).read_all().column("id")
    found: npt.NDArray[Any] = ids.to_numpy(zero_copy_only=False)
    return found


def _by_level(vertices: pa.Table) -> pa.Table:
    by_level = [("level", "ascending"), ("id", "ascending")]
    return vertices.take(pc.sort_indices(vertices.select(["level", "id"]), sort_keys=by_level))


def _sent(column: pa.Array, sent: Sent) -> npt.NDArray[Any]:
    if sent.width is None:
        plain: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False).astype(sent.dtype, copy=False)
        return plain
    rows = from_lists(column, sent.width, sent.absent)
    return rows[:, 0] if sent.flat else rows


def _whole(rows: pa.Table, name: str) -> pa.Array:
    """Return a column as one array."""
    found = rows.column(name).combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _numbers(rows: pa.RecordBatch, name: str) -> Positions:
    numbers: Positions = rows.column(name).to_numpy().astype(np.int64, copy=False)
    return numbers
