"""A folder of a run for Spark's files, and an end to those that killed runs have left behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX = "lotan-spark-"
ATTEMPTS, PAUSE = 20, 0.1  # seconds between attempts to remove a folder
OWNER = "owner"  # the file in it that its process holds a lock on, for as long as it lives
_open: set[Path] = set()  # the folders of this process


class LocalFolder:
    """A new folder among the temporary files. First, those whose process was killed are removed."""

    def __init__(self) -> None:
        directory = Path(tempfile.gettempdir())
        remove_stale(directory)
        made = Path(tempfile.mkdtemp(prefix=f"new-{PREFIX}"))
        self._lock = os.open(made / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = made.rename(directory / made.name.removeprefix("new-"))  # nobody sees it without its owner
        _open.add(self.path)

    def close(self) -> None:
        """Remove it. May be called twice."""
        _remove(self.path)
        _open.discard(self.path)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def leave_removal() -> None:
    """For a process that has no time left: a process of its own removes what folders it has, which may be gigabytes."""
    if left := [str(folder) for folder in _open if folder.exists()]:
        subprocess.Popen(["rm", "-rf", *left], stdin=subprocess.DEVNULL, start_new_session=True)


def remove_stale(directory: Path) -> None:
    """Remove folders that nobody holds any more; what is another user's stays."""
    for folder in directory.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if not (folder / OWNER).exists():  # its removal was cut short
                shutil.rmtree(folder)
                continue
            descriptor = os.open(folder / OWNER, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(descriptor)


def _remove(folder: Path) -> None:
    """With the owner last: if a process that is about to end still writes there, the next start finds the folder."""
    with suppress(OSError):
        for found in folder.iterdir():
            if found.is_dir() and not found.is_symlink():
                shutil.rmtree(found, ignore_errors=True)
            elif found.name != OWNER:
                found.unlink(missing_ok=True)
        if {found.name for found in folder.iterdir()} <= {OWNER}:
            _remove_all(folder)


def _remove_all(folder: Path) -> None:
    """A Java that is about to end may write there and remove it again meanwhile."""
    for _ in range(ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(PAUSE)
