"""Memory in files: its pages count as memory of this process only while somebody works on them."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import ClassVar, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import psutil
import torch
from torch import Tensor

from lotan.errors import EngineError
from lotan.files import nearest_folder
from planner.chunks import PART_BYTES

Number = TypeVar("Number", bound=np.generic)

IN_MEMORY = ("tmpfs", "ramfs")  # types of file systems
HELP = "free some there, set TMPDIR to a folder on another disk, or raise memory_limit"


def check_room(size: int, folders: Sequence[str] = (), setting: str = "TMPDIR", limited: bool = True) -> None:
    """Check that folders of columns in files are on disks, with room. Each of several folders takes an equal share.

    Args:
        size: The number of bytes in all folders together.
        folders: The folders, which need not exist yet; (): that of temporary files alone.
        setting: The name of the setting that has the folders.
        limited: True if a memory limit is the reason for files, so that they may not lie in memory.

    Raises:
        EngineError: If a folder is in memory, or has too little room.
    """
    folders, why = folders or [tempfile.gettempdir()], "under this memory_limit, " if limited else ""
    larger = "raise memory_limit" if limited else "start Spark with a larger heap"
    for folder in folders if limited else ():
        if file_system(Path(folder)) in IN_MEMORY:
            raise EngineError(
                f"{why}columns lie in files in {folder}, which is itself in memory; set {setting} to a folder on a "
                "disk, or raise memory_limit"
            )
    devices: dict[int, list[str]] = {}
    for folder in folders:
        devices.setdefault(os.stat(nearest_folder(folder)).st_dev, []).append(folder)
    for there in devices.values():
        free, needed = shutil.disk_usage(nearest_folder(there[0])).free, ceil(size * len(there) / len(folders))
        if free < needed:
            has = "have" if len(there) > 1 else "has"
            raise EngineError(
                f"{why}{needed:,} bytes of columns lie in files in {' and '.join(there)}, which {has} {free:,} bytes left; "
                f"free some there, set {setting} to a folder on another disk, or {larger}"
            )


def file_system(folder: Path) -> str:
    """Return the type of the file system that a folder lies on, or an empty text if the system does not say."""
    real = folder.resolve()
    above = [mount for mount in psutil.disk_partitions(all=True) if real.is_relative_to(mount.mountpoint)]
    return max(above, key=lambda mount: len(mount.mountpoint)).fstype if above else ""


class MappedMemory:
    """Makes tensors whose memory is a file without a name, which vanishes with the last tensor that uses it.

    `give_back` takes the pages of a tensor out of this process. The numbers stay in the file, and the operating system
    keeps them in its cache while it has memory to spare. A later read brings them back.

    Args:
        folder: The folder of the files; None: that of temporary files.
    """

    # all of this process, by the address of their first byte; a tensor keeps its own map alive
    _maps: ClassVar[WeakValueDictionary[int, mmap.mmap]] = WeakValueDictionary()

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder or tempfile.gettempdir()

    def new(self, numbers: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return a tensor with arbitrary numbers in it. [numbers].

        Raises:
            EngineError: If the disk is full.
        """
        if not numbers:
            return torch.empty(0, dtype=dtype)
        size = numbers * dtype.itemsize
        file = self._file(size)
        try:
            mapped = mmap.mmap(file, size)
        finally:
            os.close(file)  # the map has a descriptor of its own
        tensor = torch.frombuffer(mapped, dtype=dtype)
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
        """Take the pages of all such tensors out of this process."""
        for mapped in list(self._maps.values()):
            mapped.madvise(mmap.MADV_DONTNEED)

    def array(self, count: int, like: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Return an array of so many rows of the same kind as those of another, with arbitrary numbers in it.

        Raises:
            EngineError: If the disk is full.
        """
        numbers = count * int(np.prod(like.shape[1:]))
        found: npt.NDArray[Number] = self.new(numbers, torch.from_numpy(like[:0]).dtype).numpy()
        return found.reshape(count, *like.shape[1:])

    def stored(self, array: npt.NDArray[Number], rows: npt.NDArray[np.int64] | None = None) -> npt.NDArray[Number]:
        """Return an array in a file: a copy, or some rows of it.

        Args:
            array: The array, which may lie in a file itself.
            rows: The rows to copy, as positions; None: all.

        Raises:
            EngineError: If the disk is full.
        """
        found = self.array(len(array) if rows is None else len(rows), array)
        for some in parts(found):
            found[some] = array[some] if rows is None else array[rows[some]]
            give_back(array)
        return found


def give_back(array: npt.NDArray[Number]) -> None:
    """Take the pages of a contiguous array out of this process, if it lies in a file of `MappedMemory`."""
    if array.dtype.kind in "biuf" and array.flags.c_contiguous and array.flags.writeable:
        MappedMemory().give_back(torch.from_numpy(array))


def rows_at(array: npt.NDArray[Number], rows: npt.NDArray[np.int64]) -> npt.NDArray[Number]:
    """Return some rows of an array, in the order that is asked for.

    Of an array in a file, the rows of one region are read after those of another, so that few of its pages are in memory.

    Args:
        array: The array. [any, ...]
        rows: The rows, as positions. [rows]
    """
    memory, length = MappedMemory(), max(1, PART_BYTES // max(1, array[:1].nbytes))
    if len(array) <= length or not memory.holds(torch.from_numpy(array)):
        return array[rows]
    order = np.argsort(rows, kind="stable")
    starts = np.arange(0, len(array), length)
    cuts = np.searchsorted(rows[order], starts)
    found = np.empty((len(rows), *array.shape[1:]), dtype=array.dtype)
    for start, some in zip(starts, np.split(order, cuts[1:]), strict=True):
        if len(some):
            found[some] = array[rows[some]]
            give_back(array[start : start + length])
    return found


def parts(array: npt.NDArray[Number]) -> Iterator[slice]:
    """Yield the rows of an array: some at a time if it lies in a file, and otherwise all.

    The pages of these rows are given back when the next ones are asked for.
    """
    if not (array.size and array.flags.c_contiguous and array.flags.writeable):
        yield slice(0, len(array))
        return
    memory, tensor = MappedMemory(), torch.from_numpy(array)
    length = max(1, PART_BYTES // max(1, tensor[:1].nbytes)) if memory.holds(tensor) else len(array)
    for start in range(0, len(array), length):
        yield slice(start, min(start + length, len(array)))
        memory.give_back(tensor[start : start + length])
