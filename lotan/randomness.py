"""Random numbers that belong to (seed, epoch, operator, row, column) and to nothing else.

A counter-based generator: each number is a hash of what it belongs to. So a mask is the same whatever engine,
partition, chunk, worker or attempt draws it, and a rerun draws it again. One 64-bit hash serves four columns with
16 bits each.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

Hashes = NDArray[np.uint64]

_GAMMA = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: the increment of splitmix64 (Steele, Lea, Flood 2014)
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_WORD = (1 << 64) - 1
_DRAWS = 4  # 16-bit draws in one hash
_LEVELS = 1 << 16
_BLOCK = 1 << 13  # hashes drawn at a time: 64 KiB, which stays in the cache through all passes of the mixing


@dataclass(frozen=True)
class Randomness:
    """Where a pass's random numbers come from."""

    seed: int
    epoch: int

    def operator(self, key: int | str) -> int:
        """The 64-bit state of one operator, from which its rows draw."""
        number = crc32(key.encode()) if isinstance(key, str) else key
        state = 0
        for part in (self.seed, self.epoch, number):
            state = _mix((state ^ (part & _WORD)) + _GAMMA)
        return state


def _mix(state: int) -> int:
    """The finaliser of splitmix64 on one number."""
    state &= _WORD
    state = (state ^ (state >> 30)) * _MIX_1 & _WORD
    state = (state ^ (state >> 27)) * _MIX_2 & _WORD
    return state ^ (state >> 31)


def _mix_array(state: Hashes) -> Hashes:
    """The finaliser of splitmix64, in place."""
    other = np.empty_like(state)
    for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
        np.right_shift(state, np.uint64(shift), out=other)
        np.bitwise_xor(state, other, out=state)
        np.multiply(state, np.uint64(factor), out=state)
    np.right_shift(state, np.uint64(31), out=other)
    return np.bitwise_xor(state, other, out=state)


def draws(randomness: Randomness, key: int | str, row_keys: Tensor, columns: int) -> NDArray[np.uint16]:
    """Uniform 16-bit numbers. uint16 [rows, columns]."""
    words = -(-columns // _DRAWS)
    keys = row_keys.numpy().view(np.uint64)
    rows = _mix_array(keys ^ np.uint64(randomness.operator(key)))[:, None]  # uint64 [rows, 1]
    steps = np.arange(1, words + 1, dtype=np.uint64) * np.uint64(_GAMMA)  # uint64 [words]
    hashes = np.empty((len(keys), words), dtype=np.uint64)
    block = max(1, _BLOCK // max(1, words))
    for start in range(0, len(keys), block):
        part = hashes[start : start + block]
        np.add(rows[start : start + block], steps, out=part)
        _mix_array(part)
    return _sixteen_bits(hashes)[:, :columns]


def _sixteen_bits(hashes: Hashes) -> NDArray[np.uint16]:
    """The four draws of each hash, lowest bits first on every machine."""
    if sys.byteorder == "big":
        hashes = hashes.byteswap()
    return hashes.view("<u2")


def keep_mask(x: Tensor, threshold: int, randomness: Randomness, key: int | str, row_keys: Tensor) -> Tensor:
    """Which numbers of `x` [rows, *shape] a dropout keeps: those whose draw is at least `threshold`. bool, like x."""
    if row_keys.numel() != x.shape[0]:
        raise ValueError(f"dropout over {x.shape[0]} rows was given {row_keys.numel()} row keys")
    columns = x[:1].numel() if x.shape[0] else 0
    kept = draws(randomness, key, row_keys, columns) >= np.uint16(threshold)
    return torch.from_numpy(kept).view(x.shape)


class _Dropout(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(kept)
        ctx.scale = scale
        return (x * kept).mul_(scale)  # in place: fresh memory costs more than the product

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (kept,) = ctx.saved_tensors
        return (gradient * kept).mul_(ctx.scale), None, None


def dropout(x: Tensor, p: float, randomness: Randomness, key: int | str, row_keys: Tensor) -> Tensor:
    """Zero each number of `x` with probability `p` and scale the rest so that the expectation stays.

    The probability is rounded to a multiple of 2^-16, and the scale is that of the rounded one.

    Args:
        x: float32 [rows, *shape].
        p: probability of zero, from 0 to 1.
        randomness: seed and epoch.
        key: names the operator.
        row_keys: int64 [rows], whose numbers these are.

    Raises:
        ValueError: not as many row keys as rows.
    """
    threshold = round(p * _LEVELS)
    if threshold == 0:
        return x
    if threshold == _LEVELS:
        return x * 0
    kept = keep_mask(x, threshold, randomness, key, row_keys)
    return _Dropout.apply(x, kept, _LEVELS / (_LEVELS - threshold))
