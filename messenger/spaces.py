"""The places of tensors in a space of shared memory: one after the other, each at a multiple of 64 bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from messenger.fields import ALIGNMENT


@dataclass(frozen=True)
class Space:
    """A part of a region, which `messenger.frames.encode` may fill."""

    region: str
    offset: int  # the space's first byte in the region, a multiple of 64
    memory: memoryview  # the space's bytes, writable


def space_bytes(tensors: Iterable[np.ndarray]) -> int:
    """Return the number of bytes that these tensors need in a `Space`."""
    return sum(_padded(tensor.nbytes) for tensor in tensors)


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def places(tensors: Mapping[str, np.ndarray], space: Space) -> dict[str, int] | None:
    """Return the position of each tensor in a space, or None if they do not fit.

    A tensor that lies in the space already stays there. The others follow behind all of those.
    """
    base = _address(space.memory)
    starts, filled = {}, 0
    for name, array in tensors.items():
        start = array.__array_interface__["data"][0] - base
        inside = start >= 0 and start + array.nbytes <= space.memory.nbytes and array.nbytes
        if inside and array.flags.c_contiguous and start % ALIGNMENT == 0:
            starts[name] = start
            filled = max(filled, start + _padded(array.nbytes))
    for name, array in tensors.items():
        if name not in starts:
            starts[name] = filled
            filled += _padded(array.nbytes)
    return starts if filled <= space.memory.nbytes else None


def _address(memory: memoryview) -> int:
    address: int = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    return address


def put(array: np.ndarray, memory: memoryview) -> memoryview:
    """Copy an array to `memory`, little endian, unless it lies there already. Return `memory`."""
    if memory.nbytes and _address(memory) != array.__array_interface__["data"][0]:
        np.frombuffer(memory, array.dtype.newbyteorder("<")).reshape(array.shape)[...] = array
    return memory
