"""Learned rows and the optimizer's state of each on a disk: a file for each partition, and another for each generation.

A generation ends with a checkpoint: after an epoch, or between mini-batches. The next one writes files of its own and leaves
those before as they are. So the rows of the last checkpoint are whole at any moment, and those of the best epoch too. Other
files are removed once a checkpoint is on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import Tensor

from lotan.errors import StorageError
from lotan.files import force_directory
from lotan.storage.folder import ROWS, written
from lotan.storage.placement import Placement

GENERATIONS = 3
"""The files of all rows on the disk: those of the last checkpoint, those written since then, and the best ones."""

Versions = Mapping[str, tuple[int, str]]
"""The generation of each partition's file and the checksums of its columns, by the number of the partition as a text."""


@dataclass
class Moved:
    """The bytes that training has moved between memory and disk, and the seconds that it took."""

    swaps: int = 0  # partitions that were read in the place of others, within epochs
    read_bytes: int = 0  # of the columns of partitions
    written_bytes: int = 0
    read_seconds: float = 0.0
    write_seconds: float = 0.0
    partition_wait_seconds: float = 0.0  # that training waited for partitions
    edge_bytes: int = 0  # of edges and links, which are read while training waits
    edge_seconds: float = 0.0


class RowFiles:
    """The files of learned rows.

    Args:
        folder: The folder of the storage, which the caller has claimed.
        placement: The partitions.
        widths: The numbers of a row in each column: learned rows come first, and the optimizer's state after them.
        name: The name of their folder there.
        mend: The last part of an error about a damaged file: what to do.
    """

    def __init__(
        self,
        folder: Path,
        placement: Placement,
        widths: Sequence[int],
        name: str = ROWS,
        mend: str = "name the storage_dir that the run had, restore it from a copy, or train anew in another one",
    ) -> None:
        self.folder, self.placement, self.widths = folder / name, placement, tuple(widths)
        self._mend = mend
        self.mended = ""  # what was damaged and has been written again, in words
        self.versions: dict[str, tuple[int, str]] = {}  # those that are read now
        self._unforced: set[Path] = set()
        written(self.folder, lambda: self.folder.mkdir(parents=True, exist_ok=True))

    @property
    def next_generation(self) -> int:
        """The number of a generation that none of the files read now has."""
        return 1 + max((generation for generation, _ in self.versions.values()), default=-1)

    def path(self, partition: int, generation: int) -> Path:
        """Return the place of a partition's file of a generation."""
        return self.folder / f"{partition}.{generation}.bin"

    def write(self, partition: int, generation: int, rows: Sequence[Tensor]) -> int:
        """Write the rows of a partition, and return the number of bytes. `versions` is left to the caller.

        Raises:
            StorageError: If they cannot be written.
        """
        path = self.path(partition, generation)
        self._unforced.add(path)

        def write() -> str:
            sums = []
            with open(path, "wb", buffering=0) as file:
                for column in rows:
                    data = column.numpy().reshape(-1).data.cast("B")
                    sums.append(xxhash.xxh3_64_hexdigest(data))
                    while len(data):
                        data = data[file.write(data) :]
            return "-".join(sums)

        self.versions[str(partition)] = generation, written(path, write)
        return sum(column.nbytes for column in rows)

    def read(self, partition: int, out: Sequence[Tensor], versions: Versions | None = None) -> int:
        """Read the rows of a partition, and return the number of bytes.

        Args:
            partition: The partition.
            out: The tensors that take its first columns. [vertices of the partition, width] each.
            versions: The files to read; None: those of `versions`.

        Raises:
            StorageError: If the file is not there, was cut short or was changed.
        """
        generation, sums = (self.versions if versions is None else versions)[str(partition)]
        path = self.path(partition, generation)
        try:
            with open(path, "rb", buffering=0) as file:
                for column, checksum in zip(out, sums.split("-"), strict=False):
                    data = rest = column.numpy().reshape(-1).data.cast("B")
                    while len(rest) and (count := file.readinto(rest)):
                        rest = rest[count:]
                    if len(rest) or xxhash.xxh3_64_hexdigest(data) != checksum:
                        raise StorageError(f"{path} was cut short or changed; {self._mend}")
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {error.strerror}; {self._mend}") from error
        return sum(column.nbytes for column in out)

    def new(self, columns: int | None = None) -> list[Tensor]:
        """Return tensors that take the first columns of any partition; None: all columns."""
        return [torch.empty(self.placement.capacity, width) for width in self.widths[:columns]]

    def cut(self, partition: int, columns: Sequence[Tensor]) -> list[Tensor]:
        """Return the part of such tensors that a partition fills."""
        return [column[: self.placement.count(partition)] for column in columns]

    def check(self, versions: Versions) -> None:
        """Check that all files of a checkpoint are whole, before training goes on from them.

        Raises:
            StorageError: If one is not.
        """
        columns = self.new()
        for partition in range(self.placement.partitions):
            if str(partition) not in versions:
                raise StorageError(
                    f"the checkpoint names no file of partition {partition} in {self.folder}; {self._mend}"
                )
            self.read(partition, self.cut(partition, columns), versions)

    def force(self) -> None:
        """Force to the disk what was written since the last call.

        Raises:
            StorageError: If that fails.
        """

        def force() -> None:
            for path in sorted(self._unforced):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            force_directory(self.folder)

        written(self.folder, force)
        self._unforced.clear()

    def keep(self, kept: Iterable[Versions]) -> None:
        """Remove all files but those of some versions."""
        names = {self.path(int(partition), generation) for one in kept for partition, (generation, _) in one.items()}
        for path in self.folder.glob("*.bin"):
            if path not in names:
                path.unlink(missing_ok=True)


def versions_of(content: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """Return versions that were read from a checkpoint."""
    return {partition: (int(generation), str(checksum)) for partition, (generation, checksum) in content.items()}
