"""A file on the local disk for tensors that do not fit into memory. It has no name and vanishes with its process."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from threading import Lock
from typing import IO

import torch
from torch import Tensor

from messenger.extents import Extents

log = logging.getLogger(__name__)

PAGE = 4096  # bytes; each tensor begins at a multiple of it
FIRST_BYTES = 64 << 20  # size of a new file, which doubles from there

Extent = tuple[int, int]
"""An offset in the file, and the bytes taken there."""


class SpillFile:
    """Tensors on disk. Freed room is used again. A full disk is reported once, and then the file grows no more.

    The file is read and written, not mapped: pages of a mapped file would count as memory of a process that limits its
    memory.

    Args:
        folder: A folder on a local disk, in which the file is made when it is first needed; None: that of temporary files.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder or tempfile.gettempdir()
        self._file: IO[bytes] | None = None
        self._extents = Extents(0, 0)
        self._full = False
        self._lock = Lock()  # of the extents: threads may write and read at once

    @property
    def has_room(self) -> bool:
        """True if a write may succeed."""
        return not self._full or self._extents.free > 0

    def write(self, tensors: Sequence[Tensor]) -> list[Extent] | None:
        """Write contiguous tensors and return their places, or None if there is no room for all of them."""
        taken: list[Extent] = []
        for tensor in tensors:
            with self._lock:
                place = self._take(tensor.nbytes)
            if place is None:
                self.free(taken)
                return None
            taken.append(place)
            assert self._file is not None  # there is room in it
            _write(self._file.fileno(), _bytes(tensor), place[0])
        return taken

    def read(self, place: Extent, into: Tensor) -> None:
        """Read a place into a contiguous tensor of the size that was written there."""
        assert self._file is not None, "nothing was written yet"
        _read(self._file.fileno(), _bytes(into), place[0])

    def free(self, places: Sequence[Extent]) -> None:
        """Free places for other tensors."""
        with self._lock:
            for offset, size in places:
                self._extents.give(offset, size)

    def clear(self) -> None:
        """Free the disk if the file has no tensors any more."""
        if self._file is not None and self._extents.free == self._extents.end:
            self._file.close()
            self._file, self._extents, self._full = None, Extents(0, 0), False

    def _take(self, size: int) -> Extent | None:
        padded = max(1, -(-size // PAGE)) * PAGE
        offset = self._extents.take(padded)
        if offset is None and not self._full and self._grow(padded):
            offset = self._extents.take(padded)
        return None if offset is None else (offset, padded)

    def _grow(self, size: int) -> bool:
        """Reserve more room, at least `size` contiguous bytes, so that no write finds the disk full."""
        end = self._extents.end
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, prefix="lotan-spill-", buffering=0)  # noqa: SIM115
            for more in (max(end, FIRST_BYTES, size), size):
                try:
                    os.posix_fallocate(self._file.fileno(), end, more)
                except OSError:
                    if more == size:
                        raise
                else:
                    self._extents.extend(end + more)
                    return True
        except OSError as error:
            self._full = True
            log.warning(
                "no room in %s for what exceeds the worker's memory: it is computed again (%s)", self._folder, error
            )
        return False


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().data


def _write(file: int, content: memoryview, offset: int) -> None:
    while content.nbytes:
        written = os.pwrite(file, content, offset)
        content, offset = content[written:], offset + written


def _read(file: int, into: memoryview, offset: int) -> None:
    while into.nbytes:
        found = os.preadv(file, [into], offset)
        if not found:
            raise OSError(f"a spill file ends at {offset}, before what was written to it")
        into, offset = into[found:], offset + found
