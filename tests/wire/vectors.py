"""The golden vectors of the wire format: reading them, and writing them anew (`python -m tests.wire.vectors`).

NAME.bin holds a message's frames, each preceded by its length (4 bytes, little endian). valid/NAME.json beside it says
what it means: kind, header, tensors (dtype, shape, flat values) and their checksum; invalid/NAME.json says what is
wrong. The Python and the JVM side are tested against the same files.

shared/NAME.bin are messages with tensors in shared memory: NAME.region is the region's content, and the .json says also
what the region is called and where the space [offset, bytes] that `encode` was given lies in it. Those in shared_invalid
are to be refused by a peer that has a region of that name and of 512 bytes, all zeros, open.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from messenger.errors import FrameError, UnmappedError
from messenger.fields import Kind
from messenger.frames import DTYPES, Frame, Message, _seal, decode, encode
from messenger.settings import Limits
from messenger.spaces import Space

HERE = Path(__file__).parent
VALID, INVALID = HERE / "valid", HERE / "invalid"
SHARED, SHARED_INVALID = HERE / "shared", HERE / "shared_invalid"

REGION = "lotan-4711-12-0123456789abcdef"
SPACE = (128, 320)  # offset, bytes
REGION_BYTES = 512


def split(data: bytes) -> list[bytes]:
    """The frames in a .bin file."""
    frames, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        frames.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return frames


def join(frames: Sequence[Frame]) -> bytes:
    """The inverse of `split`."""
    return b"".join(memoryview(frame).nbytes.to_bytes(4, "little") + bytes(frame) for frame in frames)


def message_of(meaning: dict[str, Any]) -> Message:
    """The message that a .json file describes."""
    tensors = {
        name: np.array(tensor["values"], DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
        for name, tensor in meaning["tensors"].items()
    }
    return Message(Kind(meaning["kind"]), meaning["header"], tensors, meaning["checksum"])


def meaning_of(message: Message) -> dict[str, Any]:
    """The inverse of `message_of`."""
    tensors = {
        name: {"dtype": array.dtype.name, "shape": list(array.shape), "values": array.reshape(-1).tolist()}
        for name, array in message.tensors.items()
    }
    return {"kind": message.kind.value, "header": message.header, "tensors": tensors, "checksum": message.checksum}


class GivenRegion:
    """Regions, of which one is open: these bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def view(self, region: str, offset: int, size: int) -> memoryview:
        if region != REGION:
            raise UnmappedError(f"no region {region}")
        if offset + size > len(self.content):
            raise FrameError(f"{size} bytes at {offset} are beyond the region")
        return memoryview(self.content)[offset : offset + size]


def encode_shared(message: Message) -> tuple[list[bytes], bytes]:
    """Frames and region of a message whose tensors are put into a new region's space."""
    content = bytearray(REGION_BYTES)
    content[:16] = REGION[-16:].encode()
    space = Space(REGION, SPACE[0], memoryview(content)[SPACE[0] : sum(SPACE)])
    frames = encode(message, Limits(), space)
    return [bytes(frame) for frame in frames], bytes(content)


JOB = {"run": "run-1", "epoch": 3, "stage": "layer 1 → 2", "mode": "turn", "partition": 2}

MESSAGES = {
    "hello": Message(Kind.HELLO, {"role": "worker", "name": "w0", "pid": 4711, "host": "sägewerk"}),
    "welcome": Message(Kind.WELCOME, {"credits": 4, "heartbeat": 0.5, "missed": 20}),
    "ping": Message(Kind.PING),
    "chunk": Message(
        Kind.CHUNK,
        JOB
        | {"ticket": 7, "seq": 1, "group": 0, "chunk": 1, "first_row": 4096, "rows": 2, "digest": 2**64 - 1}
        | {"offers": [["features", "float32", [2, 3], 2**63 + 5, False]]},
        {
            "f4": np.array([[1.5, -2.25, 0.0], [3.0e38, -0.0, 1e-45]], np.float32),
            "f8": np.array([0.1, 1e308], np.float64),
            "i8": np.array([-(2**63), 2**63 - 1], np.int64),
            "i4": np.array([-(2**31), 2**31 - 1], np.int32),
            "i1": np.array([-128, 127], np.int8),
            "u1": np.array([0, 255], np.uint8),
            "flag": np.array([True, False]),
            "empty": np.zeros((0, 5), np.float32),
            "scalar": np.array(2.5, np.float32),
        },
    ),
    "chunk_spares": Message(
        Kind.CHUNK,
        JOB
        | {"ticket": 7, "seq": 3, "group": 0, "chunk": 2, "first_row": 8192, "rows": 1, "digest": 6, "offers": []}
        | {"spares": ["column/x", "column/y"]},
        {"output_gradient/y": np.array([[0.5]], np.float32)},
    ),
    "result": Message(Kind.RESULT, {"ticket": 7, "chunk": 1, "digest": 12}, {"y": np.ones((2, 2), np.float32)}),
    "need": Message(Kind.NEED, {"ticket": 7, "chunk": 1, "names": ["features"]}),
    "end": Message(Kind.END, {"ticket": 7, "seq": 2, "group": 0, "count": 2}),
    "partial": Message(Kind.PARTIAL, {"ticket": 7, "group": 0, "count": 2}, {"gradient/w": np.ones((1, 2))}),
    "stage": Message(
        Kind.DATA,
        {
            "what": "stage",
            "run": "run-1",
            "name": "s",
            "program": {
                "calls": [["aten.relu.default", ["x"], {}], ["aten.dropout.default", [0.5, None, True], {"k": -1}]]
            },
        },
    ),
    "commit": Message(
        Kind.COMMIT,
        JOB | {"ticket": 7, "count": 2, "rows": 4098, "checksum": 99, "bytes_sent": 10**12, "bytes_received": 1},
        {"statistics": np.array([[0.5, 2.0], [0.0, 1.0]])},
    ),
    "error": Message(
        Kind.ERROR, {"code": "handler", "text": "ValueError: no", "ticket": 7, "stage": "s", "partition": -1}
    ),
}


CHUNK = {"ticket": 7, "seq": 1, "group": 0, "chunk": 1, "first_row": 4096, "rows": 2, "digest": 5, "offers": []}

SHARED_MESSAGES = {
    "chunk": Message(
        Kind.CHUNK,
        JOB | CHUNK | {"reply": [REGION, 1024, 4096]},
        {
            "f4": np.array([[1.5, -2.25, 0.0], [3.0e38, -0.0, 1e-45]], np.float32),
            "empty": np.zeros((0, 5), np.float32),
            "i8": np.arange(9, dtype=np.int64),  # 72 bytes: the next one begins 128 bytes on
            "flag": np.array([True, False]),
        },
    ),
    "result": Message(Kind.RESULT, {"ticket": 7, "chunk": 1, "digest": 12}, {"y": np.ones((2, 2), np.float32)}),
    "result_inline": Message(  # 324 bytes do not fit
        Kind.RESULT, {"ticket": 7, "chunk": 1, "digest": 12}, {"y": np.zeros((9, 9), np.float32)}
    ),
    "lost": Message(Kind.LOST, {"ticket": 7, "text": "no such region", "unmapped": True}),
    "commit": Message(
        Kind.COMMIT,
        JOB
        | {"ticket": 7, "count": 2, "rows": 4098, "checksum": 99}
        | {"bytes_sent": 10**12, "bytes_received": 1, "bytes_shared": 10**11},
    ),
}


def _placed(place: list[Any], **header: Any) -> list[bytes]:
    """A CHUNK with a tensor of 16 bytes, all zeros, in that place."""
    body = {"kind": "chunk", "header": JOB | CHUNK | header, "tensors": [["x", "float32", [4], place]]}
    return [_seal(msgpack.packb(body | {"sum": 0x8C5C7F1C5B5E5E5E}))]


def _misplaced() -> dict[str, tuple[str, list[bytes]]]:
    return {
        "beyond": ("ends 16 bytes after the region", _placed(["shared", REGION, 512])),
        "far_beyond": ("an offset of 2^47", _placed(["shared", REGION, 1 << 47])),
        "overflow": ("an offset of 2^63 - 64", _placed(["shared", REGION, (1 << 63) - 64])),
        "negative": ("an offset of -64", _placed(["shared", REGION, -64])),
        "head": ("offset 0, the region's own bytes", _placed(["shared", REGION, 0])),
        "misaligned": ("an offset that is no multiple of 64", _placed(["shared", REGION, 136])),
        "unknown_region": ("a region that is not open", _placed(["shared", "lotan-1-2-00000000000000ff", 128])),
        "path": ("a region's name with a path", _placed(["shared", "../../etc/passwd", 128])),
        "path_behind": ("a path behind a good name", _placed(["shared", f"{REGION}/../../etc/passwd", 128])),
        "prefix": ("a name that does not begin with lotan-", _placed(["shared", f"x{REGION[1:]}", 128])),
        "newline": ("a line feed after a good name", _placed(["shared", f"{REGION}\n", 128])),
        "length": ("a place with one element too many", _placed(["shared", REGION, 128, 16])),
        "checksum": ("bytes that do not have the checksum", _placed(["shared", REGION, 128])),
        "reply_path": ("a reply to a path", _placed(["shared", REGION, 128], reply=["/etc/passwd", 128, 64])),
        "reply_misaligned": ("a misaligned reply", _placed(["shared", REGION, 128], reply=[REGION, 130, 64])),
        "reply_negative": ("a reply of -1 bytes", _placed(["shared", REGION, 128], reply=[REGION, 128, -1])),
    }


def _flip(frames: list[bytes], frame: int, byte: int) -> list[bytes]:
    data = bytearray(frames[frame])
    data[byte] ^= 1
    return [*frames[:frame], bytes(data), *frames[frame + 1 :]]


def _damaged(good: list[bytes]) -> dict[str, tuple[str, list[bytes]]]:
    return {
        "magic": ("another magic number", _flip(good, 0, 0)),
        "version": ("protocol version 3", _flip(good, 0, 3)),
        "header_checksum": ("the header's checksum is not its own", _flip(good, 0, 5)),
        "header_corrupted": ("a bit of the header flipped", _flip(good, 0, 40)),
        "tensor_corrupted": ("a bit of a tensor flipped", _flip(good, 1, 0)),
        "tensor_truncated": ("a tensor's frame is too short", [good[0], good[1][:-1], *good[2:]]),
        "tensor_missing": ("one frame fewer than announced", good[:-1]),
        "tensor_surplus": ("one frame more than announced", [*good, b"x"]),
        "no_header": ("only an empty frame", [b""]),
    }


def write() -> None:
    """Write all vectors anew: after a change of the protocol version, and only then."""
    for folder in (VALID, INVALID, SHARED, SHARED_INVALID):
        folder.mkdir(exist_ok=True)
    for name, message in MESSAGES.items():
        frames = encode(message, Limits())
        meaning = meaning_of(decode(frames, Limits()))
        (VALID / f"{name}.bin").write_bytes(join(frames))
        (VALID / f"{name}.json").write_text(json.dumps(meaning, indent=2, ensure_ascii=False) + "\n")
    good = [bytes(frame) for frame in encode(MESSAGES["result"], Limits())]
    for name, (wrong, frames) in _damaged(good).items():
        (INVALID / f"{name}.bin").write_bytes(join(frames))
        (INVALID / f"{name}.json").write_text(json.dumps({"wrong": wrong}) + "\n")
    for name, message in SHARED_MESSAGES.items():
        frames, region = encode_shared(message)
        meaning = meaning_of(decode(frames, Limits(), GivenRegion(region))) | {"region": REGION, "space": SPACE}
        (SHARED / f"{name}.bin").write_bytes(join(frames))
        (SHARED / f"{name}.region").write_bytes(region)
        (SHARED / f"{name}.json").write_text(json.dumps(meaning, indent=2, ensure_ascii=False) + "\n")
    for name, (wrong, frames) in _misplaced().items():
        (SHARED_INVALID / f"{name}.bin").write_bytes(join(frames))
        (SHARED_INVALID / f"{name}.json").write_text(json.dumps({"wrong": wrong}) + "\n")


if __name__ == "__main__":
    write()
