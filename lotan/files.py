"""Files that are there whole or not at all, and files of plain data and tensors that are read back with care."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from lotan.errors import LotanError


class DamagedError(LotanError):
    """A file that torch cannot read: cut short, overwritten, or never written by it."""


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Call `write(stream)` on a new file, and put the file in the place of `path` once it is safely on the disk."""
    path = path.resolve()  # a link stays one
    # one name for all attempts, so that what a killed run left is written over and never gathers
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        with open(unfinished, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, path)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        # torch's zip writer turns an OSError of the stream into a RuntimeError
        found = error.__context__ if isinstance(error, RuntimeError) else error
        if isinstance(found, OSError) and found.filename is None:
            raise OSError(found.errno, found.strerror, str(path)) from error
        raise
    force_directory(path.parent)


def force_directory(directory: Path) -> None:
    """Have the disk hold what was created, renamed or removed in a directory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_data(path: Path) -> dict[str, Any]:
    """The plain data and tensors that `torch.save` wrote as a dictionary.

    Raises:
        OSError: the file is not there, or cannot be opened.
        DamagedError: it holds something else; torch's own words for it, which fill a screen, are the cause.
    """
    import torch

    cause = None
    try:
        content = torch.load(path, weights_only=True, map_location="cpu")
        if isinstance(content, dict):
            return content
    except OSError:
        raise
    except Exception as error:  # of what type depends on where a file was cut
        cause = error
    raise DamagedError(f"{path} ({path.stat().st_size:,} bytes) is cut short, damaged or no file of lotan's") from cause
