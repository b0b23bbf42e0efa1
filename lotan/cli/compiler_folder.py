"""The folder of torch's compiler, which torch makes among the temporary files as soon as an optimizer is made.

No command compiles anything, so the folder stays empty. It is removed at the end, and not if somebody keeps files there.
"""

from __future__ import annotations

import atexit
import os
from contextlib import suppress

CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""The variable that names the folder. Torch sets it when it makes the folder."""


def remove_at_exit() -> None:
    """Let this process remove the folder at its end, if it is empty and not one that the user has named."""
    if CACHE not in os.environ:
        atexit.register(_remove)


def _remove() -> None:
    with suppress(OSError, KeyError):  # it has files, or was never made
        os.rmdir(os.environ[CACHE])
