"""Random numbers that belong to (seed, epoch, batch, operator, row, column) and to nothing else.

The generator is counter-based: each number is a hash of what it belongs to. A mask is therefore the same whatever engine,
partition, chunk, worker or attempt draws it, and a rerun draws it again. One 64-bit hash serves four columns with
16 bits each.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from planner.spec import Distribution

Hashes = NDArray[np.uint64]
Draws = NDArray[np.uint16]

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


def _blocks(state: int, row_keys: Tensor, columns: int) -> Iterator[tuple[slice, Draws]]:
    """Yield blocks of rows with their draws, uint16 [rows, columns]. A block is valid until the next one."""
    words = -(-columns // _DRAWS)
    rows = row_keys.numpy().view(np.uint64) ^ np.uint64(state)
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


def draws(randomness: Randomness, key: int | str, row_keys: Tensor, columns: int) -> Draws:
    """Return uniform 16-bit numbers, uint16 [rows, columns]."""
    found = np.empty((row_keys.numel(), columns), dtype=np.uint16)
    for rows, drawn in _blocks(randomness.operator(key), row_keys, columns):
        found[rows] = drawn
    return found


def random_rows(
    x: Tensor, kind: Distribution, p: float, randomness: Randomness, key: int | str, row_keys: Tensor
) -> Tensor:
    """Return random numbers in the shape of `x`, float32 [rows, *shape]. They have no gradient.

    Args:
        x: Rows, [rows, *shape]. For "bernoulli" they hold the probabilities of 1.
        kind: The distribution, see `planner.spec.DISTRIBUTIONS`.
        p: The probability of 1 for "chance", rounded to a multiple of 2^-16.
        randomness: The seed and the epoch.
        key: The name of the operator.
        row_keys: The keys of the rows, int64 [rows].

    Raises:
        ValueError: If the numbers of row keys and rows differ.
    """
    if row_keys.numel() != x.shape[0]:
        raise ValueError(f"random numbers for {x.shape[0]} rows were given {row_keys.numel()} row keys")
    width = math.prod(x.shape[1:])
    if kind == "chance":
        drawn = draws(randomness, key, row_keys, width).astype(np.int32)
        return torch.from_numpy((drawn >= threshold_of(1 - p)).astype(np.float32)).view(x.shape)
    if kind == "normal":  # by Box and Muller (1958)
        words = random_words(randomness, key, row_keys, 2 * width).astype(np.float64)
        radius = np.sqrt(-2 * np.log((words[:, 0::2] + 0.5) / 2**32))
        normal = radius * np.cos(2 * np.pi / 2**32 * words[:, 1::2])
        return torch.from_numpy(normal.astype(np.float32)).view(x.shape)
    uniform = (random_words(randomness, key, row_keys, width) >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)
    found = torch.from_numpy(uniform).view(x.shape)
    return (found < x.detach()).float() if kind == "bernoulli" else found


def random_words(randomness: Randomness, key: int | str, row_keys: Tensor, columns: int) -> NDArray[np.uint32]:
    """Return uniform 32-bit numbers, uint32 [rows, columns]."""
    halves = draws(randomness, key, row_keys, 2 * columns).astype(np.uint32)
    return (halves[:, 0::2] << np.uint32(16)) | halves[:, 1::2]


@dataclass(frozen=True)
class Mask:
    """The mask of a dropout: numbers whose draw is at least `threshold` stay. It is drawn again whenever it is applied.

    Drawing it again costs less than storing and reading it.
    """

    state: int  # the state of the operator, see `Randomness.operator`
    threshold: int  # from 1 to 65535; of 65536 equally likely draws, those below it are dropped
    row_keys: Tensor  # int64 [rows]

    @property
    def scale(self) -> float:
        """The exact inverse of the probability to be kept."""
        return LEVELS / (LEVELS - self.threshold)

    def apply(self, x: Tensor, out: Tensor) -> Tensor:
        """Set dropped numbers of `x` to zero and scale the others. Both are float32 [rows, columns], and `out` may be `x`."""
        keep = torch.empty(0, dtype=torch.float32)
        for rows, drawn in _blocks(self.state, self.row_keys, x.shape[1]):
            kept = torch.from_numpy((drawn >= np.uint16(self.threshold)).view(np.uint8))
            keep = keep.resize_(kept.shape).copy_(kept)  # as numbers: a product is much faster than a choice by bools
            torch.mul(x[rows], keep.mul_(self.scale), out=out[rows])
        return out


def threshold_of(p: float) -> int:
    """Return the number of the 65536 draws that are dropped for a probability `p`, rounded to the nearest."""
    return round(p * LEVELS)


class _Dropout(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Mask) -> Tensor:
        ctx.mask = mask
        return _masked(x, mask)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _masked(gradient, ctx.mask), None


def _masked(x: Tensor, mask: Mask) -> Tensor:
    out = torch.empty(x.shape, dtype=x.dtype)
    if x.numel():
        mask.apply(x.reshape(x.shape[0], -1), out.view(x.shape[0], -1))
    return out


def dropout(x: Tensor, p: float, randomness: Randomness, key: int | str, row_keys: Tensor) -> Tensor:
    """Set each number of `x` to zero with probability `p`, and scale the others so that the expectation stays the same.

    The probability is rounded to a multiple of 2^-16, and the scale is that of the rounded probability.

    Args:
        x: The numbers, float32 [rows, *shape].
        p: The probability of zero, from 0 to 1.
        randomness: The seed and the epoch.
        key: The name of the operator.
        row_keys: The keys of the rows, int64 [rows].

    Raises:
        ValueError: If the numbers of row keys and rows differ.
    """
    threshold = threshold_of(p)
    if row_keys.numel() != x.shape[0]:
        raise ValueError(f"dropout over {x.shape[0]} rows was given {row_keys.numel()} row keys")
    if threshold == 0:
        return x
    if threshold == LEVELS:
        return x * 0
    return cast(Tensor, _Dropout.apply(x, Mask(randomness.operator(key), threshold, row_keys)))
