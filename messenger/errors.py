"""The messenger's errors. Each says what happened, with which peer, and what to do."""

from __future__ import annotations


class MessengerError(RuntimeError):
    """Something between Dealer, Router, workers and coordinator failed. All other errors are kinds of this one."""


class FrameError(MessengerError):
    """Bytes are no message of this protocol version, exceed a limit, or were corrupted on the way."""


class UnmappedError(FrameError):
    """A tensor is in shared memory that this process cannot map, for example because it is on another host."""


class UnsafeBindError(MessengerError):
    """The Router was told to listen beyond loopback without keys."""


class AddressInUseError(MessengerError):
    """Another program uses the address that the Router was told to listen on."""


class RefusedError(MessengerError):
    """The Router refused this peer, because its keys are wrong or missing or its role is taken."""


class DeadlineError(MessengerError):
    """A wait ended at its deadline. The error's text names the peer and the setting."""


class RouterLostError(MessengerError):
    """The Router answered at first and then fell silent."""


class RemoteError(MessengerError):
    """A peer reported a failure, with the stage and partition that it came from.

    Attributes:
        stage: the stage's name, or "" if no stage was involved.
        partition: the partition's number, or -1 if no partition was involved.
    """

    def __init__(self, message: str, *, stage: str = "", partition: int = -1) -> None:
        super().__init__(message)
        self.stage = stage
        self.partition = partition


class NoWorkerError(RemoteError):
    """The Router had no worker to give a chunk to."""


class StaleEpochError(RemoteError):
    """Work was sent for an epoch that is not open, by a task that should no longer run. It changed nothing."""


class ConflictError(RemoteError):
    """Two attempts of one partition had different results, although equal attempts must have equal results."""


class RowTableError(RemoteError):
    """A row table was asked for something that it does not have."""


class TableFullError(RowTableError):
    """The rows do not fit into the memory that a row table may use."""


_BY_CODE: dict[str, type[RemoteError]] = {
    "stale": StaleEpochError,
    "conflict": ConflictError,
    "no_worker": NoWorkerError,
    "table": RowTableError,
    "full": TableFullError,
}


def error_of(code: str, text: str, where: str, stage: str, partition: int) -> MessengerError:
    """Return the exception for an ERROR message. An unknown code makes a RemoteError."""
    if code == "frame":
        return FrameError(text)
    return _BY_CODE.get(code, RemoteError)(where + text, stage=stage, partition=partition)
