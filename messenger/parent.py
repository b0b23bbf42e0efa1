"""Ending with the process that started this one, however that one ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


def when_stdin_ends(action: Callable[[], object]) -> None:
    """Call `action`, in a thread, when standard input ends: its writer has closed it, or was killed.

    Whoever starts this process gives it a pipe and keeps the other end open.
    """

    def watch() -> None:
        while os.read(0, 4096):
            pass
        action()

    threading.Thread(target=watch, name="lotan-parent-watch", daemon=True).start()
