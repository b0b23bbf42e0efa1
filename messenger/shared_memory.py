"""Shared memory between a Dealer and workers of the same host: tensors are written once and read where they are.

The Dealer alone owns memory. Its *region* is a file in a file system in memory that has lost its name before anybody
else hears of it, so that the kernel frees it with the last process that has it open or mapped, however these end:
there is nothing to clean up after a crash. (Where a file must have a name for a moment, as in Java, the name is
`lotan-<pid>-...`, and whoever makes one first removes those of processes that are gone.) Only its owner's user can open
it (mode 0600), and space is reserved when it is made or grown (posix_fallocate, or zeros written), so that a full file
system is an error there and then, never a SIGBUS later.

A region is called `lotan-<pid>-<descriptor>-<nonce>`, and its first 16 bytes are the nonce: 16 hexadecimal digits drawn
at random. A worker opens /proc/<pid>/fd/<descriptor> and looks for the nonce. If it is there, the two processes share a
host, a user and that region; any other outcome (another host, a process or descriptor number used again, a file that
has a name or another owner, no /proc) means that they share nothing. So whether they do is found out by trying, on the
first chunk, and needs no message of its own. The owner keeps the descriptor open for as long as it lends the region. (A
JVM finds its number among the links in /proc/self/fd, by the name of the file that it has deleted.)

What the messages say:

    CHUNK, DATA   tensors may have places ["shared", region, offset] instead of ["inline", index]
    CHUNK.reply   [region, offset, bytes], optional: the worker may write the chunk's result there. If the whole result
                  fits, each tensor from a multiple of 64 on, RESULT has places ["shared", ...] in it; otherwise all of
                  it travels inline
    LOST.unmapped true: the worker could not map the region and gives the ticket back. The Dealer sends the open
                  groups again, inline, which does not count against `max_replays`, and sends that partition inline from
                  then on, until a worker answers it that has read shared tensors before
    COMMIT.bytes_shared   optional: how many of bytes_sent and bytes_received went through shared memory

Who may touch what, when: the bytes of CHUNK and DATA belong to the worker until it has sent the chunk's RESULT, and so do
those of `reply`; the Dealer may use the former again once it has the RESULT, the latter once nobody reads the result any
more. What a worker keeps for longer it copies. A Dealer that gives up a ticket with chunks in flight cannot know whether
the worker still writes: it never uses that region again, but closes it and makes another under another name, unless the
ticket came back as `unmapped`. A region may grow and never shrinks: a worker that finds a place beyond what it has mapped
looks at the file's size again. A worker unmaps a region when its owner has closed it, which shows in /proc.

Routers, coordinators and messages of other kinds have nothing to do with shared memory. Each side can be told to have
none (`Settings.shared_bytes` = 0), and does without where there is none or it is full.
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

NONCE = 16  # bytes at the beginning of a region
FIRST_BYTES = 1 << 20  # of a new region


class Region:
    """A Dealer's own region, with an allocator. Offsets and sizes are multiples of 64.

    Args:
        directory: of a file system in memory.
        limit: bytes to which it may grow.

    Raises:
        OSError: the directory is not there, or full; also from `take`, when the region cannot grow.
    """

    def __init__(self, directory: str, limit: int) -> None:
        self.pid = os.getpid()
        self._limit = limit // mmap.PAGESIZE * mmap.PAGESIZE
        self._extents = Extents(ALIGNMENT, ALIGNMENT)
        self._given_back: deque[tuple[int, int]] = deque()  # by whatever thread drops the last reader of a result
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
        """Its size now."""
        return self._extents.end

    @property
    def free(self) -> int:
        """Bytes of it that nobody has."""
        self._take_back()
        return self._extents.free

    def take(self, size: int) -> Space | None:
        """That many bytes, or None where the region is full and has reached its limit."""
        self._take_back()
        offset = self._extents.take(size)
        if offset is None and self.bytes < self._limit and size <= self._limit - ALIGNMENT:
            self._resize(min(self._limit, max(2, -(-size // self.bytes) + 1) * self.bytes))
            offset = self._extents.take(size)
        return None if offset is None else Space(self.name, offset, self._memory[offset : offset + size].data)

    def give(self, space: Space) -> None:
        """Take space back that nobody reads or writes any more."""
        self._given_back.append((space.offset, space.memory.nbytes))

    def give_when_unread(self, space: Space) -> memoryview:
        """The space's bytes, read-only; it is taken back when neither they nor arrays made of them are referred to."""
        exporter = self._memory[space.offset : space.offset + space.memory.nbytes]
        reader = weakref.finalize(exporter, self._given_back.append, (space.offset, space.memory.nbytes))
        reader.atexit = False
        return exporter.data.toreadonly()

    def close(self) -> None:
        """Free it, as soon as nobody has it mapped any more. May be called twice."""
        self._file.close()

    def _take_back(self) -> None:
        while self._given_back:
            self._extents.give(*self._given_back.popleft())

    def _resize(self, size: int) -> None:
        os.posix_fallocate(self._file.fileno(), 0, size)
        self._memory = np.frombuffer(
            mmap.mmap(self._file.fileno(), size), np.uint8
        )  # an older map lives while it is read
        self._extents.extend(size)


class MappedRegions:
    """A worker's view of Dealers' regions: mapped when first named, unmapped after their owners have closed them.

    Args:
        enabled: False maps none.
    """

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._mapped: dict[str, _Mapped] = {}

    def __len__(self) -> int:
        return len(self._mapped)

    def view(self, region: str, offset: int, size: int) -> memoryview:
        """See `messenger.frames.Regions`."""
        return self._bytes(region, offset, size).toreadonly()

    def space(self, reply: tuple[str, int, int] | None) -> Space | None:
        """Where a chunk's result may be written, or None where it has to travel inline.

        Raises:
            FrameError: the region is not that large.
        """
        if reply is None:
            return None
        try:
            return Space(reply[0], reply[1], self._bytes(*reply))
        except UnmappedError:
            return None

    def prune(self) -> None:
        """Unmap what its owner has closed. Memory that somebody still has a view of is freed with the view."""
        for name, mapped in list(self._mapped.items()):
            if not mapped.is_open():
                self._mapped.pop(name).close()

    def close(self) -> None:
        """Unmap all."""
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
    """Another process's region."""

    def __init__(self, name: str) -> None:
        _, pid, descriptor, nonce = name.split("-")
        self._path = f"/proc/{pid}/fd/{descriptor}"
        try:
            _check(os.stat(self._path))  # before it is opened: it might be a pipe
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
        """Map all that the file has by now."""
        try:
            self.memory = memoryview(mmap.mmap(self._file.fileno(), 0))
        except OSError as error:
            raise UnmappedError(f"cannot map the region {self._path}: {error}") from None

    def is_open(self) -> bool:
        """Whether the owner still has it open."""
        with contextlib.suppress(OSError):
            return _identity(os.stat(self._path)) == self._identity
        return False

    def close(self) -> None:
        self._file.close()


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _check(found: os.stat_result) -> None:
    """Nothing else is ever opened, let alone written to: no device, no file with a name, nothing of another user's."""
    if not stat.S_ISREG(found.st_mode) or found.st_nlink or found.st_uid != os.geteuid():
        raise OSError("it is not a file of this user without a name")
