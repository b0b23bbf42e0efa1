"""Encoding and decoding: inverse on every message, and nothing but FrameError on everything else."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from messenger.errors import FrameError
from messenger.fields import REQUIRED, Kind
from messenger.frames import DTYPES, Message, _seal, decode, digest, encode
from messenger.settings import Limits
from tests.wire.vectors import MESSAGES, SHARED_MESSAGES, GivenRegion, encode_shared

LIMITS = Limits()
RESULT = {"ticket": 1, "chunk": 2, "digest": 3}

arrays = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda name: hnp.arrays(DTYPES[name], hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
)


@given(st.dictionaries(st.text(max_size=10), arrays, max_size=4))
def test_decode_is_the_inverse_of_encode(tensors: dict[str, np.ndarray]):
    message = decode([bytes(frame) for frame in encode(Message(Kind.RESULT, RESULT, tensors), LIMITS)], LIMITS)
    assert message.header == RESULT
    assert list(message.tensors) == list(tensors)
    for name, tensor in tensors.items():
        assert message.tensors[name].shape == tensor.shape
        assert message.tensors[name].tobytes() == tensor.tobytes()
        assert not message.tensors[name].flags.writeable
        assert message.tensors[name].flags.aligned


def test_other_memory_layouts_arrive_as_the_same_values():
    tensor = np.arange(24, dtype=np.float32).reshape(4, 6)
    variants = {"transposed": tensor.T, "strided": tensor[::2, ::3], "big endian": tensor.astype(">f4")}
    message = decode(encode(Message(Kind.RESULT, RESULT, variants), LIMITS), LIMITS)
    for name, variant in variants.items():
        np.testing.assert_array_equal(message.tensors[name], variant)


def test_contiguous_tensors_are_not_copied():
    tensor = np.zeros((100, 10), np.float32)
    frames = encode(Message(Kind.RESULT, RESULT, {"x": tensor}), LIMITS)
    assert np.shares_memory(np.frombuffer(frames[1], np.float32), tensor)
    assert np.shares_memory(decode(frames, LIMITS).tensors["x"], tensor)


def body(**changes: Any) -> bytes:
    """A header frame of an otherwise valid RESULT with one float32 [2] tensor."""
    valid = {"kind": "result", "header": RESULT, "tensors": [["x", "float32", [2], ["inline", 0]]], "sum": 0}
    return _seal(msgpack.packb({key: value for key, value in (valid | changes).items() if value is not ...}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "telegram"}, "unknown kind"),
        ({"kind": 3}, "unknown kind"),
        ({"sum": ...}, "is not the map"),
        ({"extra": 1}, "is not the map"),
        ({"sum": -1}, "checksum"),
        ({"sum": True}, "checksum"),
        ({"header": []}, "not a map"),
        ({"header": {"ticket": 1}}, "lacks chunk, digest"),
        ({"header": RESULT | {"surplus": 1}}, "unknown field 'surplus'"),
        ({"header": RESULT | {"ticket": -1}}, "ticket=-1"),
        ({"header": RESULT | {"ticket": True}}, "ticket=True"),
        ({"header": RESULT | {"ticket": "1"}}, "ticket='1'"),
        ({"tensors": {}}, "list of at most"),
        ({"tensors": [["x"]]}, "not a tensor's"),
        ({"tensors": [["x", "float32", [2], ["mapped", "/etc/passwd", 0, 8]]]}, "not a tensor's"),
        ({"tensors": [["x", "float32", [2], ["inline", 1]]]}, "expected 0"),
        ({"tensors": [["x", "object", [2], ["inline", 0]]]}, "dtype 'object'"),
        ({"tensors": [["x", "float32", [1] * 9, ["inline", 0]]]}, "9 dimensions"),
        ({"tensors": [["x", "float32", [-2], ["inline", 0]]]}, "dimension of -2"),
        ({"tensors": [["x", "float32", [2.0], ["inline", 0]]]}, "dimension of 2.0"),
        ({"tensors": [["x", "float32", [2**20, 2**20], ["inline", 0]]]}, "the limit is"),
        ({"tensors": [["x", "float32", [3], ["inline", 0]]]}, "needs 12 bytes, its frame has 8"),
        ({"tensors": [["x", "float32", [2], ["inline", 0]]] * 2}, "announces 2 tensors"),
        ({}, "corrupted"),
    ],
)
def test_each_wrong_header_is_refused_by_name(changes: dict[str, Any], words: str):
    with pytest.raises(FrameError, match=words):
        decode([body(**changes), bytes(8)], LIMITS)


def test_limits_hold_on_the_way_out_as_well():
    small = Limits(frame_bytes=64, header_bytes=256)
    with pytest.raises(FrameError, match="limit is 64"):
        encode(Message(Kind.RESULT, RESULT, {"x": np.zeros(17, np.float32)}), small)
    with pytest.raises(FrameError, match="header of a 'error' message"):
        encode(Message(Kind.ERROR, {"code": "x", "text": "y" * 500}), small)
    with pytest.raises(FrameError, match="float16"):
        encode(Message(Kind.RESULT, RESULT, {"x": np.zeros(17, np.float16)}), small)
    with pytest.raises(FrameError, match="no plain data"):
        encode(Message(Kind.DATA, {"what": "stage", "program": {"call": object()}}), small)


@pytest.mark.parametrize(
    "claim", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"]
)
def test_claimed_sizes_allocate_nothing(claim: bytes):
    """A list, map, text or bytes of 2^32 elements, claimed in five bytes, alone and nested."""
    tracemalloc.start()
    for data in (claim, b"\x84\xa4kind" + claim, b"\x91" * 200 + claim, b"\xdc\x3f\xff" * 400):
        with pytest.raises(FrameError):
            decode([_seal(data)], LIMITS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 128 << 20


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_random_bytes_raise_nothing_else(frames: list[bytes]):
    with pytest.raises(FrameError):
        decode(frames, LIMITS)


@given(st.binary(max_size=300))
def test_random_msgpack_raises_nothing_else(data: bytes):
    with pytest.raises(FrameError):
        decode([_seal(data)], LIMITS)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([*sorted(MESSAGES), *(f"shared {name}" for name in sorted(SHARED_MESSAGES))]), st.data())
def test_mutations_raise_nothing_else(name: str, data: st.DataObject):
    """Bytes changed, with and without a checksum made right again: refused, or understood."""
    region = None
    if name in MESSAGES:
        frames = [bytearray(frame) for frame in encode(MESSAGES[name], LIMITS)]
    else:
        sealed, content = encode_shared(SHARED_MESSAGES[name.removeprefix("shared ")])
        frames, region = [bytearray(frame) for frame in sealed], GivenRegion(content)
    victim = data.draw(st.sampled_from(frames))
    for _ in range(data.draw(st.integers(1, 4))):
        if victim:
            victim[data.draw(st.integers(0, len(victim) - 1))] = data.draw(st.integers(0, 255))
    changed = [bytes(frame) for frame in frames]
    if data.draw(st.booleans()):
        changed[0] = _seal(changed[0][12:])
    with contextlib.suppress(FrameError):
        decode(changed, LIMITS, region)


header_values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=5), st.just([[]])
)


@given(st.sampled_from(sorted(Kind, key=lambda kind: kind.value)), st.data())
def test_any_field_of_any_type_is_refused_or_of_its_type(kind: Kind, data: st.DataObject):
    header = {name: data.draw(header_values) for name in REQUIRED[kind]}
    with contextlib.suppress(FrameError):
        decode(
            [_seal(msgpack.packb({"kind": kind.value, "header": header, "tensors": [], "sum": 0xEF46DB3751D8E999}))],
            LIMITS,
        )


def test_digest_tells_order_and_kind_of_ids():
    ids = np.array([1, 2, 3])
    assert digest(ids) == digest(ids.astype(np.int32))
    assert (
        len(
            {
                digest(ids),
                digest(ids[::-1]),
                digest(ids[:2]),
                digest(["1", "2", "3"]),
                digest(["12", "3"]),
                digest(["1", "23"]),
            }
        )
        == 6
    )
