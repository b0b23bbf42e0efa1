"""The golden vectors of the wire format: reading them, and writing them anew (`python -m tests.wire.vectors`).

NAME.bin holds a message's frames, each preceded by its length (4 bytes, little endian). valid/NAME.json beside it says
what it means: kind, header, tensors (dtype, shape, flat values) and their checksum; invalid/NAME.json says what is
wrong. The Python and the JVM side are tested against the same files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from messenger.fields import Kind
from messenger.frames import DTYPES, Frame, Message, decode, encode
from messenger.settings import Limits

HERE = Path(__file__).parent
VALID, INVALID = HERE / "valid", HERE / "invalid"


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


def _flip(frames: list[bytes], frame: int, byte: int) -> list[bytes]:
    data = bytearray(frames[frame])
    data[byte] ^= 1
    return [*frames[:frame], bytes(data), *frames[frame + 1 :]]


def _damaged(good: list[bytes]) -> dict[str, tuple[str, list[bytes]]]:
    return {
        "magic": ("another magic number", _flip(good, 0, 0)),
        "version": ("protocol version 0", _flip(good, 0, 3)),
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
    for folder in (VALID, INVALID):
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


if __name__ == "__main__":
    write()
