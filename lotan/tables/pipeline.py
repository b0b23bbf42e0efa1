"""The pipeline of batches whose learned rows lie in tables: prepare, send, compute, return, update.

Prepare samples a batch, in the thread of `lotan.batches`. Send asks the tables for its rows. Compute is one consumer of
weights, in the caller's thread: it repairs the rows, runs the pass and takes the step. Return sends the new rows in a thread,
and update is what the tables do with them. Bounded queues lie between, so that a slow stage holds up those before it.

With asynchrony "none" a batch asks for its rows when the update of the one before is written, in the caller's thread.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from lotan.errors import EngineError
from lotan.settings.row_tables import Asynchrony
from lotan.tables.control import Control
from lotan.tables.store import Reading, TableStore
from messenger.row_table import Places, Rows

IN_FLIGHT = 4
"""The batches whose rows are on their way at one time, and the batches whose updates are. More would take memory."""
TICK_SECONDS = 0.1  # a thread that waits for room looks this often whether it should end


class BatchWithRows(Protocol):
    """A batch that reads learned rows."""

    @property
    def rows_of_graph(self) -> Tensor | None:
        """The rows of the parameters that the vertices of the batch read, in their order. int64 [vertices]."""

    @rows_of_graph.setter
    def rows_of_graph(self, rows: Tensor | None) -> None: ...


B = TypeVar("B", bound=BatchWithRows)


@dataclass
class _Sent(Generic[B]):
    """A batch whose rows are on their way."""

    graph: B
    number: int
    places: Places
    reading: Reading


@dataclass
class _Times:
    """Seconds of the compute stage, of all epochs so far."""

    compute: float = 0.0  # passes and steps
    wait: float = 0.0  # it waited for a batch and its rows
    end: float = 0.0  # at the ends of epochs: the last updates, and the reading of all rows


class RowPipeline:
    """The pipeline of one run.

    Args:
        store: the tables, which are filled.
        asynchrony: "optimistic": results are those of "none", bit for bit. "plain": rows may be out of date. "none": one
            batch after the other.
        seconds: the deadline for the updates of an epoch to be written.
    """

    def __init__(self, store: TableStore, asynchrony: Asynchrony, seconds: float) -> None:
        self._store, self._records, self._seconds = store, store.records, seconds
        self._asynchrony = asynchrony
        self._ahead = asynchrony != "none"
        self._control = Control(repairs=asynchrony == "optimistic")
        self._times, self._batches = _Times(), 0
        self._changed = threading.Condition()  # guards the two below
        self._unwritten = 0  # updates that are on their way
        self._failure: BaseException | None = None
        self._returning = ThreadPoolExecutor(1, "lotan-rows-return")
        self._running: Generator[Any, None, None] | None = None  # the epoch that was begun last

    @property
    def words(self) -> str:
        """The line of a run's progress about its tables."""
        return (
            f"rows: {self._records.count:,} in {len(self._store.links)} tables, each of {4 * self._records.width} bytes with the "
            f"state of its optimizer; asynchrony: {self._asynchrony}"
        )

    def lent(self, graphs: Iterator[B]) -> Generator[B, None, None]:
        """Return the batches of an epoch, with the rows of each lent to the model until the next is asked for.

        At the end all rows are in this process.

        Args:
            graphs: the batches, which are prepared when they are asked for.

        Raises:
            EngineError: If a table fails, or does not answer.
        """
        self._running = found = self._lent(graphs)
        return found

    def _lent(self, graphs: Iterator[B]) -> Generator[B, None, None]:
        sent = self._sent_ahead(graphs) if self._ahead else (self._send(graph) for graph in graphs)
        computing: int | None = None
        try:
            started = time.perf_counter()
            for one in sent:
                computing = one.number
                rows, timestamps = one.reading.result()
                self._control.repair(one.number, one.places, rows, timestamps)
                self._records.lend(rows)
                ready = time.perf_counter()
                self._times.wait += ready - started
                yield one.graph
                started = time.perf_counter()
                self._times.compute += started - ready
                self._return(one)
            self._end()
            self._times.end += time.perf_counter() - started
        finally:
            sent.close()
            if computing is not None:
                self._control.abandon(computing)  # does nothing for a batch that was computed
            self._records.return_all()

    def figures(self) -> dict[str, float]:
        """Return what the pipeline has done, as plain data for the report."""
        times, control = self._times, self._control.figures
        whole = times.compute + times.wait + times.end
        return {
            "row_tables": len(self._store.links),
            "wait_seconds": times.wait,
            "compute_seconds": times.compute,
            "end_seconds": times.end,
            "compute_busy": times.compute / whole if whole else 0.0,
            "rows_repaired": control.repaired,
            "rows_cached": control.cached_most,
        }

    def stop(self) -> None:
        """End the epoch that runs, if one does because a pass has failed. All rows are as they were before it."""
        if self._running is not None:
            self._running.close()

    def close(self) -> None:
        """End all threads. This may be called twice."""
        self.stop()
        self._returning.shutdown()

    def _send(self, graph: B) -> _Sent[B]:
        """Ask for the rows of a batch, and have it read them in the order of their vertices."""
        number = self._control.begin()
        assert graph.rows_of_graph is not None  # it is sampled
        rows = graph.rows_of_graph.numpy()
        order = np.argsort(rows)
        at = np.empty(len(rows), dtype=np.int64)
        at[order] = np.arange(len(rows))
        graph.rows_of_graph = torch.from_numpy(at)
        places = rows[order]
        return _Sent(graph, number, places, self._store.read(places))

    def _sent_ahead(self, graphs: Iterator[B]) -> Generator[_Sent[B], None, None]:
        """Yield batches whose rows a thread has asked for, some before they are needed."""
        ready: queue.Queue[_Sent[B] | BaseException | None] = queue.Queue(IN_FLIGHT)
        stopped = threading.Event()

        def put(item: _Sent[B] | BaseException | None) -> None:
            placed = False
            while not placed and not stopped.is_set():
                with suppress(queue.Full):
                    ready.put(item, timeout=TICK_SECONDS)
                    placed = True

        def send() -> None:
            try:
                for graph in graphs:
                    if stopped.is_set():
                        return
                    put(self._send(graph))
                put(None)
            except BaseException as error:  # the thread that computes raises it
                put(error)

        thread = threading.Thread(target=send, name="lotan-rows-send", daemon=True)
        thread.start()
        try:
            while (item := ready.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            stopped.set()
            thread.join()
            while not ready.empty():
                if isinstance(item := ready.get_nowait(), _Sent):
                    self._control.abandon(item.number)

    def _return(self, one: _Sent[Any]) -> None:
        """Send the new rows of a batch that has taken its step."""
        rows = self._records.lent()
        self._records.return_all()
        timestamp = self._control.computed(one.number, one.places, rows)
        self._batches += 1
        self._wait_for(IN_FLIGHT - 1 if self._ahead else 0)
        with self._changed:
            self._unwritten += 1
        self._returning.submit(self._update, one.places, rows, timestamp)
        if not self._ahead:
            self._wait_for(0)

    def _update(self, places: Places, rows: Rows, timestamp: int) -> None:
        try:
            self._store.update(places, rows, timestamp, lambda error: self._written(timestamp, error))
        except Exception as error:  # the thread that computes raises it
            self._written(timestamp, error)

    def _written(self, timestamp: int, error: BaseException | None) -> None:
        if error is None:
            self._control.written(timestamp)
        with self._changed:
            self._unwritten -= 1
            self._failure = self._failure or error
            self._changed.notify_all()

    def _wait_for(self, most: int) -> None:
        """Wait until at most so many updates are on their way."""
        with self._changed:
            in_time = self._changed.wait_for(lambda: self._failure or self._unwritten <= most, self._seconds)
            if self._failure is not None:
                raise EngineError(f"the new rows of a batch could not be written: {self._failure}") from self._failure
            if not in_time:
                raise EngineError(f"the row tables did not write the rows of a batch within {self._seconds:.0f} s")

    def _end(self) -> None:
        """End an epoch: the tables have all rows and save them, and all rows are read into this process."""
        self._wait_for(0)
        self._store.save()
        self._store.take_all()
