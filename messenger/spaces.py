"""Where tensors lie in a space of shared memory: one after the other, each from a multiple of 64 on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from messenger.fields import ALIGNMENT


@dataclass(frozen=True)
class Space:
    """Shared memory that `encode` may fill."""

    region: str
    offset: int  # of its first byte in the region, a multiple of 64
    memory: memoryview  # writable, of bytes


def shared_room(tensors: Iterable[np.ndarray]) -> int:
    """Bytes of a `Space` that holds these tensors, each from a multiple of 64 on."""
    return sum(_padded(tensor.nbytes) for tensor in tensors)


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def places(tensors: Mapping[str, np.ndarray], space: Space) -> dict[str, int] | None:
    """Where in a space each tensor goes: where it is already, or behind all those. None if they do not fit."""
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
    """Have an array lie there, little endian, whether or not it does so already."""
    if memory.nbytes and _address(memory) != array.__array_interface__["data"][0]:
        np.frombuffer(memory, array.dtype.newbyteorder("<")).reshape(array.shape)[...] = array
    return memory
