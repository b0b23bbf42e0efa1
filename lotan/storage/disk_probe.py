"""The measured speed of the disk that a folder lies on."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from lotan.storage.folder import nearest
from planner.orders.disk import Disk

PROBE = 4 << 20
"""The bytes of each write that measures a disk."""

WRITES = 5
"""The number of these writes. Their median counts, because a disk that others use as well is slow at times."""

LEAST_BLOCK = 4 << 10
"""The least bytes of a block, whatever the file system says."""

PLACES = 16
"""The number of places in the file at which a block is read."""

GUESS = 4e8, 1e-4
"""The bytes a second, and the seconds of an access, of a disk that cannot be measured because nothing can be written."""

_known: dict[int, Disk] = {}
"""The disks that this process has measured, by the number of their file system."""


def disk_of(folder: Path | None) -> Disk:
    """Return the disk of a folder for storage, which is measured once.

    If nothing can be written there, a run says so. Here the folder of temporary files is measured in its place.

    Args:
        folder: The folder, which need not exist; None: that of temporary files.
    """
    place = nearest(folder)
    if not os.access(place, os.W_OK):
        place = nearest(None)
    return _known.get(place.stat().st_dev) or _known.setdefault(place.stat().st_dev, _measured(place))


def block_of(folder: Path | None) -> int:
    """Return the bytes that the file system of a folder for storage reads at a time.

    Args:
        folder: The folder, or None, as in `disk_of`.
    """
    return max(LEAST_BLOCK, os.statvfs(nearest(folder)).f_bsize)


def _measured(folder: Path) -> Disk:
    """Return the disk of a folder as it is measured, or a guess if the disk is full."""
    block = block_of(folder)
    try:
        return Disk(*_speed(folder, block), block)
    except OSError:  # it is full, which a run says before it writes
        return Disk(*GUESS, block)


def _speed(folder: Path, block: int) -> tuple[float, float]:
    """Measure the bytes a second at which a short file is written, and the seconds in which a block of it is read.

    Raises:
        OSError: If nothing can be written.
    """
    data = os.urandom(PROBE)
    with tempfile.TemporaryFile(dir=folder) as file:
        descriptor = file.fileno()

        def write(number: int) -> None:
            if os.pwrite(descriptor, data, number * PROBE) < PROBE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)

        def read(number: int) -> None:
            os.pread(descriptor, block, (number * 7 % PLACES) * (PROBE // PLACES))

        of_write = _seconds(write, WRITES)
        # else the reads would find the file in the system's memory
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return PROBE / of_write, _seconds(read, PLACES)


def _seconds(call: Callable[[int], None], times: int) -> float:
    """Return the median of the seconds of a function, which is called with 0, 1 and so on."""
    found = []
    for number in range(times):
        started = time.perf_counter()
        call(number)
        found.append(max(1e-9, time.perf_counter() - started))
    return median(found)
