"""Shared memory between a Dealer and workers on the same host. Tensors are written once and read where they are.

Only Dealers own memory. A Dealer's *region* is a file in a file system in memory. The file loses its name before any
other process hears of it. The kernel therefore frees it with the last process that has it open or mapped, and nothing
has to be cleaned up after a crash. In Java a file must have a name for a moment: there the name is `lotan-<pid>-...`,
and a process that makes such a file first removes those of processes that are gone. Only the owner's user can open a
region (mode 0600). Its space is reserved when it is made or grown (by posix_fallocate, or by writing zeros). A full file
system is therefore an error at once, never a SIGBUS later.

A region is called `lotan-<pid>-<descriptor>-<nonce>`, and its first 16 bytes are the nonce: 16 hexadecimal digits drawn
at random. A worker opens /proc/<pid>/fd/<descriptor> and looks for the nonce. If it finds it, the two processes share a
host, a user and that region. Any other outcome means that they share nothing, for example: another host, no /proc, a
process or descriptor number that was used again, or a file that has a name or another owner. The first chunk decides
this by trial, and no message of its own is needed. The owner keeps the descriptor open for as long as it lends the
region. (A JVM finds the descriptor's number among the links in /proc/self/fd, by the name of the file that it has
deleted.)

The messages have these fields for shared memory:

    CHUNK, DATA   tensors may have places ["shared", region, offset] instead of ["inline", index]
    CHUNK.reply   [region, offset, bytes], optional: the worker may write the chunk's result there. If the whole result
                  fits, each tensor from a multiple of 64 on, RESULT has places ["shared", ...] in it; otherwise all of
                  it travels inline
    LOST.unmapped true: the worker could not map the region and gives the ticket back. The Dealer sends the open
                  groups again, inline, which does not count against `max_replays`. It sends that partition inline from
                  then on, until a worker that has read shared tensors before answers it
    COMMIT.bytes_shared   optional: how many of bytes_sent and bytes_received went through shared memory

These rules say who may use which bytes:

- The bytes of CHUNK, DATA and `reply` belong to the worker until it has sent the chunk's RESULT. A worker copies what it
  keeps for longer.
- The Dealer may use the bytes of CHUNK and DATA again once it has the RESULT, and those of `reply` once nobody reads the
  result any more.
- A Dealer that gives up a ticket with chunks in flight cannot know whether the worker still writes. It never uses that
  region again, but closes it and makes another one. A ticket that came back as `unmapped` is the exception.
- A region may grow and never shrinks. A worker that finds a place beyond its map looks at the file's size again.
- A worker unmaps a region when its owner has closed it, which shows in /proc.

Routers, coordinators and messages of other kinds do not use shared memory. `Settings.shared_bytes` = 0 switches it off
on either side. Tensors travel inline if there is no shared memory or if it is full.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import secrets
import stat
import tempfile
import weakref
from collections import deque

import numpy as np

from messenger.errors import FrameError, UnmappedError
from messenger.extents import Extents
from messenger.fields import ALIGNMENT
from messenger.spaces import Space

NONCE = 16  # number of bytes at the beginning of a region
FIRST_BYTES = 1 << 20  # size of a new region


class Region:
    """A Dealer's own region, with an allocator. Offsets and sizes are multiples of 64.

    Args:
        directory: a directory in a file system in memory.
        limit: number of bytes to which the region may grow.

    Raises:
        OSError: the directory does not exist or is full. `take` raises it as well, if the region cannot grow.
    """

    def __init__(self, directory: str, limit: int) -> None:
        self.pid = os.getpid()
        self._limit = limit // mmap.PAGESIZE * mmap.PAGESIZE
        self._extents = Extents(ALIGNMENT, ALIGNMENT)
        self._given_back: deque[tuple[int, int]] = deque()  # any thread that drops a result's last reader adds to it
        self._file = tempfile.TemporaryFile(dir=directory, prefix=f"lotan-{self.pid}-", buffering=0)  # noqa: SIM115
        try:
            self._resize(min(FIRST_BYTES, self._limit))
        except BaseException:
            self._file.close()
            raise
        nonce = secrets.token_hex(NONCE // 2)
        self._memory[:NONCE] = np.frombuffer(nonce.encode(), np.uint8)
        self.name = f"lotan-{self.pid}-{self._file.fileno()}-{nonce}"

    @property
    def bytes(self) -> int:
        """The region's size now."""
        return self._extents.end

    @property
    def free(self) -> int:
        """The number of free bytes in it."""
        self._take_back()
        return self._extents.free

    def take(self, size: int) -> Space | None:
        """Take `size` bytes. Return None if they do not fit and the region may not grow enough."""
        self._take_back()
        offset = self._extents.take(size)
        if offset is None and self.bytes < self._limit and size <= self._limit - ALIGNMENT:
            self._resize(min(self._limit, max(2, -(-size // self.bytes) + 1) * self.bytes))
            offset = self._extents.take(size)
        return None if offset is None else Space(self.name, offset, self._memory[offset : offset + size].data)

    def give(self, space: Space) -> None:
        """Free space that nobody reads or writes any more."""
        self._given_back.append((space.offset, space.memory.nbytes))

    def give_when_unread(self, space: Space) -> memoryview:
        """Return the space's bytes, read-only. The space is freed when no reference to them or to arrays of them is left."""
        exporter = self._memory[space.offset : space.offset + space.memory.nbytes]
        reader = weakref.finalize(exporter, self._given_back.append, (space.offset, space.memory.nbytes))
        reader.atexit = False
        return exporter.data.toreadonly()

    def close(self) -> None:
        """Free the region as soon as no process maps it any more. A second call does nothing."""
        self._file.close()

    def _take_back(self) -> None:
        while self._given_back:
            self._extents.give(*self._given_back.popleft())

    def _resize(self, size: int) -> None:
        os.posix_fallocate(self._file.fileno(), 0, size)
        self._memory = np.frombuffer(
            mmap.mmap(self._file.fileno(), size), np.uint8
        )  # an older map lives as long as somebody reads it
        self._extents.extend(size)


class MappedRegions:
    """A worker's maps of Dealers' regions. A region is mapped when a message first names it.

    Args:
        enabled: if False, no region is mapped.
    """

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._mapped: dict[str, _Mapped] = {}

    def __len__(self) -> int:
        return len(self._mapped)

    def view(self, region: str, offset: int, size: int) -> memoryview:
        """Return bytes of a region, read-only, as `messenger.frames.Regions` describes it."""
        return self._bytes(region, offset, size).toreadonly()

    def space(self, reply: tuple[str, int, int] | None) -> Space | None:
        """Return the space for a chunk's result, or None if the result must travel inline.

        Args:
            reply: the region, the offset and the number of bytes that the Dealer has lent, or None.

        Raises:
            FrameError: the region is smaller than that.
        """
        if reply is None:
            return None
        try:
            return Space(reply[0], reply[1], self._bytes(*reply))
        except UnmappedError:
            return None

    def prune(self) -> None:
        """Unmap the regions that their owners have closed. Memory with a view of it is freed with the view."""
        for name, mapped in list(self._mapped.items()):
            if not mapped.is_open():
                self._mapped.pop(name).close()

    def close(self) -> None:
        """Unmap all regions."""
        while self._mapped:
            self._mapped.popitem()[1].close()

    def _bytes(self, region: str, offset: int, size: int) -> memoryview:
        mapped = self._mapped.get(region)
        if mapped is None:
            if not self._enabled:
                raise UnmappedError("this worker was told to map no shared memory (shared_bytes)")
            self.prune()
            mapped = self._mapped[region] = _Mapped(region)
        if offset + size > len(mapped.memory):
            mapped.remap()
        if offset + size > len(mapped.memory):
            raise FrameError(
                f"{size} bytes at {offset} of the region {region} are beyond its {len(mapped.memory)} bytes"
            )
        return mapped.memory[offset : offset + size]


class _Mapped:
    """A map of another process's region."""

    def __init__(self, name: str) -> None:
        _, pid, descriptor, nonce = name.split("-")
        self._path = f"/proc/{pid}/fd/{descriptor}"
        try:
            _check(os.stat(self._path))  # before it is opened, because it might be a pipe
            self._file = io.FileIO(os.open(self._path, os.O_RDWR | os.O_CLOEXEC), "r+")
        except OSError as error:
            raise UnmappedError(f"cannot map the region {name}, which is another host's or user's: {error}") from None
        if os.pread(self._file.fileno(), NONCE, 0) != nonce.encode():
            self._file.close()
            raise UnmappedError(f"cannot map the region {name}: {self._path} is something else")
        self._identity = _identity(os.fstat(self._file.fileno()))
        try:
            self.remap()
        except UnmappedError:
            self._file.close()
            raise

    def remap(self) -> None:
        """Map the file in its present size."""
        try:
            self.memory = memoryview(mmap.mmap(self._file.fileno(), 0))
        except OSError as error:
            raise UnmappedError(f"cannot map the region {self._path}: {error}") from None

    def is_open(self) -> bool:
        """Return True if the owner still has the region open."""
        with contextlib.suppress(OSError):
            return _identity(os.stat(self._path)) == self._identity
        return False

    def close(self) -> None:
        self._file.close()


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _check(found: os.stat_result) -> None:
    """Refuse everything except a nameless regular file of this user, so that nothing else is opened or written to."""
    if not stat.S_ISREG(found.st_mode) or found.st_nlink or found.st_uid != os.geteuid():
        raise OSError("it is not a file of this user without a name")
