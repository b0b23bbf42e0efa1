"""The Dealer: it pipes partitions through workers, one after the other, and commits each of them once."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Generator, Iterable

from messenger.connection import Connection
from messenger.endpoint import Endpoint
from messenger.errors import MessengerError, RemoteError
from messenger.jobs import OutgoingChunk, PipeJob, ReturnedChunk
from messenger.lending import Lender
from messenger.piping import Piping
from messenger.settings import Settings
from messenger.sockets import connect as connect_socket
from messenger.transport import Connect


class Dealer:
    """One connection to the Router, for any number of partitions, one at a time.

    A Dealer connects when it is first used, and again after a failure or a fork. Only one thread may use it.

    Args:
        endpoint: the Router's address and this Dealer's keys.
        settings: deadlines and limits (default: `Settings()`).
        name: a name for messages to people (default: the process id).
        connect: opens a link; tests pass one of their own (default: a ZeroMQ socket).
    """

    def __init__(
        self,
        endpoint: Endpoint,
        settings: Settings | None = None,
        name: str = "",
        connect: Connect = connect_socket,
    ) -> None:
        self.endpoint = endpoint
        self.settings = settings or Settings()
        self.name = name or f"pid {os.getpid()}"
        self.busy = False
        self._connect = connect
        self._connection: Connection | None = None
        self._tickets = itertools.count(1)
        self._lender = Lender(self.settings)

    def pipe(self, job: PipeJob, chunks: Iterable[OutgoingChunk]) -> Generator[ReturnedChunk, None, None]:
        """Send chunks to a worker and yield the chunks that it returns, in order, with several under way.

        After the last chunk the partition is committed. The iterator ends when the coordinator has acknowledged the
        commit. Closing the iterator earlier commits nothing.

        Args:
            job: the pass and the partition.
            chunks: the partition's chunks, with growing indices.

        Raises:
            RemoteError: the handler failed; the error names the stage and the partition. Its kinds are StaleEpochError
                (the epoch is over), ConflictError (another attempt has other results) and NoWorkerError.
            DeadlineError: a result or the acknowledgement did not come in time.
            RouterLostError, RefusedError, FrameError: the connection failed.
        """
        if self.busy:
            raise MessengerError(
                "a Dealer pipes one partition at a time: end the earlier iterator, or take another Dealer"
            )
        self.busy = True
        piping: Piping | None = None
        try:
            piping = Piping(job, iter(chunks), self._open(), self._lender, self._tickets, self.settings)
            yield from piping.run()
        except RemoteError:
            raise
        except Exception:
            self.close()  # the next partition starts with a new connection
            raise
        finally:
            self._leave(piping)
            self.busy = False

    def close(self) -> None:
        """Disconnect. The Dealer can be used again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._lender.close()

    def _open(self) -> Connection:
        if self._connection is None or not self._connection.is_ours:
            self._connection = Connection(self.endpoint, self.name, self.settings, self._connect)
        return self._connection

    def _leave(self, piping: Piping | None) -> None:
        if piping is not None and self._connection is not None and self._connection.is_ours:
            try:
                piping.leave()
            except MessengerError:
                self.close()
        self._lender.give_up()


_Key = tuple[int, Endpoint, Settings]
_POOL: dict[_Key, list[Dealer]] = {}


def shared_dealer(endpoint: Endpoint, settings: Settings | None = None) -> Dealer:
    """Return an idle Dealer of this process for an endpoint. It stays connected for the process's next task.

    Spark uses a Python worker for many tasks, and this saves each of them the connection. Idle Dealers of other
    endpoints are closed, because their Router has most likely ended with the session that started it.
    """
    key = (os.getpid(), endpoint, settings or Settings())
    _close_idle(lambda other: other != key)
    pool = _POOL.setdefault(key, [])
    for dealer in pool:
        if not dealer.busy:
            return dealer
    pool.append(Dealer(endpoint, settings))
    return pool[-1]


def close_shared_dealers() -> None:
    """Disconnect this process's shared Dealers that are idle."""
    _close_idle(lambda key: True)


def _close_idle(which: Callable[[_Key], bool]) -> None:
    for key in [key for key in _POOL if which(key)]:
        for dealer in _POOL[key]:
            if not dealer.busy:
                dealer.close()
        _POOL[key] = [dealer for dealer in _POOL[key] if dealer.busy]
        if not _POOL[key] or key[0] != os.getpid():  # the Dealers of a parent process are not this process's
            del _POOL[key]
