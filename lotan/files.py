"""Files that are written completely or not at all, and files of plain data and tensors that are read with care."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from lotan.errors import LotanError

SAVED_MODEL = "model.json"
"""The name of a file that every saved model has in its folder."""


LONGEST_NAME = 255  # bytes that a name of a file can have on the usual file systems
LONGEST_PATH = 4000  # bytes that a path can have on Linux, less the names of the files in a folder


def expanded(path: str | Path) -> Path:
    """Return a path in which the user's home folder stands for a leading `~`."""
    return Path(path).expanduser()


def why_unusable(path: str | Path) -> str | None:
    r"""Return in words why no file can have a path, whatever the disk; None: one can.

    >>> why_unusable("runs/first"), why_unusable("runs\0"), why_unusable("a" * 300)
    (None, 'has a NUL character', 'has a name of more than 255 bytes')
    """
    if "\0" in str(path):
        return "has a NUL character"
    try:
        place = os.fsencode(expanded(path).absolute())
    except RuntimeError:
        return "begins with the home folder of a user who does not exist"
    if any(len(name) > LONGEST_NAME for name in place.split(b"/")):
        return f"has a name of more than {LONGEST_NAME} bytes"
    return f"has more than {LONGEST_PATH:,} bytes" if len(place) > LONGEST_PATH else None


def nearest_folder(path: str | Path) -> Path:
    """Return a folder, or the nearest one above it that exists."""
    place = Path(path).absolute()
    return next(one for one in (place, *place.parents) if os.path.isdir(one))  # other than `is_dir`, it never raises


class DamagedError(LotanError):
    """A file that torch cannot read, because it is cut short, overwritten, or never was a file of torch's."""


def lock(descriptor: int, shared: bool = False) -> bool:
    """Lock an open file or folder until the descriptor is closed or its process ends; False if another holder has it.

    Where the file system has no locks, nothing is locked, and the answer is True.

    Args:
        descriptor: The descriptor.
        shared: True if others may lock it so too.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Call `write(stream)` on a new file, and rename the file to `path` once it is safely on the disk."""
    path = path.resolve()  # a link stays a link
    # All attempts use one name: the file that a killed run left is overwritten, and such files never gather.
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        with open(unfinished, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, path)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        # Torch's zip writer turns an OSError of the stream into a RuntimeError.
        found = error.__context__ if isinstance(error, RuntimeError) else error
        if isinstance(found, OSError) and found.filename is None:
            raise OSError(found.errno, found.strerror, str(path)) from error
        raise
    force_directory(path.parent)


def force_directory(directory: Path) -> None:
    """Force entries that were created, renamed or removed in a directory to the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_data(path: Path) -> dict[str, Any]:
    """Return the dictionary of plain data and tensors that `torch.save` wrote.

    Raises:
        OSError: If the file is not there, or cannot be opened.
        DamagedError: If it holds something else. Its cause is torch's own message, which fills a screen.
    """
    import torch

    cause = None
    try:
        content = torch.load(path, weights_only=True, map_location="cpu")
        if isinstance(content, dict):
            return content
    except OSError:
        raise
    except Exception as error:  # the type depends on the place where a file was cut
        cause = error
    raise DamagedError(f"{path} ({path.stat().st_size:,} bytes) is cut short, damaged or not a lotan file") from cause
