"""Random numbers that belong to (seed, epoch, batch, operator, row, column) and to nothing else.

The generator is counter-based: each number is a hash of what it belongs to. A mask is therefore the same whatever engine,
partition, chunk, worker or attempt draws it, and a rerun draws it again. One 64-bit hash serves four columns with
16 bits each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lotan.stages.draws import LEVELS, Randomness, blocks, draws, random_words
from planner.spec import Distribution

__all__ = ["LEVELS", "Mask", "Randomness", "draws", "dropout", "random_rows", "random_words", "threshold_of"]


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
        drawn = draws(randomness, key, row_keys.numpy(), width).astype(np.int32)
        return torch.from_numpy((drawn >= threshold_of(1 - p)).astype(np.float32)).view(x.shape)
    if kind == "normal":  # by Box and Muller (1958)
        words = random_words(randomness, key, row_keys.numpy(), 2 * width).astype(np.float64)
        radius = np.sqrt(-2 * np.log((words[:, 0::2] + 0.5) / 2**32))
        normal = radius * np.cos(2 * np.pi / 2**32 * words[:, 1::2])
        return torch.from_numpy(normal.astype(np.float32)).view(x.shape)
    uniform = (random_words(randomness, key, row_keys.numpy(), width) >> np.uint32(8)).astype(np.float32) * np.float32(
        2**-24
    )
    found = torch.from_numpy(uniform).view(x.shape)
    return (found < x.detach()).float() if kind == "bernoulli" else found


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
        for rows, drawn in blocks(self.state, self.row_keys.numpy(), x.shape[1]):
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
