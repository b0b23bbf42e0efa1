"""A trainer's link to one row table: requests that are answered in the background."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np

from messenger.endpoint import Endpoint
from messenger.errors import FrameError, MessengerError, RouterLostError, error_of
from messenger.fields import Kind
from messenger.frames import Message, decode
from messenger.joining import USER_ROLE
from messenger.pump import Failed, Forgotten, Incoming, Pump
from messenger.settings import Settings
from messenger.sockets import connect as connect_socket
from messenger.transport import ROUTER, Connect

TICK_SECONDS = 0.25  # the thread checks this often whether the link was closed


class TableLink:
    """The one user of a row table. Any thread may call the methods. A thread takes the answers.

    A table that ends and is started again at the same address, with its files, is sent again what it had not answered.

    Args:
        endpoint: the table's address and the user's keys.
        run: the run's name, which no other run has.
        settings: deadlines and limits (default: `Settings()`).
        connect: opens the link (default: a ZeroMQ socket).
        name: the user's name, for messages to people (default: "driver").

    Raises:
        MessengerError: the table cannot be reached, or refuses this user.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        run: str,
        settings: Settings | None = None,
        connect: Connect = connect_socket,
        name: str = "driver",
    ) -> None:
        self.endpoint, self.run = endpoint, run
        self._settings = settings or Settings()
        self._pump = Pump(endpoint, USER_ROLE, name, self._settings, connect)
        self._numbers = itertools.count()
        self._lock = threading.Lock()  # guards the attributes below
        self._open: dict[int, tuple[Message, Future[Message]]] = {}  # by seq, in the order of sending
        self._failure: MessengerError | None = None
        self._closing = False
        self._pump.start()
        self._thread = threading.Thread(target=self._serve, name="lotan-table-link", daemon=True)
        self._thread.start()

    def ask(
        self, kind: Kind, header: Mapping[str, Any] | None = None, tensors: Mapping[str, np.ndarray] | None = None
    ) -> Future[Message]:
        """Send a request, and return its answer to come.

        The answer may be a MessengerError: the table refuses the request, or is lost.

        Args:
            kind: TABLE, ROWS or UPDATE.
            header: the fields of the message, but for its run and its number (default: none).
            tensors: its tensors, which nobody may change until the answer is there (default: none).

        Raises:
            FrameError: the request exceeds a limit.
        """
        answer: Future[Message] = Future()
        with self._lock:
            if self._failure is not None or self._closing:
                answer.set_exception(self._failure or MessengerError("the link to a row table was closed"))
                return answer
            seq = next(self._numbers)
            message = Message(kind, {"run": self.run, "seq": seq, **(header or {})}, dict(tensors or {}))
            self._pump.send(ROUTER, message)
            self._open[seq] = message, answer
        return answer

    def close(self) -> None:
        """Tell the table that the run is over, and disconnect. A second call does nothing."""
        if self._closing:
            return
        self._closing = True
        if self._failure is None:
            self._pump.send(ROUTER, Message(Kind.FORGET, {"run": self.run}))
        self._pump.close()
        self._thread.join(self._settings.linger_seconds + 1)
        self._fail(MessengerError("the link to a row table was closed"))

    def _serve(self) -> None:
        while not self._closing:
            match self._pump.next(TICK_SECONDS):
                case Failed(error):
                    return self._fail(error if isinstance(error, MessengerError) else RouterLostError(str(error)))
                case Forgotten():
                    self._pump.rejoin()
                    with self._lock:
                        again = [message for message, _ in self._open.values()]
                    for message in again:
                        self._pump.send(ROUTER, message)
                case Incoming(_, frames):
                    try:
                        self._take(decode(frames, self._settings.limits))
                    except FrameError as error:
                        return self._fail(error)
        return None

    def _take(self, message: Message) -> None:
        if "seq" not in message.header:
            if message.kind is Kind.ERROR:
                self._fail(self._error_in(message))
            return
        with self._lock:
            _, answer = self._open.pop(message.header["seq"], (None, None))
        if answer is None:  # a request that was sent twice has two answers
            return
        if message.kind is Kind.ERROR:
            answer.set_exception(self._error_in(message))
        else:
            answer.set_result(message)

    def _error_in(self, message: Message) -> MessengerError:
        header = message.header
        return error_of(header["code"], header["text"], f"the row table at {self.endpoint.address}: ", "", -1)

    def _fail(self, error: MessengerError) -> None:
        with self._lock:
            self._failure = self._failure or error
            waiting = [answer for _, answer in self._open.values()]
            self._open.clear()
        for answer in waiting:
            answer.set_exception(error)
