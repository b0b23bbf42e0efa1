"""The folder of partitioned storage: who may use it, whether there is room, and what is left of it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from lotan.errors import StorageError
from lotan.files import lock, nearest_folder, write_atomically
from lotan.hosts.local_folder import STORAGE, LocalFolder, remove_stale
from lotan.memory.mapped import IN_MEMORY, file_system
from planner.explain.sizes import size as in_words

HELD = "in-use"
"""The file that a run locks as long as it uses the folder."""

EDGES, OTHERS = "edges.bin", "held.bin"
"""The files of training links, and of the links of other splits."""

FEATURES, ROWS = "features", "rows"
"""The folders of the files of features, and of learned rows."""

OURS = (EDGES, OTHERS, f"{FEATURES}/*.bin", f"{ROWS}/*.bin")
"""The files of a storage that take room."""

FORMAT, MANIFEST = 1, "manifest.json"
"""The version of a storage, and the file that says what its files are, which is written last."""

REMOTE = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "beegfs", "gpfs")
"""Types of file systems that lie on other hosts, beside those of FUSE."""

T = TypeVar("T")


@contextmanager
def claimed_storage(folder: Path | None, only_reads: bool = False) -> Iterator[Path]:
    """Make a folder for storage if needed, and lock other runs out of it until the block ends.

    Args:
        folder: The folder, which stays; None: one among the temporary files, which is removed. Those that killed runs have
            left among the temporary files are removed in either case, and those that `beside_storage` has left.
        only_reads: True if nothing is written to a storage that is whole. So it may be on read-only media, and runs may share
            it there.

    Raises:
        StorageError: If another run uses the folder, it cannot be written, or it lies in memory.
    """
    own = None
    _check_disk(nearest(folder))
    if folder is None:
        own = written(nearest(None), lambda: LocalFolder(STORAGE))
        folder = own.path
    else:
        for place in {nearest(None), nearest(folder), nearest(folder.absolute().parent)}:
            remove_stale(place)
        written(folder, lambda: folder.mkdir(parents=True, exist_ok=True))
        if (taken := _taken(folder)) is not None:
            raise StorageError(f"{taken}; name another folder with storage_dir")
    try:
        descriptor, shared = written(folder, lambda: _opened(folder, only_reads))
        try:
            if not lock(descriptor, shared):
                raise StorageError(
                    f"another run uses the storage in {folder}; wait for its end, or name another folder with storage_dir"
                )
            yield folder
        finally:
            os.close(descriptor)
    finally:
        if own is not None:
            own.close()


def _taken(folder: Path) -> str | None:
    """Return which file of the user's own has the name of one of a storage, in words; None: there is no such file."""
    if not os.path.isdir(folder) or (folder / HELD).exists() or read_manifest(folder / MANIFEST) is not None:
        return None
    for name in (MANIFEST, EDGES, OTHERS, f"{FEATURES}.json", FEATURES, ROWS):
        if os.path.lexists(folder / name):
            return f"{folder / name} is there, and no run has written it, so partitions would overwrite a file of yours"
    return None


def _opened(folder: Path, only_reads: bool) -> tuple[int, bool]:
    """Open what a run locks: a file, or the folder itself if nothing can be written there.

    Returns:
        The descriptor, and True if others may lock it too.
    """
    try:
        return os.open(folder / HELD, os.O_RDWR | os.O_CREAT, 0o644), False
    except OSError as error:
        if not only_reads or error.errno not in (errno.EROFS, errno.EACCES):
            raise
        return os.open(folder / HELD if (folder / HELD).exists() else folder, os.O_RDONLY), True


@contextmanager
def beside_storage(folder: Path | None) -> Iterator[Path | None]:
    """Yield a temporary folder on the disk of a folder for storage, which stays as it is.

    Args:
        folder: The folder, which need not exist; None: there is none, and None is yielded.

    Raises:
        StorageError: If nothing can be written there.
    """
    if folder is None:
        yield None
        return
    own = written(nearest(folder), lambda: LocalFolder(STORAGE, nearest(folder)))
    try:
        yield own.path
    finally:
        own.close()


def _check_disk(folder: Path) -> None:
    kind = file_system(folder)
    if kind in IN_MEMORY:
        raise StorageError(
            f"partitions would lie in {folder}, which is itself in memory ({kind}); name a folder on a disk with storage_dir, "
            "or set TMPDIR to one"
        )


@contextmanager
def claimed_with_room(folder: Path | None, size: int, of: str, only_reads: bool = False) -> Iterator[Path]:
    """Claim a folder for storage until the block ends, and check that it has room for what it lacks.

    Args:
        folder: The folder, or None, as in `claimed_storage`.
        size: The bytes that it will hold, of which files of an earlier run may be there.
        of: The name of these bytes, for the error.
        only_reads: True if nothing is written to a storage that is whole.

    Raises:
        StorageError: If the folder cannot be used, or has too little room.
    """
    with claimed_storage(folder, only_reads) as claimed:
        check_room(claimed, _missing_bytes(claimed, size), of)
        yield claimed


def _missing_bytes(folder: Path, size: int) -> int:
    """Return at most how many of `size` bytes are still to be written to a folder. Files of an earlier run count as written."""
    if not os.path.isdir(folder):
        return size
    there = sum(path.stat().st_size for pattern in OURS for path in folder.glob(pattern))
    return max(0, size - there)


def nearest(folder: Path | None) -> Path:
    """Return a folder, or the nearest one above it that exists; None: that of temporary files."""
    return nearest_folder(tempfile.gettempdir() if folder is None else folder)


def refusal(folder: Path | None, size: int, only_reads: bool = False) -> str | None:
    """Return the reason why a run could not use a folder for storage, as far as it is known before; None: it can.

    Args:
        folder: The folder, or None, as in `claimed_storage`.
        size: The bytes that it will hold.
        only_reads: True if nothing is written to a storage that is whole.
    """
    place = nearest(folder)
    below = () if folder is None else folder.absolute().relative_to(place).parts
    if below and os.path.lexists(place / below[0]):
        return f"{place / below[0]} is no folder"
    if folder is not None and (taken := _taken(folder)) is not None:
        return taken
    kind, free = file_system(place), shutil.disk_usage(place).free
    if kind in IN_MEMORY:
        return f"{place} is itself in memory ({kind})"
    missing = size if folder is None else _missing_bytes(folder, size)
    if not os.access(place, os.W_OK) and not (only_reads and not missing):
        return f"nothing can be written to {place}"
    return None if missing <= free else f"{place} has {in_words(free)} left for {in_words(missing)}"


def remote_notes(folder: Path | None) -> tuple[str, ...]:
    """Return a line if a folder for storage lies on another host."""
    place = nearest(folder)
    kind = file_system(place)
    if kind not in REMOTE and not kind.startswith("fuse."):
        return ()
    return (
        f"storage_dir: {place} is on a file system of type {kind}, which may be slow, and may not keep runs on other hosts from "
        "writing to the same folder; a folder on a disk of this host is better",
    )


def check_room(folder: Path, size: int, of: str) -> None:
    """Check that a folder has room, before the first byte is written.

    Args:
        folder: The folder.
        size: The bytes that will be written.
        of: The name of these bytes, for the error.

    Raises:
        StorageError: If it has not.
    """
    free = shutil.disk_usage(folder).free
    if free < size:
        raise StorageError(
            f"{of} take up to {size:,} bytes in {folder}, which has {free:,} left; free some, or name a folder on another disk "
            "with storage_dir"
        )


_MENDS = {
    errno.ENOSPC: "free some space, or name",
    errno.EDQUOT: "free some space, or name",
    errno.EEXIST: "a file is in the place of a folder: remove it, or name",
    errno.ENOTDIR: "a file is in the place of a folder: remove it, or name",
    errno.EACCES: "mend the permissions, or name",
    errno.EROFS: "mount it for writing, or name",
    errno.ENAMETOOLONG: "name",
}
"""The beginnings of the words on what to do, by the number of the system's error."""


def written(place: Path, write: Callable[[], T]) -> T:
    """Return the result of a function that writes at a place.

    Raises:
        StorageError: If it cannot be written: the disk is full or read-only, or permissions are missing.
    """
    try:
        return write()
    except OSError as error:
        mend = _MENDS.get(error.errno or 0, "free some space, mend the permissions, or name")
        raise StorageError(
            f"storage cannot be written to {place}: {error.strerror or error}; {mend} another folder with storage_dir"
        ) from error


def written_again(damage: str | None, write: Callable[[], T]) -> T:
    """Return the result of a function that writes storage, perhaps because some was damaged.

    Args:
        damage: The damage that was found, in words, for an error; None: there was none.
        write: The function.

    Raises:
        StorageError: If it cannot be written.
    """
    try:
        return write()
    except StorageError as error:
        raise StorageError(str(error) if damage is None else f"{damage}, and {error}") from error


def mended_words(damage: str | None) -> str:
    """Return in words that what was damaged has been written again; "" if nothing was."""
    return "" if damage is None else f"storage: {damage}; it was written again from the graph"


def write_manifest(path: Path, content: Mapping[str, Any]) -> None:
    """Write plain data with a checksum. The file is there completely or not at all.

    Raises:
        StorageError: If it cannot be written.
    """
    text = json.dumps(content, sort_keys=True)
    whole = json.dumps({"content": content, "checksum": xxhash.xxh3_64_hexdigest(text.encode())}, sort_keys=True)
    written(path, lambda: write_atomically(path, lambda stream: stream.write(whole.encode())))


def read_manifest(path: Path) -> dict[str, Any] | None:
    """Return the plain data of a manifest, or None if there is none or it was damaged."""
    try:
        whole = json.loads(path.read_text())
        content: dict[str, Any] = whole["content"]
        text = json.dumps(content, sort_keys=True)
        return content if whole["checksum"] == xxhash.xxh3_64_hexdigest(text.encode()) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
