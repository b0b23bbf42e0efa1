"""The messenger's errors. Each says what happened, with which peer, and what to do."""

from __future__ import annotations


class MessengerError(RuntimeError):
    """The root: something between Dealer, Router, workers and coordinator failed."""


class FrameError(MessengerError):
    """Bytes that are no message of this protocol version, or that exceed a limit, or that were corrupted on the way."""


class UnmappedError(FrameError):
    """A message says that a tensor is in shared memory which this process cannot map: it is on another host, say."""


class UnsafeBindError(MessengerError):
    """The Router was told to listen beyond loopback without keys."""


class AddressInUseError(MessengerError):
    """The Router cannot have the address it was told to listen on."""


class RefusedError(MessengerError):
    """The Router was reached and refused this peer: wrong or missing keys, or a role that is taken."""


class DeadlineError(MessengerError):
    """A wait ended at its deadline; the message names the peer waited for and the setting."""


class RouterLostError(MessengerError):
    """The Router was connected and then fell silent."""


class RemoteError(MessengerError):
    """A peer reported a failure, with the stage and partition that it came from.

    Attributes:
        stage: name of the stage, "" where none was involved.
        partition: its partition, -1 where none was involved.
    """

    def __init__(self, message: str, *, stage: str = "", partition: int = -1) -> None:
        super().__init__(message)
        self.stage = stage
        self.partition = partition


class NoWorkerError(RemoteError):
    """The Router had no worker to give a chunk to."""


class StaleEpochError(RemoteError):
    """Work for an epoch that is over, or has not begun: a task that should no longer run. It touched nothing."""


class ConflictError(RemoteError):
    """Two attempts of one partition gave different results, where equal ones were promised."""


_BY_CODE: dict[str, type[RemoteError]] = {
    "stale": StaleEpochError,
    "conflict": ConflictError,
    "no_worker": NoWorkerError,
}


def error_of(code: str, text: str, where: str, stage: str, partition: int) -> MessengerError:
    """What an ERROR message becomes; one with an unknown code is a RemoteError."""
    if code == "frame":
        return FrameError(text)
    return _BY_CODE.get(code, RemoteError)(where + text, stage=stage, partition=partition)
