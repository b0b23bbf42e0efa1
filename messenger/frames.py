"""The wire format: `encode` and `decode` are pure, and inverse to each other.

A message is one header frame and one frame per tensor. The header frame is

    bytes 0..2   b"LTN"
    byte  3      protocol version
    bytes 4..11  XXH64 (seed 0) of the rest of this frame, little endian
    bytes 12..   msgpack map {kind, header, tensors, sum}

where `header` is a map of the fields that the kind allows (`messenger.fields`), `tensors` a list of
[name, dtype, shape, place] and `sum` the XXH64 of all tensor frames in order. A place is ["inline", frame index]; a
peer that knows no other kind of place refuses the message. Tensors are little endian, in C order. XXH64 because the
JVM has it too.

On a socket a message is preceded by one route frame, which the Router rewrites: from a peer, whom it is for (empty:
for the Router, or for whomever the Router chooses); to a peer, whom it is from (empty: the Router).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np
import xxhash

from messenger.errors import FrameError
from messenger.fields import Kind, check_fields
from messenger.settings import Limits

MAGIC = b"LTN"
VERSION = 1
PREAMBLE = 12  # bytes before the msgpack map

Frame = bytes | memoryview
"""Bytes of one frame, as they come from or go to a transport."""

DTYPES = {
    name: np.dtype(name).newbyteorder("<") for name in ("float32", "float64", "int64", "int32", "int8", "uint8", "bool")
}


@dataclass(frozen=True)
class Message:
    """What peers say to each other."""

    kind: Kind
    header: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    checksum: int = 0  # of the tensors; set by decode


@dataclass(frozen=True)
class Envelope:
    """A checked header frame: all that a Router needs to see of a message."""

    kind: Kind
    header: dict[str, Any]
    tensors: list[Any]  # descriptors, unchecked
    checksum: int


def encode(message: Message, limits: Limits) -> list[Frame]:
    """The frames of a message. Tensor frames are views of the arrays where these are contiguous.

    Raises:
        FrameError: the receiver would refuse it: a dtype that does not travel, a tensor or a header beyond the limits.
    """
    frames: list[Frame] = []
    descriptors = []
    for name, array in message.tensors.items():
        dtype = array.dtype.name
        check_shape(name, dtype, array.shape, limits)
        frames.append(raw_bytes(np.ascontiguousarray(array, dtype=DTYPES[dtype])))
        descriptors.append([name, dtype, list(array.shape), ["inline", len(frames) - 1]])
    body = {"kind": message.kind.value, "header": message.header, "tensors": descriptors, "sum": checksum(frames)}
    try:
        header = _seal(msgpack.packb(body, use_bin_type=True))
    except (TypeError, ValueError, OverflowError) as error:
        raise FrameError(f"the header of a {message.kind.value!r} message is no plain data: {error!s:.200}") from None
    if len(header) > limits.header_bytes:
        raise FrameError(
            f"the header of a {message.kind.value!r} message has {len(header)} bytes, limit {limits.header_bytes}"
        )
    return [header, *frames]


def decode(frames: Sequence[Frame], limits: Limits) -> Message:
    """The message in these frames. Its arrays are read-only views of them.

    Raises:
        FrameError: whatever is wrong with them; nothing beyond the header has been allocated then.
    """
    if not frames:
        raise FrameError("a message without frames arrived; expected a header frame")
    envelope = peek(frames[0], limits)
    payload = [memoryview(frame) for frame in frames[1:]]
    tensors = _tensors(envelope.tensors, payload, limits)
    if checksum(payload) != envelope.checksum:
        raise FrameError(
            f"the tensors of a {envelope.kind.value!r} message do not have its checksum: corrupted on the way"
        )
    return Message(envelope.kind, envelope.header, tensors, envelope.checksum)


def peek(frame: Frame, limits: Limits) -> Envelope:
    """Check and read a header frame without its tensors.

    Raises:
        FrameError: it is not one.
    """
    body = _unpack(_unseal(memoryview(frame), limits), limits)
    if not isinstance(body, dict) or set(body) != {"kind", "header", "tensors", "sum"}:
        raise FrameError("a header frame holds something else than the map {kind, header, tensors, sum}")
    kind = _kind(body["kind"])
    check_fields(kind, body["header"], limits)
    descriptors, total = body["tensors"], body["sum"]
    if not isinstance(descriptors, list) or len(descriptors) > limits.tensors:
        raise FrameError(f"a {kind.value!r} message must have a list of at most {limits.tensors} tensors")
    if type(total) is not int or not 0 <= total < 1 << 64:
        raise FrameError(f"a {kind.value!r} message has no valid checksum: {total!r:.80}")
    return Envelope(kind, body["header"], descriptors, total)


def raw_bytes(array: np.ndarray) -> memoryview:
    """The bytes of an array in C order: a view where it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def checksum(frames: Sequence[Frame]) -> int:
    """XXH64 of the frames, one after the other."""
    state = xxhash.xxh64()
    for frame in frames:
        state.update(frame)
    return state.intdigest()


def digest(ids: np.ndarray | Sequence[str]) -> int:
    """A digest of vertex ids in order: XXH64 of int64 values, or of UTF-8 strings, each preceded by its length."""
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu":
        return xxhash.xxh64_intdigest(raw_bytes(ids.astype("<i8", copy=False)))
    state = xxhash.xxh64()
    for text in ids:
        data = str(text).encode()
        state.update(len(data).to_bytes(4, "little"))
        state.update(data)
    return state.intdigest()


def _seal(body: bytes) -> bytes:
    return b"".join((MAGIC, bytes((VERSION,)), xxhash.xxh64_intdigest(body).to_bytes(8, "little"), body))


def _unseal(frame: memoryview, limits: Limits) -> memoryview:
    if frame.nbytes > limits.header_bytes:
        raise FrameError(
            f"a header frame of {frame.nbytes} bytes exceeds the limit of {limits.header_bytes} (Limits.header_bytes)"
        )
    if frame.nbytes < PREAMBLE or bytes(frame[:3]) != MAGIC:
        raise FrameError(
            f"not a message of this protocol: it starts with {bytes(frame[:8])!r}; is another program on this port?"
        )
    if frame[3] != VERSION:
        raise FrameError(
            f"a message of protocol version {frame[3]} arrived, this side speaks {VERSION}: use equal versions of lotan"
        )
    body = frame[PREAMBLE:]
    if xxhash.xxh64_intdigest(body) != int.from_bytes(frame[4:PREAMBLE], "little"):
        raise FrameError("a header frame does not have its checksum: corrupted on the way")
    return body


def _unpack(body: memoryview, limits: Limits) -> Any:
    try:
        return msgpack.unpackb(
            body,
            raw=False,
            strict_map_key=True,
            max_str_len=limits.text,
            max_bin_len=limits.text,
            max_ext_len=0,
            max_array_len=limits.items,
            max_map_len=limits.items,
        )
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise FrameError(
            f"a header frame is not the msgpack expected, or exceeds a limit: {type(error).__name__}: {error!s:.200}"
        ) from None


def _kind(value: Any) -> Kind:
    try:
        return Kind(value)
    except ValueError:
        raise FrameError(
            f"a message of unknown kind {value!r:.80}; known: {', '.join(kind.value for kind in Kind)}"
        ) from None


def _tensors(descriptors: list[Any], payload: list[memoryview], limits: Limits) -> dict[str, np.ndarray]:
    if len(descriptors) != len(payload):
        raise FrameError(f"a message announces {len(descriptors)} tensors and brings {len(payload)} frames")
    if sum(frame.nbytes for frame in payload) > limits.message_bytes:
        raise FrameError(f"a message exceeds the limit of {limits.message_bytes} bytes (Limits.message_bytes)")
    tensors = {}
    for position, descriptor in enumerate(descriptors):
        name, dtype, shape = _check_descriptor(descriptor, position, limits)
        if name in tensors:
            raise FrameError(f"a message brings two tensors named {name!r:.80}")
        tensors[name] = _view(payload[position], name, dtype, shape, limits)
    return tensors


def _check_descriptor(descriptor: Any, position: int, limits: Limits) -> tuple[str, str, tuple[int, ...]]:
    match descriptor:
        case [str(name), str(dtype), list(shape), ["inline", index]] if type(index) is int:
            pass
        case _:
            raise FrameError(f"not a tensor's [name, dtype, shape, place]: {descriptor!r:.120}")
    if index != position:
        raise FrameError(f"tensor {name!r:.80} is at frame {index}, expected {position}")
    check_shape(name, dtype, shape, limits)
    return name, dtype, tuple(shape)


def check_shape(name: str, dtype: str, shape: Sequence[Any], limits: Limits) -> int:
    """The bytes of such a tensor.

    Raises:
        FrameError: an unknown dtype, or a shape beyond the limits.
    """
    if dtype not in DTYPES:
        raise FrameError(f"tensor {name!r:.80} has dtype {dtype!r:.40}; these travel: {', '.join(DTYPES)}")
    if len(shape) > limits.dimensions:
        raise FrameError(f"tensor {name!r:.80} has {len(shape)} dimensions, the limit is {limits.dimensions}")
    size = DTYPES[dtype].itemsize
    for length in shape:
        if type(length) is not int or not 0 <= length <= limits.frame_bytes:
            raise FrameError(f"tensor {name!r:.80} has a dimension of {length!r:.40}")
        size *= length
    if size > limits.frame_bytes:
        raise FrameError(
            f"tensor {name!r:.80} has {size} bytes, the limit is {limits.frame_bytes} (Limits.frame_bytes)"
        )
    return size


def _view(frame: memoryview, name: str, dtype: str, shape: tuple[int, ...], limits: Limits) -> np.ndarray:
    size = check_shape(name, dtype, shape, limits)
    if frame.nbytes != size:
        raise FrameError(f"tensor {name!r:.80} ({dtype}{list(shape)}) needs {size} bytes, its frame has {frame.nbytes}")
    array = np.frombuffer(frame, dtype=DTYPES[dtype]).reshape(shape)
    if not array.flags.aligned:  # small frames may lie anywhere in ZeroMQ's receive buffer
        array = array.copy()
    array.flags.writeable = False
    return array
