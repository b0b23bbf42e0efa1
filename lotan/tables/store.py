"""All row tables of a run as one table. The record of vertex v lies in table v modulo their number."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from threading import Lock
from typing import TypeVar

import numpy as np

from lotan.borders import translated
from lotan.errors import ConfigurationError, EngineError
from lotan.tables.records import Records
from messenger.endpoint import Endpoint
from messenger.errors import TableFullError
from messenger.fields import Kind
from messenger.frames import Message
from messenger.row_table import Places, Rows, Timestamps
from messenger.settings import Settings
from messenger.table_link import TableLink

T = TypeVar("T")

PART_BYTES = 8 << 20
"""The bytes of records in a message that fills a table, or that reads all of it."""


class Reading:
    """Records that tables were asked for. They are put together as answers come, in the threads of the links.

    Args:
        width: the numbers in a record.
        parts: for each table the positions of its records among those asked for, and its answer to come.
        seconds: the deadline of an answer.
    """

    def __init__(self, width: int, parts: Sequence[tuple[Places, Future[Message]]], seconds: float) -> None:
        count = sum(len(at) for at, _ in parts)
        self._rows = np.empty((count, width), dtype=np.float32)
        self._timestamps = np.empty(count, dtype=np.int64)
        self._seconds = seconds
        self._placed = [self._placing(at, answer) for at, answer in parts]

    @translated()
    def result(self) -> tuple[Rows, Timestamps]:
        """Wait for the records, and return them with their timestamps. [places, width], [places].

        Raises:
            EngineError: If a table does not answer.
        """
        for one in self._placed:
            waited(one, self._seconds)
        return self._rows, self._timestamps

    def _placing(self, at: Places, answer: Future[Message]) -> Future[None]:
        placed: Future[None] = Future()

        def place(found: Future[Message]) -> None:
            try:
                tensors = found.result().tensors
                self._rows[at], self._timestamps[at] = tensors["rows"], tensors["timestamps"]
                placed.set_result(None)
            except Exception as error:  # the thread that waits raises it
                placed.set_exception(error)

        answer.add_done_callback(place)
        return placed


class TableStore:
    """The tables of one run, with a link to each.

    Args:
        endpoints: the addresses of the tables.
        records: the learned rows of the model.
        settings: deadlines and limits of the messenger.

    Raises:
        MessengerError: If a table cannot be reached, or has another user.
    """

    def __init__(self, endpoints: Sequence[Endpoint], records: Records, settings: Settings) -> None:
        self.records, self._settings = records, settings
        run = uuid.uuid4().hex
        self.links: list[TableLink] = []
        try:
            with translated():
                for endpoint in endpoints:
                    self.links.append(TableLink(endpoint, run, settings))
        except BaseException:
            self.close()
            raise

    @translated()
    def fill(self) -> None:
        """Make the tables, with the records that are in this process.

        Raises:
            ConfigurationError: If a table cannot hold its records.
            EngineError: If a table does not answer.
        """
        count = len(self.links)
        try:
            self._all(
                link.ask(
                    Kind.TABLE,
                    {
                        "what": "open",
                        "count": len(range(number, self.records.count, count)),
                        "width": self.records.width,
                    },
                )
                for number, link in enumerate(self.links)
            )
        except TableFullError as error:
            raise ConfigurationError(f"table_memory: {error}") from error
        for start, rows in self.records.parts(self._part):
            places = np.arange(start, start + len(rows))
            self._all(
                link.ask(Kind.TABLE, {"what": "fill", "first_row": int(places[at[0]]) // count}, {"rows": rows[at]})
                for link, at in self._divided(places)
            )
        self.save()

    @translated()
    def save(self) -> None:
        """Have the tables write their files.

        Raises:
            EngineError: If a table cannot, or does not answer.
        """
        self._all(link.ask(Kind.TABLE, {"what": "save"}) for link in self.links)

    @translated()
    def read(self, places: Places) -> Reading:
        """Ask for the records of some vertices. [places]."""
        parts = []
        for link, at in self._divided(places):
            parts.append((at, link.ask(Kind.ROWS, tensors={"places": places[at] // len(self.links)})))
        return Reading(self.records.width, parts, self._settings.result_seconds)

    @translated()
    def update(self, places: Places, rows: Rows, timestamp: int, done: Callable[[BaseException | None], None]) -> None:
        """Send new records of some vertices.

        Args:
            places: the vertices [places].
            rows: their records, which nobody changes any more [places, width].
            timestamp: the number of the batch in the order of computation.
            done: is called once when all tables have them, or with the error of the first that has not. Any thread may
                call it.
        """
        divided = list(self._divided(places))
        lock, left = Lock(), len(divided)

        def answered(answer: Future[Message]) -> None:
            nonlocal left
            with lock:
                left = -1 if answer.exception() is not None and left > 0 else left - 1
                failed, finished = left == -1, left == 0
            if failed or finished:
                done(answer.exception() if failed else None)

        if not divided:
            return done(None)
        for link, at in divided:
            tensors: dict[str, np.ndarray] = {"places": places[at] // len(self.links), "rows": rows[at]}
            link.ask(Kind.UPDATE, {"timestamp": timestamp}, tensors).add_done_callback(answered)
        return None

    def take_all(self) -> None:
        """Read all records into this process.

        Raises:
            EngineError: If a table does not answer.
        """
        starts = range(0, self.records.count, self._part)
        asked = [(starts[0], self._read_from(starts[0]))] if len(starts) else []
        for start in [*starts[1:], None]:
            asked += [] if start is None else [(start, self._read_from(start))]  # the next part is on its way meanwhile
            begin, reading = asked.pop(0)
            self.records.take(begin, reading.result()[0])

    def close(self) -> None:
        """Disconnect from all tables. This may be called twice."""
        for link in self.links:
            link.close()

    @property
    def _part(self) -> int:
        return max(1, PART_BYTES // (4 * self.records.width))

    def _read_from(self, start: int) -> Reading:
        return self.read(np.arange(start, min(self.records.count, start + self._part)))

    def _divided(self, places: Places) -> list[tuple[TableLink, Places]]:
        """Return the tables of some vertices, each with the positions of its own among them."""
        of_table = places % len(self.links)
        found = [(link, np.flatnonzero(of_table == number)) for number, link in enumerate(self.links)]
        return [(link, at) for link, at in found if len(at)]

    def _all(self, answers: Iterable[Future[Message]]) -> None:
        """Wait for the answers to several requests, all of which are sent first."""
        for answer in list(answers):
            waited(answer, self._settings.result_seconds)


def waited(answer: Future[T], seconds: float) -> T:
    """Return the result of a future.

    Raises:
        EngineError: If it does not come in time.
    """
    try:
        return answer.result(seconds)
    except FutureTimeoutError:
        raise EngineError(
            f"a row table did not answer within {seconds:.0f} s; was it stopped, or is this machine short of memory?"
        ) from None
