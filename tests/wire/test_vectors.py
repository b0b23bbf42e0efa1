"""The golden vectors say what they say, in both directions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from messenger.errors import FrameError
from messenger.frames import VERSION, decode, encode
from messenger.settings import Limits
from tests.wire.vectors import INVALID, MESSAGES, VALID, join, message_of, split

VALID_FILES = sorted(VALID.glob("*.bin"))
INVALID_FILES = sorted(INVALID.glob("*.bin"))


def test_there_is_a_vector_for_every_message_described():
    assert {path.stem for path in VALID_FILES} == set(MESSAGES)
    assert len(INVALID_FILES) >= 8
    assert VERSION == 1, "a new protocol version needs new vectors: python -m tests.wire.vectors"


@pytest.mark.parametrize("path", VALID_FILES, ids=lambda path: path.stem)
def test_decode_gives_the_meaning(path: Path):
    expected = message_of(json.loads(path.with_suffix(".json").read_text()))
    message = decode(split(path.read_bytes()), Limits())
    assert (message.kind, message.header, message.checksum) == (expected.kind, expected.header, expected.checksum)
    assert message.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        assert message.tensors[name].dtype == tensor.dtype
        np.testing.assert_array_equal(message.tensors[name], tensor)


@pytest.mark.parametrize("path", VALID_FILES, ids=lambda path: path.stem)
def test_encode_gives_the_bytes(path: Path):
    meaning = json.loads(path.with_suffix(".json").read_text())
    assert join(encode(message_of(meaning), Limits())) == path.read_bytes()


@pytest.mark.parametrize("path", INVALID_FILES, ids=lambda path: path.stem)
def test_what_is_wrong_is_refused(path: Path):
    with pytest.raises(FrameError):
        decode(split(path.read_bytes()), Limits())
