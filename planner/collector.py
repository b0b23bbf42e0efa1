"""A pause of Python's garbage collector while plans are made."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()  # two trainers may plan at the same time
_pauses: list[bool] = []  # for each pause that has begun and not ended: True if the collector was on before it


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector. It goes on when the last of the pauses that overlap has ended, if it was on.

    A plan of hundreds of relations has a million objects and no cycles. To look for cycles among them took a quarter of
    the time in which such plans were made.

    >>> with collector_paused():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    with _lock:
        _pauses.append(gc.isenabled() or any(_pauses))
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            if _pauses.pop() and not _pauses:
                gc.enable()
