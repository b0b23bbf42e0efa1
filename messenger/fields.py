"""The kinds of messages, and the header fields that each kind may and must have."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any

from messenger.errors import FrameError
from messenger.settings import Limits


class Kind(Enum):
    """The purpose of a message.

    In the comments, D is a Dealer, W a worker, C the coordinator, R the Router, T a row table and U its user. A table stands
    in the Router's place for its users.
    """

    HELLO = "hello"  # D W C -> R: introduces a peer
    WELCOME = "welcome"  # R -> D W C: lets a peer in, with its credits and its heartbeat
    PING = "ping"  # D W C -> R: asks for a sign of life
    PONG = "pong"  # R -> D W C: a sign of life; to C with the names of the workers
    REJOIN = "rejoin"  # R -> D W C: the Router does not know this peer; it must say HELLO and send open work again
    CHUNK = "chunk"  # D -> W: a chunk; the Router chooses the worker
    RESULT = "result"  # W -> D: the rows that a chunk became
    NEED = "need"  # W -> D: asks for tensors that were offered by checksum
    DATA = "data"  # D -> W, C -> W: answers NEED or FETCH
    END = "end"  # D -> W: the group is complete
    PARTIAL = "partial"  # W -> D: the sums of a group
    CLOSE = "close"  # D -> W: the ticket is over
    GONE = "gone"  # R -> W: a Dealer is gone; the worker drops its ticket
    FETCH = "fetch"  # W -> C: asks for a stage's program or an epoch's parameters
    COMMIT = "commit"  # D -> C: a partition is done
    COMMITTED = "committed"  # C -> D: acknowledges a COMMIT
    LOST = "lost"  # R -> D, W -> D: the ticket's worker is gone or out of step; C -> R: a worker's process ended
    ERROR = "error"  # any peer -> any peer
    FORGET = "forget"  # C -> R -> all W: a run is over
    STOP = "stop"  # C -> R -> all W: all end
    TABLE = "table"  # U -> T: makes a table, fills rows of it or saves it; T -> U: that is done
    ROWS = "rows"  # U -> T: asks for rows by their places; T -> U: the rows and their timestamps
    UPDATE = "update"  # U -> T: new rows of a batch; T -> U: the table has them


REGION = re.compile(r"lotan-[0-9]{1,10}-[0-9]{1,10}-[0-9a-f]{16}")
"""The form of a shared-memory region's name, which `messenger.shared_memory` explains."""

ALIGNMENT = 64
"""Tensors in a region begin at multiples of this number of bytes. The first so many bytes are the region's own."""

Check = Callable[[Any, Limits], bool]


def _count(value: Any, limits: Limits) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _word(value: Any, limits: Limits) -> bool:
    return type(value) is int and 0 <= value < 1 << 64


def _index(value: Any, limits: Limits) -> bool:  # -1 stands for none
    return type(value) is int and -1 <= value < 1 << 63


def _name(value: Any, limits: Limits) -> bool:
    return type(value) is str and len(value) <= 1024


def _text(value: Any, limits: Limits) -> bool:
    return type(value) is str and len(value) <= limits.text


def _flag(value: Any, limits: Limits) -> bool:
    return type(value) is bool


def _seconds(value: Any, limits: Limits) -> bool:
    return type(value) in (int, float) and 0 < value < 1e9


def _names(value: Any, limits: Limits) -> bool:
    return type(value) is list and all(_name(item, limits) for item in value)


def _map(value: Any, limits: Limits) -> bool:
    return type(value) is dict


def is_place(region: Any, offset: Any) -> bool:
    """Return True if a region's name and an offset are well formed, which does not say that the region exists."""
    named = type(region) is str and REGION.fullmatch(region) is not None
    return named and type(offset) is int and ALIGNMENT <= offset < 1 << 48 and offset % ALIGNMENT == 0


def _extent(value: Any, limits: Limits) -> bool:
    """Check the list [region, offset, bytes]."""
    match value:
        case [region, offset, size]:
            return is_place(region, offset) and _count(size, limits)
    return False


def _offers(value: Any, limits: Limits) -> bool:
    """Check a list of tensors offered by checksum, each [name, dtype, shape, checksum, kept for the epoch only]."""
    return type(value) is list and all(_offer(item, limits) for item in value)


def _offer(item: Any, limits: Limits) -> bool:
    match item:
        case [str(), str(), list(shape), checksum, bool()]:
            small = len(shape) <= limits.dimensions and all(_count(length, limits) for length in shape)
            return small and _word(checksum, limits)
    return False


def _row_offers(value: Any, limits: Limits) -> bool:
    """Check a list of tensors that are offered row by row, each [name, dtype, shape]."""
    return type(value) is list and all(_row_offer(item, limits) for item in value)


def _row_offer(item: Any, limits: Limits) -> bool:
    match item:
        case [str(), str(), [rows, *row]]:
            return len(row) < limits.dimensions and all(_count(length, limits) for length in (rows, *row))
    return False


FIELDS: dict[str, Check] = {
    "role": _name,
    "name": _name,
    "pid": _count,
    "host": _name,
    "credits": _count,
    "heartbeat": _seconds,
    "missed": _count,
    "workers": _names,
    "ticket": _count,  # number of a Dealer's attempt to pipe a partition, see `messenger.piping`
    "seq": _count,  # position among the ticket's CHUNK and END messages
    "run": _name,
    "epoch": _count,
    "stage": _name,
    "mode": _name,
    "partition": _index,
    "chunk": _count,
    "first_row": _count,
    "rows": _count,
    "digest": _word,
    "offers": _offers,
    "names": _names,
    "row_offers": _row_offers,
    "row_keys": _name,  # the tensor that has the keys of the rows that are offered
    "spares": _names,  # tensors that a worker asks for only if it has not kept the values that it computed from them
    "reply": _extent,  # shared memory where a worker may write the chunk's result
    "group": _count,
    "count": _count,
    "checksum": _word,
    "bytes_sent": _count,
    "bytes_received": _count,
    "bytes_shared": _count,  # the part of bytes_sent and bytes_received that went through shared memory
    "first": _flag,
    "unmapped": _flag,  # the worker gives the ticket back because it cannot map the Dealer's region
    "what": _name,
    "width": _count,  # numbers in a row of a table
    "timestamp": _count,  # the number of a batch in the order of computation
    "program": _map,
    "settings": _map,
    "code": _name,
    "text": _text,
}

_JOB = ("run", "epoch", "stage", "mode", "partition")

REQUIRED: dict[Kind, tuple[str, ...]] = {
    Kind.HELLO: ("role", "name", "pid", "host"),
    Kind.WELCOME: ("credits", "heartbeat", "missed"),
    Kind.PING: (),
    Kind.PONG: (),
    Kind.REJOIN: (),
    Kind.CHUNK: (*_JOB, "ticket", "seq", "group", "chunk", "first_row", "rows", "digest", "offers"),
    Kind.RESULT: ("ticket", "chunk", "digest"),
    Kind.NEED: ("ticket", "chunk", "names"),
    Kind.DATA: ("what",),
    Kind.END: ("ticket", "seq", "group", "count"),
    Kind.PARTIAL: ("ticket", "group", "count"),
    Kind.CLOSE: ("ticket",),
    Kind.GONE: ("name",),
    Kind.FETCH: ("what", "run"),
    Kind.COMMIT: (*_JOB, "ticket", "count", "rows", "checksum", "bytes_sent", "bytes_received"),
    Kind.COMMITTED: ("ticket", "first"),
    Kind.LOST: ("text",),
    Kind.ERROR: ("code", "text"),
    Kind.FORGET: ("run",),
    Kind.STOP: (),
    Kind.TABLE: ("run", "seq", "what"),
    Kind.ROWS: ("run", "seq"),
    Kind.UPDATE: ("run", "seq", "timestamp"),
}

OPTIONAL: dict[Kind, tuple[str, ...]] = {
    Kind.CHUNK: ("reply", "spares", "row_offers", "row_keys"),
    Kind.COMMIT: ("bytes_shared",),
    Kind.PONG: ("workers",),
    Kind.DATA: ("ticket", "chunk", "run", "name", "epoch", "program", "settings"),
    Kind.FETCH: ("name", "epoch"),
    Kind.LOST: ("ticket", "name", "unmapped"),
    Kind.TABLE: ("count", "width", "first_row"),
    Kind.ERROR: (
        *_JOB,
        "ticket",
        "seq",
        "chunk",
        "what",
        "name",
    ),  # what, run, name and epoch repeat a FETCH that failed
}


def check_fields(kind: Kind, header: Any, limits: Limits) -> None:
    """Check that a header has the fields of its kind and no others, and that each has its type and is within limits.

    Raises:
        FrameError: the header is no map, lacks a field, or has a field that is unknown or has a wrong value.
    """
    if type(header) is not dict:
        raise FrameError(f"the header of a {kind.value!r} message is not a map")
    missing = [name for name in REQUIRED[kind] if name not in header]
    if missing:
        raise FrameError(f"a {kind.value!r} message lacks {', '.join(missing)}")
    for name, value in header.items():
        if name not in REQUIRED[kind] and name not in OPTIONAL.get(kind, ()):
            raise FrameError(f"a {kind.value!r} message has an unknown field {name!r:.80}")
        if not FIELDS[name](value, limits):
            raise FrameError(
                f"a {kind.value!r} message has {name}={value!r:.80}, which has the wrong type or exceeds its limit"
            )
