"""Which messages there are, and which header fields each may and must have."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any

from messenger.errors import FrameError
from messenger.settings import Limits


class Kind(Enum):
    """What a message is for. D dealer, W worker, C coordinator, R Router."""

    HELLO = "hello"  # D W C -> R: who I am
    WELCOME = "welcome"  # R -> D W C: you are in; window and heartbeat
    PING = "ping"  # D W C -> R
    PONG = "pong"  # R -> D W C; to C with the names of the workers
    REJOIN = "rejoin"  # R -> D W C: I do not know you (any more): say HELLO, and start anew what was open
    CHUNK = "chunk"  # D -> W, whom the Router chooses
    RESULT = "result"  # W -> D: a chunk's rows
    NEED = "need"  # W -> D: tensors that were offered by checksum
    DATA = "data"  # D -> W, C -> W: what was asked for
    END = "end"  # D -> W: the group is complete
    PARTIAL = "partial"  # W -> D: the sums of a group
    CLOSE = "close"  # D -> W: this ticket is over
    GONE = "gone"  # R -> W: a Dealer is gone, drop what is its
    FETCH = "fetch"  # W -> C: a stage's program or an epoch's parameters
    COMMIT = "commit"  # D -> C: a partition is done
    COMMITTED = "committed"  # C -> D
    LOST = "lost"  # R -> D, W -> D: your ticket's worker is gone or out of step; C -> R: a worker's process ended
    ERROR = "error"  # anyone -> anyone
    FORGET = "forget"  # C -> R -> all W: a run is over
    STOP = "stop"  # C -> R -> all W


REGION = re.compile(r"lotan-[0-9]{1,10}-[0-9]{1,10}-[0-9a-f]{16}")
"""What a region of shared memory is called, see `messenger.shared_memory`."""

ALIGNMENT = 64
"""Bytes: tensors in a region begin at multiples of it. The first of them is the region's own."""

Check = Callable[[Any, Limits], bool]


def _count(value: Any, limits: Limits) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _word(value: Any, limits: Limits) -> bool:
    return type(value) is int and 0 <= value < 1 << 64


def _index(value: Any, limits: Limits) -> bool:  # -1: none
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
    """Whether a tensor may be there, as far as can be told without the region."""
    named = type(region) is str and REGION.fullmatch(region) is not None
    return named and type(offset) is int and ALIGNMENT <= offset < 1 << 48 and offset % ALIGNMENT == 0


def _extent(value: Any, limits: Limits) -> bool:
    """[region, offset, bytes]."""
    match value:
        case [region, offset, size]:
            return is_place(region, offset) and _count(size, limits)
    return False


def _offers(value: Any, limits: Limits) -> bool:
    """Tensors offered by checksum: [name, dtype, shape, checksum, kept for the epoch only]."""
    return type(value) is list and all(_offer(item, limits) for item in value)


def _offer(item: Any, limits: Limits) -> bool:
    match item:
        case [str(), str(), list(shape), checksum, bool()]:
            small = len(shape) <= limits.dimensions and all(_count(length, limits) for length in shape)
            return small and _word(checksum, limits)
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
    "ticket": _count,  # of one attempt of one Dealer to pipe a partition; see messenger.dealer
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
    "spares": _names,  # tensors that a worker may ask for, and does without if it has kept what it made of them
    "reply": _extent,  # shared memory where a worker may write the chunk's result
    "group": _count,
    "count": _count,
    "checksum": _word,
    "bytes_sent": _count,
    "bytes_received": _count,
    "bytes_shared": _count,  # of those sent and received, the ones that went through shared memory
    "first": _flag,
    "unmapped": _flag,  # the ticket is given back because the worker cannot map the Dealer's region
    "what": _name,
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
}

OPTIONAL: dict[Kind, tuple[str, ...]] = {
    Kind.CHUNK: ("reply", "spares"),
    Kind.COMMIT: ("bytes_shared",),
    Kind.PONG: ("workers",),
    Kind.DATA: ("ticket", "chunk", "run", "name", "epoch", "program", "settings"),
    Kind.FETCH: ("name", "epoch"),
    Kind.LOST: ("ticket", "name", "unmapped"),
    Kind.ERROR: (*_JOB, "ticket", "chunk", "what", "name"),  # what, run, name, epoch: those of a FETCH that failed
}


def check_fields(kind: Kind, header: Any, limits: Limits) -> None:
    """Check that a header has the fields of its kind and no others, each of its type and within limits.

    Raises:
        FrameError: it does not.
    """
    if type(header) is not dict:
        raise FrameError(f"the header of a {kind.value!r} message is no map")
    missing = [name for name in REQUIRED[kind] if name not in header]
    if missing:
        raise FrameError(f"a {kind.value!r} message lacks {', '.join(missing)}")
    for name, value in header.items():
        if name not in REQUIRED[kind] and name not in OPTIONAL.get(kind, ()):
            raise FrameError(f"a {kind.value!r} message has an unknown field {name!r:.80}")
        if not FIELDS[name](value, limits):
            raise FrameError(
                f"a {kind.value!r} message has {name}={value!r:.80}, which is not of its type or beyond its limit"
            )
