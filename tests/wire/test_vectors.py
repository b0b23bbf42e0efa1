"""The golden vectors say what they say, in both directions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from messenger.errors import FrameError, UnmappedError
from messenger.frames import VERSION, Message, decode, encode
from messenger.settings import Limits
from tests.wire.vectors import (
    INVALID,
    MESSAGES,
    REGION_BYTES,
    SHARED,
    SHARED_INVALID,
    SHARED_MESSAGES,
    VALID,
    GivenRegion,
    encode_shared,
    join,
    message_of,
    split,
)

VALID_FILES = sorted(VALID.glob("*.bin"))
INVALID_FILES = sorted(INVALID.glob("*.bin"))
SHARED_FILES = sorted(SHARED.glob("*.bin"))
SHARED_INVALID_FILES = sorted(SHARED_INVALID.glob("*.bin"))


def test_there_is_a_vector_for_every_message_described():
    assert {path.stem for path in VALID_FILES} == set(MESSAGES)
    assert {path.stem for path in SHARED_FILES} == set(SHARED_MESSAGES)
    assert len(INVALID_FILES) >= 8
    assert len(SHARED_INVALID_FILES) >= 16
    assert VERSION == 2, "a new protocol version needs new vectors: python -m tests.wire.vectors"


def check_meaning(message: Message, expected: Message) -> None:
    assert (message.kind, message.header, message.checksum) == (expected.kind, expected.header, expected.checksum)
    assert message.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        assert message.tensors[name].dtype == tensor.dtype
        np.testing.assert_array_equal(message.tensors[name], tensor)
        assert not message.tensors[name].flags.writeable


@pytest.mark.parametrize("path", VALID_FILES, ids=lambda path: path.stem)
def test_decode_gives_the_meaning(path: Path):
    expected = message_of(json.loads(path.with_suffix(".json").read_text()))
    check_meaning(decode(split(path.read_bytes()), Limits()), expected)


@pytest.mark.parametrize("path", VALID_FILES, ids=lambda path: path.stem)
def test_encode_gives_the_bytes(path: Path):
    meaning = json.loads(path.with_suffix(".json").read_text())
    assert join(encode(message_of(meaning), Limits())) == path.read_bytes()


@pytest.mark.parametrize("path", INVALID_FILES, ids=lambda path: path.stem)
def test_what_is_wrong_is_refused(path: Path):
    with pytest.raises(FrameError):
        decode(split(path.read_bytes()), Limits())


@pytest.mark.parametrize("path", SHARED_FILES, ids=lambda path: path.stem)
def test_decode_reads_shared_memory(path: Path):
    region = GivenRegion(path.with_suffix(".region").read_bytes())
    message = decode(split(path.read_bytes()), Limits(), region)
    check_meaning(message, message_of(json.loads(path.with_suffix(".json").read_text())))
    everything = sum(tensor.nbytes for tensor in message.tensors.values())
    assert message.shared == (0 if path.stem.endswith("_inline") else everything)


@pytest.mark.parametrize("path", SHARED_FILES, ids=lambda path: path.stem)
def test_encode_fills_shared_memory(path: Path):
    frames, region = encode_shared(message_of(json.loads(path.with_suffix(".json").read_text())))
    assert join(frames) == path.read_bytes()
    assert region == path.with_suffix(".region").read_bytes()


@pytest.mark.parametrize("path", SHARED_INVALID_FILES, ids=lambda path: path.stem)
def test_a_wrong_place_is_refused(path: Path):
    with pytest.raises(FrameError) as caught:
        decode(split(path.read_bytes()), Limits(), GivenRegion(bytes(REGION_BYTES)))
    assert isinstance(caught.value, UnmappedError) == (path.stem == "unknown_region")
    assert ("checksum" in str(caught.value)) == (path.stem == "checksum")


def test_shared_memory_that_is_not_open_is_told_apart_from_nonsense():
    frames = split((SHARED / "chunk.bin").read_bytes())
    with pytest.raises(UnmappedError, match="no region is open here"):
        decode(frames, Limits())
