"""A process's folders for files of a run, and the removal of folders that killed processes have left behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from lotan.files import lock

SPARK, STORAGE = "lotan-spark-", "lotan-storage-"
"""The beginnings of the names of these folders: for the files of the JVM, and for partitions of a run from a disk."""

ATTEMPTS, PAUSE = 20, 0.1  # number of attempts to remove a folder, and seconds between them
OWNER = "owner"  # the file in a folder that its process locks for as long as it lives
_open: set[Path] = set()  # the folders of this process


class LocalFolder:
    """A new folder among the temporary files. Making one first removes folders whose process was killed.

    Args:
        prefix: The beginning of its name.
        directory: The folder that it is in; None: that of temporary files.
    """

    def __init__(self, prefix: str = SPARK, directory: Path | None = None) -> None:
        directory = directory or Path(tempfile.gettempdir())
        remove_stale(directory)
        made = Path(tempfile.mkdtemp(prefix=f"new-{prefix}", dir=directory))
        self._lock = os.open(made / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        lock(self._lock)
        # other processes see the folder only with its owner file
        self.path = made.rename(directory / made.name.removeprefix("new-"))
        _open.add(self.path)

    def close(self) -> None:
        """Remove the folder. This may be called twice."""
        _remove(self.path)
        _open.discard(self.path)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def leave_removal() -> None:
    """Start a process that removes this process's folders, which may be gigabytes. It is for a process that has no time left."""
    if left := [str(folder) for folder in _open if folder.exists()]:
        subprocess.Popen(["rm", "-rf", *left], stdin=subprocess.DEVNULL, start_new_session=True)


def remove_stale(directory: Path) -> None:
    """Remove folders whose process has ended, except those of other users.

    A folder without its owner's file may be a user's own of such a name, which stays. Among the temporary files it may be what
    Java has made again, or an empty one whose removal was cut short.
    """
    temporary = directory == Path(tempfile.gettempdir())
    for folder in (one for prefix in (SPARK, STORAGE) for one in directory.glob(f"{prefix}*")):
        with suppress(OSError):
            if not (folder / OWNER).exists():
                if temporary and folder.name.startswith(SPARK):
                    shutil.rmtree(folder)
                elif temporary:
                    folder.rmdir()
                continue
            descriptor = os.open(folder / OWNER, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(descriptor)


def _remove(folder: Path) -> None:
    """Remove a folder, its owner file last. If a process that is about to end still writes there, the next start finds it."""
    with suppress(OSError):
        for found in folder.iterdir():
            if found.is_dir() and not found.is_symlink():
                shutil.rmtree(found, ignore_errors=True)
            elif found.name != OWNER:
                found.unlink(missing_ok=True)
        if {found.name for found in folder.iterdir()} <= {OWNER}:
            _remove_all(folder)


def _remove_all(folder: Path) -> None:
    """Remove a folder again and again, because a Java process that is about to end may write there meanwhile."""
    for _ in range(ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(PAUSE)
