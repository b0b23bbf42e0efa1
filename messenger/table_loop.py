"""The loop of a row table's process: it answers ROWS and UPDATE of its one user, and beats the heart.

For its user the table stands in the Router's place: it answers HELLO with WELCOME and PING with PONG, and says REJOIN to whom
it does not know. So a user notices a table that was started again, and sends once more what was not answered. Updates have
timestamps, and an update that arrives twice changes nothing the second time.
"""

from __future__ import annotations

import logging
import threading

import numpy as np

from messenger.errors import FrameError, RowTableError, TableFullError
from messenger.fields import Kind
from messenger.frames import Frame, Message, decode, encode
from messenger.hub_loop import take_messages
from messenger.joining import USER_ROLE, peer_name
from messenger.row_files import RowFiles
from messenger.row_table import RowTable
from messenger.settings import Settings
from messenger.transport import ROUTER, Hub

log = logging.getLogger(__name__)


class TableLoop:
    """A row table's loop. `run` may be called once, and `stop` from any thread.

    Args:
        hub: the connections to users.
        settings: deadlines and limits (default: `Settings()`).
        limit: the most bytes that rows and timestamps may take; None for any number (default: None).
        files: files from which the table is restored, and which `run` closes; None if a table that ends is lost (default:
            None).

    Raises:
        RowTableError: the files are damaged, or hold more than the limit.
    """

    def __init__(
        self, hub: Hub, settings: Settings | None = None, limit: int | None = None, files: RowFiles | None = None
    ) -> None:
        self._hub, self._settings, self._limit, self._files = hub, settings or Settings(), limit, files
        self._user: bytes | None = None
        self._missed = 0  # heartbeats since the user's last message
        restored = None if files is None else files.restore(limit)
        self._run = "" if restored is None else restored[0]
        self._table: RowTable | None = None if restored is None else restored[1]
        self._stopping = threading.Event()

    @property
    def address(self) -> str:
        """The address to which the user connects."""
        return self._hub.address

    def stop(self) -> None:
        """End `run` within a tick."""
        self._stopping.set()

    def run(self) -> None:
        """Answer messages until `stop` is called."""
        try:
            take_messages(self._hub, self._stopping, self._settings, self._take, self._beat)
        finally:
            self._hub.close()
            if self._files is not None:
                self._files.close()

    def _beat(self) -> None:
        self._missed += 1

    def _take(self, identity: bytes, frames: list[Frame]) -> None:
        try:
            message = decode(frames[1:], self._settings.limits)
        except FrameError as error:
            return self._error(identity, "frame", f"a row table cannot read a message: {error}")
        if message.kind is Kind.HELLO:
            return self._hello(identity, message)
        if identity != self._user:
            return self._send(identity, Message(Kind.REJOIN))
        self._missed = 0
        if message.kind is Kind.PING:
            return self._send(identity, Message(Kind.PONG))
        if message.kind is Kind.FORGET:
            log.info("%s has ended its run", peer_name(identity))
            self._user, self._run, self._table = None, "", None
            return None
        return self._answer(identity, message)

    def _hello(self, identity: bytes, message: Message) -> None:
        if message.header["role"] != USER_ROLE:
            role = message.header["role"]
            return self._error(identity, "refused", f"a row table lets no {role!r} in: give it the address of a Router")
        if self._user not in (None, identity) and self._missed <= self._settings.missed_heartbeats:
            assert self._user is not None
            used = peer_name(self._user)
            return self._error(identity, "refused", f"{used} uses this row table; wait for its end, or start another")
        self._user, self._missed = identity, 0
        log.info("%s uses this table", peer_name(identity))
        beat = {"heartbeat": self._settings.heartbeat_seconds, "missed": self._settings.missed_heartbeats}
        return self._send(identity, Message(Kind.WELCOME, {"credits": self._settings.credits, **beat}))

    def _answer(self, identity: bytes, message: Message) -> None:
        seq = message.header.get("seq", 0)
        try:
            answer = self._done(message)
        except RowTableError as error:
            code = "full" if isinstance(error, TableFullError) else "table"
            self._error(identity, code, str(error), seq)
        except OSError as error:
            self._error(identity, "table", f"the files of a row table cannot be written: {error}; free some space", seq)
        else:
            self._send(identity, answer)

    def _done(self, message: Message) -> Message:
        """Do what a message asks for, and return the answer.

        Raises:
            RowTableError: it cannot be done.
            OSError: the disk is full.
        """
        header = message.header
        answer = {"run": header.get("run", ""), "seq": header.get("seq", 0)}
        match message.kind:
            case Kind.TABLE if header["what"] == "open":
                self._run, self._table = "", None  # frees the table before
                self._table = RowTable(header.get("count", 0), header.get("width", 0), self._limit)
                self._run = header["run"]
                return Message(Kind.TABLE, answer | {"what": "open"})
            case Kind.TABLE if header["what"] == "fill":
                self._of(header["run"]).fill(header.get("first_row", 0), _tensor(message, "rows"))
                return Message(Kind.TABLE, answer | {"what": "fill"})
            case Kind.TABLE if header["what"] == "save":
                self._save(header["run"])
                return Message(Kind.TABLE, answer | {"what": "save"})
            case Kind.ROWS:
                rows, timestamps = self._of(header["run"]).read(_tensor(message, "places"))
                return Message(Kind.ROWS, answer, {"rows": rows, "timestamps": timestamps})
            case Kind.UPDATE:
                self._update(header["run"], header["timestamp"], message)
                return Message(Kind.UPDATE, answer | {"timestamp": header["timestamp"]})
        raise RowTableError(f"a row table does nothing for {message.kind.value!r} {header.get('what', '')!r}")

    def _update(self, run: str, timestamp: int, message: Message) -> None:
        table, places, rows = self._of(run), _tensor(message, "places"), _tensor(message, "rows")
        table.update(places, rows, timestamp)
        if self._files is not None:
            self._files.record(places, rows, timestamp)
            if self._files.is_long(table):
                self._files.save(run, table)

    def _save(self, run: str) -> None:
        table = self._of(run)
        if self._files is not None:
            self._files.save(run, table)

    def _of(self, run: str) -> RowTable:
        if self._table is None or run != self._run:
            raise RowTableError(
                f"this row table has no rows of the run {run!r}: it was started again without its files, or was never filled"
            )
        return self._table

    def _send(self, identity: bytes, message: Message) -> None:
        self._hub.send(identity, ROUTER, encode(message, self._settings.limits))

    def _error(self, identity: bytes, code: str, text: str, seq: int | None = None) -> None:
        about = {} if seq is None else {"seq": seq}
        self._send(identity, Message(Kind.ERROR, {"code": code, "text": text, **about}))


def _tensor(message: Message, name: str) -> np.ndarray:
    if name not in message.tensors:
        raise RowTableError(f"a {message.kind.value!r} message came without {name!r}")
    return message.tensors[name]
