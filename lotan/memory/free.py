"""The memory that is free for this process: of the machine, or of the container that it runs in, whichever is less."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

CGROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


@dataclass(frozen=True)
class _Files:
    """Where a version of the kernel's control groups says what it limits."""

    limit: str
    used: str
    cache: str  # the entry of memory.stat for what is used and could be dropped at once


_FIRST = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_SECOND = _Files("memory.max", "memory.current", "inactive_file")


def free_memory(cgroups: Path = CGROUPS, own: Path = OWN) -> int:
    """Bytes that can be had without anybody being killed for it.

    Args:
        cgroups: where the kernel shows control groups.
        own: the file that says which of them this process is in.
    """
    return min([int(psutil.virtual_memory().available), *_left(cgroups, own)])


def _left(cgroups: Path, own: Path) -> Iterator[int]:
    """What each group around this process has left, where it has a limit that this machine could reach."""
    total = psutil.virtual_memory().total
    for folder, files in _groups(cgroups, own):
        with suppress(OSError, ValueError, KeyError):  # there is no such group, or its limit is "max"
            limit = int((folder / files.limit).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            if limit < total:
                used = int((folder / files.used).read_text()) - int(stat[files.cache])
                yield max(0, limit - used)


def _groups(cgroups: Path, own: Path) -> Iterator[tuple[Path, _Files]]:
    """This process's group and those that it lies in. In a container, its own group may be shown as the outermost."""
    lines = own.read_text().splitlines() if own.exists() else []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if controllers and "memory" not in controllers.split(","):
            continue
        root, files = (cgroups / "memory", _FIRST) if controllers else (cgroups, _SECOND)
        inner = Path(path.lstrip("/"))
        yield from ((root / place, files) for place in (inner, *inner.parents))
