"""The memory into which a worker writes a chunk's result: what its Dealer has lent for it, as far as that reaches."""

from __future__ import annotations

import math

import numpy as np

from messenger.fields import ALIGNMENT
from messenger.spaces import Space

FLOAT = np.dtype("<f4")


class Room:
    """Memory for one chunk's result. No byte is used twice.

    `messenger.frames.encode` does not copy an array that lies in the Dealer's space.

    Args:
        space: the space that the Dealer has lent, or None if it has lent none.
    """

    def __init__(self, space: Space | None = None) -> None:
        self._left = memoryview(b"") if space is None else space.memory

    def array(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return a float32 array to be filled, which begins at a multiple of 64 bytes.

        It lies in the Dealer's space, or in memory of this process once the space is used up.
        """
        size = 4 * math.prod(shape)
        padded = -(-size // ALIGNMENT) * ALIGNMENT
        if padded > self._left.nbytes:
            return aligned(shape, FLOAT)
        memory, self._left = self._left[:size], self._left[padded:]
        return np.frombuffer(memory, FLOAT).reshape(shape)


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return a new array that begins at a multiple of 64 bytes, as tensors in shared memory do."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % ALIGNMENT
    return memory[first : first + size].view(dtype).reshape(shape)
