"""Random numbers as plain arrays: hashes of (seed, epoch, batch, operator, row, column). Spark's tasks draw them without torch.

`lotan.stages.randomness` says what they belong to, and makes tensors of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Draws = NDArray[np.uint16]
RowKeys = NDArray[np.int64]

_GAMMA = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: the increment of splitmix64 (Steele, Lea, Flood 2014)
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_WORD = (1 << 64) - 1
_DRAWS = 4  # 16-bit draws in one hash
LEVELS = 1 << 16  # number of values that a draw can have
_BLOCK = 1 << 14  # hashes drawn at a time: 128 KiB, which stays in the cache through all passes over them


@dataclass(frozen=True)
class Randomness:
    """The seed, the epoch and the batch of a pass's random numbers."""

    seed: int
    epoch: int
    seeds: tuple[int, ...] = ()  # the seeds of a batch's models, by their numbers; empty: there is one model
    batch: int = 0  # the number of the mini-batch in its epoch; the first one draws what a full batch draws

    def of(self, model: int) -> Randomness:
        """Return the random numbers of one model of a batch, which are those of the model alone."""
        return Randomness(self.seeds[model], self.epoch, batch=self.batch) if self.seeds else self

    def operator(self, key: int | str) -> int:
        """Return the 64-bit state of one operator, from which its rows draw."""
        return _operator(self.seed, self.epoch, self.batch, key)


@lru_cache(maxsize=1024)  # each chunk asks for it
def _operator(seed: int, epoch: int, batch: int, key: int | str) -> int:
    number = crc32(key.encode()) if isinstance(key, str) else key
    state = 0
    for part in (seed, epoch, *[batch] * bool(batch), number):
        state = _mix((state ^ (part & _WORD)) + _GAMMA)
    return state


def _mix(state: int) -> int:
    """Apply the finaliser of splitmix64 to one number."""
    state &= _WORD
    state = (state ^ (state >> 30)) * _MIX_1 & _WORD
    state = (state ^ (state >> 27)) * _MIX_2 & _WORD
    return state ^ (state >> 31)


def _mix_array(state: Hashes, other: Hashes) -> Hashes:
    """Apply the finaliser of splitmix64 in place. `other` is overwritten."""
    for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
        np.right_shift(state, np.uint64(shift), out=other)
        np.bitwise_xor(state, other, out=state)
        np.multiply(state, np.uint64(factor), out=state)
    np.right_shift(state, np.uint64(31), out=other)
    return np.bitwise_xor(state, other, out=state)


def blocks(state: int | Hashes, row_keys: RowKeys, columns: int) -> Iterator[tuple[slice, Draws]]:
    """Yield blocks of rows with their draws, uint16 [rows, columns]. A block is valid until the next one.

    Args:
        state: The state of the operator, see `Randomness.operator`, or a state for each row, uint64 [rows].
        row_keys: The keys of the rows, int64 [rows].
        columns: The number of draws of a row.
    """
    words = -(-columns // _DRAWS)
    rows = np.ascontiguousarray(row_keys).view(np.uint64) ^ np.asarray(state, dtype=np.uint64)
    rows = _mix_array(rows, np.empty_like(rows))[:, None]  # uint64 [rows, 1]
    steps = np.arange(1, words + 1, dtype=np.uint64) * np.uint64(_GAMMA)  # uint64 [words]
    size = max(1, min(_BLOCK // max(1, words), len(rows)))
    hashes, other = np.empty((size, words), dtype=np.uint64), np.empty((size, words), dtype=np.uint64)
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        part = hashes[: len(some)]
        np.add(some, steps, out=part)
        yield slice(start, start + len(some)), _sixteen_bits(_mix_array(part, other[: len(some)]))[:, :columns]


def _sixteen_bits(hashes: Hashes) -> Draws:
    """Return the four draws of each hash, lowest bits first on every machine."""
    if sys.byteorder == "big":
        hashes = hashes.byteswap()
    return hashes.view("<u2")


def draws(randomness: Randomness, key: int | str, row_keys: RowKeys, columns: int) -> Draws:
    """Return uniform 16-bit numbers, uint16 [rows, columns]."""
    return _draws(randomness.operator(key), row_keys, columns)


def random_words(randomness: Randomness, key: int | str, row_keys: RowKeys, columns: int) -> NDArray[np.uint32]:
    """Return uniform 32-bit numbers, uint32 [rows, columns]."""
    return words_from(randomness.operator(key), row_keys, columns)


def words_from(state: int | Hashes, row_keys: RowKeys, columns: int) -> NDArray[np.uint32]:
    """Return uniform 32-bit numbers, uint32 [rows, columns]; `state` is as for `blocks`."""
    halves = _draws(state, row_keys, 2 * columns).astype(np.uint32)
    return (halves[:, 0::2] << np.uint32(16)) | halves[:, 1::2]


def _draws(state: int | Hashes, row_keys: RowKeys, columns: int) -> Draws:
    found = np.empty((len(row_keys), columns), dtype=np.uint16)
    for rows, drawn in blocks(state, row_keys, columns):
        found[rows] = drawn
    return found
