"""Sums of named tensors in float64, in the order in which they are added."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xxhash

from messenger.errors import MessengerError
from messenger.frames import ZEROS, raw_bytes, tensor_checksum


class Sums:
    """Running sums by name. The caller decides the order of addition, and with it the last bit."""

    def __init__(self) -> None:
        self.tensors: dict[str, np.ndarray] = {}

    def add(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Add each tensor to the sum of its name.

        Raises:
            MessengerError: a tensor has another shape than the sum so far.
        """
        for name, tensor in tensors.items():
            total = self.tensors.get(name)
            if total is None:
                self.tensors[name] = tensor.astype(np.float64)
            elif total.shape != tensor.shape:
                raise MessengerError(f"cannot add {name!r} of shape {tensor.shape} to a sum of shape {total.shape}")
            else:
                total += tensor

    def checksum(self) -> int:
        """Return a checksum of the names, shapes and values, in the order of the names.

        Values are hashed as `messenger.frames` describes it.
        """
        state = xxhash.xxh3_64(ZEROS)
        for name in sorted(self.tensors):
            tensor = self.tensors[name]
            state.update(f"{name}{tensor.shape}".encode())
            state.update(tensor_checksum(raw_bytes(tensor)).to_bytes(8, "little"))
        return state.intdigest()
