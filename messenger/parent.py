"""A process that ends together with the process that started it, however that one ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


def when_stdin_ends(action: Callable[[], object]) -> None:
    """Call `action` in a thread when standard input ends, because its writer has closed it or was killed.

    The process that starts this one must give it a pipe and keep the other end open.
    """

    def watch() -> None:
        while os.read(0, 4096):
            pass
        action()

    threading.Thread(target=watch, name="lotan-parent-watch", daemon=True).start()
