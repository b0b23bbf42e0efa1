"""The wire format. `encode` and `decode` are pure functions and inverse to each other.

A message is one header frame and one frame for each tensor that travels inline. The header frame is

    bytes 0..2   b"LTN"
    byte  3      protocol version
    bytes 4..11  XXH64 (seed 0) of the rest of this frame, little endian
    bytes 12..   msgpack map {kind, header, tensors, sum}

In it, `header` is a map of the fields that the kind allows (`messenger.fields`), and `tensors` is a list of
[name, dtype, shape, place]. `sum` is the checksum of the tensors' checksums in that order, eight bytes each, little
endian. A checksum is XXH3 (64 bits, seed 0) of 1,024 zeros followed by the tensor's bytes. XXH3 has rules of its own for
short inputs, and the zeros make every input long. A place is one of

    ["inline", index]           the frame of that index after the header; inline tensors are numbered from 0, in order
    ["shared", region, offset]  the bytes of a region of shared memory from that offset on (`messenger.shared_memory`)

A peer that cannot reach a place refuses the message. A region's name matches `messenger.fields.REGION`, and an offset is
a multiple of 64 and at least 64. One message may have places of both kinds. Tensors are little endian, in C order, in
either place. Tensors use XXH3 because it runs at 50 GB/s and more in the cache, in Python and in the JVM. XXH64 runs at
20 GB/s, which is enough for headers (`benchmarks/results/pipe.md`).

On a socket a message is preceded by one route frame, which the Router rewrites. From a peer, it names the receiver; an
empty frame means the Router, or a worker of the Router's choice. To a peer, it names the sender; an empty frame means
the Router.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgpack  # type: ignore[import-untyped]
import numpy as np
import xxhash

from messenger.errors import FrameError, UnmappedError
from messenger.fields import Kind, check_fields, is_place
from messenger.settings import Limits
from messenger.spaces import Space, places, put

MAGIC = b"LTN"
VERSION = 2
PREAMBLE = 12  # bytes before the msgpack map
ZEROS = bytes(1024)  # hashed before a tensor's bytes

Frame = bytes | memoryview
"""The bytes of one frame, as a transport sends and receives them."""

DTYPES = {
    name: np.dtype(name).newbyteorder("<") for name in ("float32", "float64", "int64", "int32", "int8", "uint8", "bool")
}


@dataclass(frozen=True)
class Message:
    """A message from one peer to another."""

    kind: Kind
    header: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    checksum: int = 0  # the tensors' checksum; set by decode
    shared: int = 0  # bytes of tensors that are views of shared memory; set by decode


@dataclass(frozen=True)
class Envelope:
    """A header frame that has been checked. A Router needs to read nothing else of a message."""

    kind: Kind
    header: dict[str, Any]
    tensors: list[Any]  # descriptors, unchecked
    checksum: int


class Regions(Protocol):
    """The shared memory that `decode` may read."""

    def view(self, region: str, offset: int, size: int) -> memoryview:
        """Return `size` bytes of a region from `offset` on, read-only.

        Raises:
            UnmappedError: this process cannot map the region.
            FrameError: the bytes lie outside the region, or outside the part that the sender may use.
        """


def encode(message: Message, limits: Limits, space: Space | None = None) -> list[Frame]:
    """Return the frames of a message. A tensor's frame is a view of its array if that is contiguous.

    Args:
        message: the message.
        limits: the receiver's limits.
        space: shared memory for the tensors, which are written one after the other if all of them fit. Otherwise they
            travel inline. A tensor that lies in the space already stays where it is.

    Raises:
        FrameError: the receiver would refuse the message, because of a dtype or because it exceeds a limit.
    """
    starts = None if space is None else places(message.tensors, space)
    data: list[Frame] = []  # the bytes of each tensor
    descriptors = []
    for name, array in message.tensors.items():
        dtype = array.dtype.name
        size = check_shape(name, dtype, array.shape, limits)
        place: list[Any] = ["inline", len(data)]
        if space is None or starts is None:
            data.append(raw_bytes(np.ascontiguousarray(array, dtype=DTYPES[dtype])))
        else:
            start = starts[name]
            data.append(put(array, space.memory[start : start + size]))
            place = ["shared", space.region, space.offset + start]
        descriptors.append([name, dtype, list(array.shape), place])
    header = _header(message, descriptors, checksum(data), limits)
    return [header, *data] if starts is None else [header]


def _header(message: Message, descriptors: list[Any], total: int, limits: Limits) -> bytes:
    body = {"kind": message.kind.value, "header": message.header, "tensors": descriptors, "sum": total}
    try:
        header = _seal(msgpack.packb(body, use_bin_type=True))
    except (TypeError, ValueError, OverflowError) as error:
        raise FrameError(f"the header of a {message.kind.value!r} message is no plain data: {error!s:.200}") from None
    if len(header) > limits.header_bytes:
        raise FrameError(
            f"the header of a {message.kind.value!r} message has {len(header)} bytes, limit {limits.header_bytes}"
        )
    return header


def decode(frames: Sequence[Frame], limits: Limits, regions: Regions | None = None) -> Message:
    """Return the message in these frames. Its arrays are read-only views of the frames or of shared memory.

    Args:
        frames: the header frame and the inline tensors' frames.
        limits: this side's limits.
        regions: the shared memory that this process can map (default: none).

    Raises:
        FrameError: the frames are no valid message. Memory has been allocated for the header alone.
        UnmappedError: a tensor is in shared memory that this process cannot map.
    """
    if not frames:
        raise FrameError("a message without frames arrived; expected a header frame")
    return complete(peek(frames[0], limits), frames[1:], limits, regions)


def complete(envelope: Envelope, frames: Sequence[Frame], limits: Limits, regions: Regions | None = None) -> Message:
    """Return the message of a header frame that `peek` has read and of the frames after it.

    Raises:
        FrameError: the frames are no valid message.
        UnmappedError: a tensor is in shared memory that this process cannot map.
    """
    tensors, data = _tensors(envelope.tensors, [memoryview(frame) for frame in frames], limits, regions)
    if checksum(data) != envelope.checksum:
        raise FrameError(
            f"the tensors of a {envelope.kind.value!r} message do not have its checksum: corrupted on the way"
        )
    shared = sum(part.nbytes for part in data) - sum(memoryview(frame).nbytes for frame in frames)
    return Message(envelope.kind, envelope.header, tensors, envelope.checksum, shared)


def peek(frame: Frame, limits: Limits) -> Envelope:
    """Check and read a header frame. The tensors are not read.

    Raises:
        FrameError: the frame is no valid header frame.
    """
    body = _unpack(_unseal(memoryview(frame), limits), limits)
    if not isinstance(body, dict) or set(body) != {"kind", "header", "tensors", "sum"}:
        raise FrameError("a header frame is not the map {kind, header, tensors, sum}")
    kind = _kind(body["kind"])
    check_fields(kind, body["header"], limits)
    descriptors, total = body["tensors"], body["sum"]
    if not isinstance(descriptors, list) or len(descriptors) > limits.tensors:
        raise FrameError(f"a {kind.value!r} message must have a list of at most {limits.tensors} tensors")
    if type(total) is not int or not 0 <= total < 1 << 64:
        raise FrameError(f"a {kind.value!r} message has no valid checksum: {total!r:.80}")
    return Envelope(kind, body["header"], descriptors, total)


def raw_bytes(array: np.ndarray) -> memoryview:
    """Return the bytes of an array in C order, as a view if the array is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def checksum(frames: Sequence[Frame]) -> int:
    """Return the checksum of several tensors' checksums."""
    return tensor_checksum(b"".join(tensor_checksum(frame).to_bytes(8, "little") for frame in frames))


def tensor_checksum(frame: Frame) -> int:
    """Return the checksum of a tensor's bytes."""
    state = xxhash.xxh3_64(ZEROS)
    state.update(frame)
    return state.intdigest()


def digest(ids: np.ndarray | Sequence[str]) -> int:
    """Return a digest of vertex ids in their order.

    It is the XXH64 of the ids as int64 values, or as UTF-8 strings that are each preceded by their length.
    """
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


@dataclass(frozen=True)
class _Descriptor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int  # bytes
    place: list[Any]


def _tensors(
    descriptors: list[Any], payload: list[memoryview], limits: Limits, regions: Regions | None
) -> tuple[dict[str, np.ndarray], list[memoryview]]:
    """Return the arrays by name, and the bytes of each."""
    found = [_check_descriptor(descriptor, limits) for descriptor in descriptors]
    inline = [one for one in found if one.place[0] == "inline"]
    if len(inline) != len(payload):
        raise FrameError(f"a message announces {len(inline)} tensors and brings {len(payload)} frames")
    if sum(one.size for one in found) > limits.message_bytes:
        raise FrameError(f"a message exceeds the limit of {limits.message_bytes} bytes (Limits.message_bytes)")
    for position, one in enumerate(inline):
        if one.place[1] != position:
            raise FrameError(f"tensor {one.name!r:.80} is at frame {one.place[1]}, expected {position}")
    if len({one.name for one in found}) < len(found):
        raise FrameError(f"a message brings two tensors of one name, among {[one.name for one in found]!r:.200}")
    data = [_bytes_of(one, payload, regions) for one in found]
    return {one.name: _view(memory, one) for one, memory in zip(found, data, strict=True)}, data


def _check_descriptor(descriptor: Any, limits: Limits) -> _Descriptor:
    match descriptor:
        case [str(name), str(dtype), list(shape), ["inline", index] as place] if type(index) is int:
            pass
        case [str(name), str(dtype), list(shape), ["shared", region, offset] as place] if is_place(region, offset):
            pass
        case _:
            raise FrameError(f"not a tensor's [name, dtype, shape, place]: {descriptor!r:.160}")
    return _Descriptor(name, dtype, tuple(shape), check_shape(name, dtype, shape, limits), place)


def _bytes_of(tensor: _Descriptor, payload: list[memoryview], regions: Regions | None) -> memoryview:
    match tensor.place:
        case ["inline", index]:
            memory: memoryview = payload[index]
        case [_, region, offset]:
            if regions is None:
                raise UnmappedError(f"tensor {tensor.name!r:.80} is in the region {region}: no region is open here")
            memory = regions.view(region, offset, tensor.size)
    if memory.nbytes != tensor.size:
        what = f"{tensor.name!r:.80} ({tensor.dtype}{list(tensor.shape)})"
        raise FrameError(f"tensor {what} needs {tensor.size} bytes, its frame has {memory.nbytes}")
    return memory


def check_shape(name: str, dtype: str, shape: Sequence[Any], limits: Limits) -> int:
    """Return the number of bytes of a tensor with this dtype and shape.

    Raises:
        FrameError: the dtype is unknown, or the shape exceeds the limits.
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


def _view(memory: memoryview, tensor: _Descriptor) -> np.ndarray:
    array = np.frombuffer(memory, dtype=DTYPES[tensor.dtype]).reshape(tensor.shape)
    if not array.flags.aligned:  # a small frame may begin anywhere in ZeroMQ's receive buffer
        array = array.copy()
    array.flags.writeable = False
    return array
