"""The memory that is free for this process: that of the machine or of its container, whichever is less."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

CGROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


@dataclass(frozen=True)
class _Files:
    """The files in which a version of the kernel's control groups shows its limits."""

    limit: str
    used: str
    cache: str  # the entry of memory.stat for memory that is in use and could be dropped at once


_FIRST = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_SECOND = _Files("memory.max", "memory.current", "inactive_file")


def free_memory(cgroups: Path = CGROUPS, own: Path = OWN) -> int:
    """Return the bytes that can be allocated without the kernel killing a process for want of memory.

    Args:
        cgroups: The directory in which the kernel shows control groups.
        own: The file that names the groups of this process.
    """
    return min([int(psutil.virtual_memory().available), *_left(cgroups, own)])


def _left(cgroups: Path, own: Path) -> Iterator[int]:
    """Yield the bytes that each group around this process has left, if its limit is below the machine's memory."""
    total = psutil.virtual_memory().total
    for folder, files in _groups(cgroups, own):
        with suppress(OSError, ValueError, KeyError):  # there is no such group, or its limit is "max"
            limit = int((folder / files.limit).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            if limit < total:
                used = int((folder / files.used).read_text()) - int(stat[files.cache])
                yield max(0, limit - used)


def _groups(cgroups: Path, own: Path) -> Iterator[tuple[Path, _Files]]:
    """Yield this process's group and the groups around it. In a container, its own group may be shown as the outermost."""
    lines = own.read_text().splitlines() if own.exists() else []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if controllers and "memory" not in controllers.split(","):
            continue
        root, files = (cgroups / "memory", _FIRST) if controllers else (cgroups, _SECOND)
        inner = Path(path.lstrip("/"))
        yield from ((root / place, files) for place in (inner, *inner.parents))
