"""Memory in files: its pages count as memory of this process only while somebody works on them."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from pathlib import Path
from weakref import WeakValueDictionary

import psutil
import torch
from torch import Tensor

from lotan.errors import EngineError

NUMBER = 4  # bytes of a float32
IN_MEMORY = ("tmpfs", "ramfs")  # types of file systems
HELP = "free some there, set TMPDIR to a folder on another disk, or raise memory_limit"


def check_room(size: int) -> None:
    """Check that the folder of temporary files is on a disk, with room.

    Args:
        size: The number of bytes.

    Raises:
        EngineError: If it is in memory, or has too little room.
    """
    folder = tempfile.gettempdir()
    if file_system(Path(folder)) in IN_MEMORY:
        raise EngineError(
            f"under this memory_limit, columns lie in files in {folder}, which is itself in memory; set TMPDIR to a folder "
            "on a disk, or raise memory_limit"
        )
    free = shutil.disk_usage(folder).free
    if free < size:
        raise EngineError(
            f"under this memory_limit, {size:,} bytes of columns lie in files in {folder}, which has {free:,} bytes left; "
            f"{HELP}"
        )


def file_system(folder: Path) -> str:
    """Return the type of the file system that a folder lies on, or an empty text if the system does not say."""
    real = folder.resolve()
    above = [mount for mount in psutil.disk_partitions(all=True) if real.is_relative_to(mount.mountpoint)]
    return max(above, key=lambda mount: len(mount.mountpoint)).fstype if above else ""


class MappedMemory:
    """Makes float32 tensors whose memory is a file without a name, which vanishes with the last tensor that uses it.

    `give_back` takes the pages of a tensor out of this process. The numbers stay in the file, and the operating system
    keeps them in its cache while it has memory to spare. A later read brings them back.

    Args:
        folder: The folder of the files; None: that of temporary files.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder or tempfile.gettempdir()
        # by the address of their first byte; a tensor keeps its own map alive
        self._maps: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()

    def new(self, numbers: int) -> Tensor:
        """Return a tensor with arbitrary numbers in it. [numbers].

        Raises:
            EngineError: If the disk is full.
        """
        if not numbers:
            return torch.empty(0)
        file = self._file(numbers * NUMBER)
        try:
            mapped = mmap.mmap(file, numbers * NUMBER)
        finally:
            os.close(file)  # the map has a descriptor of its own
        tensor = torch.frombuffer(mapped, dtype=torch.float32)
        self._maps[tensor.untyped_storage().data_ptr()] = mapped
        return tensor

    def _file(self, size: int) -> int:
        """Return the descriptor of a new file, whose room on the disk is taken now: no later write finds the disk full."""
        try:
            with tempfile.TemporaryFile(dir=self.folder, prefix="lotan-columns-") as file:
                os.posix_fallocate(file.fileno(), 0, size)
                return os.dup(file.fileno())
        except OSError as error:
            raise EngineError(
                f"no room for a column of {size:,} bytes in {self.folder} ({error.strerror}); {HELP}"
            ) from error

    def holds(self, tensor: Tensor) -> bool:
        """Return True if the tensor's memory is one of these files."""
        return tensor.untyped_storage().data_ptr() in self._maps

    def give_back(self, tensor: Tensor) -> None:
        """Take the pages of a contiguous tensor out of this process. Of other memory, nothing changes."""
        first = tensor.untyped_storage().data_ptr()
        mapped = self._maps.get(first)
        if mapped is None or not tensor.nbytes:
            return
        start = (tensor.data_ptr() - first) // mmap.PAGESIZE * mmap.PAGESIZE
        end = tensor.data_ptr() - first + tensor.nbytes
        mapped.madvise(mmap.MADV_DONTNEED, start, end - start)

    def give_all_back(self) -> None:
        """Take all pages out of this process."""
        for mapped in list(self._maps.values()):
            mapped.madvise(mmap.MADV_DONTNEED)
